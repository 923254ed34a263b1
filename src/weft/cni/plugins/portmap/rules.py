"""Port maps as upstream's rules, by iptables or nft: one look and one commit for each family (cni.md §5.3, §5.4).

Requests exclude each other, so that no two make what all share. Upstream's plugin knows no such lock: what it changes
between a look and its commit makes the commit fail, and both are repeated.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.host.programs import FAMILIES
from weft.cni.plugins.portmap import iptables, nft
from weft.cni.plugins.portmap.conf import PortMap
from weft.model.attachment import Attachment
from weft.model.net import Ip
from weft.wire.iptables import Table
from weft.wire.nft import Listing

_LOCK: Final = "/portmap.lock"


def add_iptables(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    chain, comment = _names(attachment)
    for family in wanted.families:
        look = partial(iptables.additions, wanted=wanted, family=family, chain=chain, comment=comment)
        _change_iptables(host, family, look)


def remove_iptables(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """None: those of all attachments of the container in this network."""
    for family in FAMILIES if wanted is None else wanted.families:
        remove_container(host, family, attachment, ours=() if wanted is None else wanted.ips)


def remove_container(host: Host, family: int, attachment: Attachment, *, ours: Collection[Ip] = ()) -> None:
    """Remove a container's chains in a network, upstream's historic second one too; `ours` as in `removals`."""
    remove_chain(host, family, _names(attachment)[0], ours)


def remove_chain(host: Host, family: int, chain: str, ours: Collection[Ip]) -> None:
    _change_iptables(host, family, partial(iptables.removals, chain=chain, ours=ours))


def remove_gone(host: Host, family: int, network: str, valid: Collection[str]) -> None:
    def lines(have: Table) -> list[str]:
        return [line for chain in iptables.gone(have, network, valid) for line in iptables.removals(have, chain)]

    _change_iptables(host, family, lines)


def missing_iptables(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    chain, comment = _names(attachment)
    for family in wanted.families:
        found = iptables.first_missing(programs.iptables_table(family), wanted, family, chain=chain, comment=comment)
        if found:
            return f"could not check ipv{family} dnat: {found}"
    return ""


def _names(attachment: Attachment) -> tuple[str, str]:
    names = attachment.network, attachment.container_id
    return iptables.chain_of(*names), iptables.comment_of(*names)


def _change_iptables(host: Host, family: int, look: Callable[[Table], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_iptables(family, look)


def add_nft(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    for family in wanted.families:
        look = partial(nft.additions, wanted=wanted, family=family, comment=attachment.container_id)
        _change_nft(host, family, look)


def remove_nft(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """None: those of all attachments of the container, in whatever network."""
    for family in FAMILIES if wanted is None else wanted.families:
        remove_comment(host, family, attachment.container_id, () if wanted is None else wanted.ips)


def remove_comment(host: Host, family: int, comment: str, ours: Collection[Ip]) -> None:
    _change_nft(host, family, partial(nft.removals, family=family, comment=comment, ours=ours))


def missing_nft(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    for family in wanted.families:
        chain = nft.first_missing(programs.nft_table(nft.table_of(family)), wanted, family, attachment.container_id)
        if chain:
            return f'missing hostport rules in "{chain}" chain'
    return ""


def _change_nft(host: Host, family: int, look: Callable[[Listing], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_nft(nft.table_of(family), look)
