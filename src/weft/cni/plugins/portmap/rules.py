"""Port maps as upstream's rules, by iptables or nft: one look and one commit for each family (cni.md §5.3, §5.4).

Locked against each other, so that two requests do not both make what all share. Upstream's plugin knows no such
lock: what it changes between the look and the commit makes the commit fail, and it is tried again.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from weft.cni.host import programs
from weft.cni.host.programs import FAMILIES
from weft.cni.plugins.portmap import iptables, nft
from weft.cni.plugins.portmap.ports import PortMap
from weft.cni.sdk.host import Host
from weft.model.attachment import Attachment
from weft.model.net import Ip
from weft.wire.iptables import Table
from weft.wire.nft import Listing

_LOCK: Final = "/portmap.lock"


def add_iptables(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Make the attachment's rules by iptables. May be repeated."""
    chain, comment = _names(attachment)
    for family in _families(wanted):
        of_family = partial(iptables.additions, wanted=wanted, family=family, chain=chain, comment=comment)
        _change_iptables(host, family, of_family)


def remove_iptables(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Remove its iptables rules; with None those of all attachments of the container in this network."""
    for family in FAMILIES if wanted is None else _families(wanted):
        remove_container(host, family, attachment, ours=_addresses(wanted))


def remove_container(host: Host, family: int, attachment: Attachment, *, ours: Collection[Ip] = ()) -> None:
    """Remove a container's chains in a network, upstream's historic second one too; with `ours` as `remove` there."""
    chain, _ = _names(attachment)
    remove_chain(host, family, chain, ours)


def remove_chain(host: Host, family: int, chain: str, ours: Collection[Ip]) -> None:
    """Remove the rules of a chain that lead to these addresses, and the chain if it has no others."""
    _change_iptables(host, family, partial(iptables.removals, chain=chain, ours=ours))


def remove_comment(host: Host, family: int, comment: str, ours: Collection[Ip]) -> None:
    """Remove the nft rules with this comment for these addresses."""
    _change_nft(host, family, partial(nft.removals, family=family, comment=comment, ours=ours))


def remove_gone(host: Host, family: int, network: str, valid: Collection[str]) -> None:
    """Remove the chains of this network's containers that are not among the valid ones."""

    def lines(have: Table) -> list[str]:
        return [line for chain in iptables.gone(have, network, valid) for line in iptables.removals(have, chain)]

    _change_iptables(host, family, lines)


def missing_iptables(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    chain, comment = _names(attachment)
    for family in _families(wanted):
        found = iptables.missing(programs.iptables_table(family), wanted, family, chain=chain, comment=comment)
        if found:
            return f"could not check ipv{family} dnat: {found}"
    return ""


def add_nft(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Make the attachment's rules by nft. May be repeated."""
    for family in _families(wanted):
        of_family = partial(nft.additions, wanted=wanted, family=family, comment=attachment.container_id)
        _change_nft(host, family, of_family)


def remove_nft(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Remove its nft rules; with None those of all attachments of the container, in whatever network."""
    for family in FAMILIES if wanted is None else _families(wanted):
        of_family = partial(nft.removals, family=family, comment=attachment.container_id, ours=_addresses(wanted))
        _change_nft(host, family, of_family)


def missing_nft(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    for family in _families(wanted):
        chain = nft.missing(programs.nft_table(nft.table_of(family)), wanted, family, attachment.container_id)
        if chain:
            return f'missing hostport rules in "{chain}" chain'
    return ""


def _names(attachment: Attachment) -> tuple[str, str]:
    names = attachment.network, attachment.container_id
    return iptables.chain_of(*names), iptables.comment_of(*names)


def _families(wanted: PortMap) -> list[int]:
    return [family for family in FAMILIES if wanted.of_family(family) is not None]


def _addresses(wanted: PortMap | None) -> list[Ip]:
    return [] if wanted is None else [address.ip for address in wanted.addresses]


def _change_iptables(host: Host, family: int, look: Callable[[Table], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_iptables(family, look)


def _change_nft(host: Host, family: int, look: Callable[[Listing], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_nft(nft.table_of(family), look)
