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
from weft.wire.cni import CniError

_LOCK: Final = "/portmap.lock"
_ATTEMPTS: Final = 5


def add_iptables(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Make the attachment's rules by iptables. May be repeated."""
    chain, comment = _names(attachment)
    for family in _families(wanted):

        def lines(family: int = family) -> list[str]:
            save = programs.iptables_save(family)
            return iptables.additions(save, wanted, family, chain=chain, comment=comment)

        _commit(host, lines, partial(programs.iptables_restore, family))


def remove_iptables(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Remove its iptables rules; with None those of all attachments of the container in this network."""
    for family in FAMILIES if wanted is None else _families(wanted):
        remove_container(host, family, attachment, ours=_addresses(wanted))


def remove_container(host: Host, family: int, attachment: Attachment, *, ours: Collection[Ip] = ()) -> None:
    """Remove a container's chains in a network, upstream's historic second one too; with `ours` as `remove` there."""
    chain, _ = _names(attachment)

    def lines() -> list[str]:
        save = programs.iptables_save(family)
        return iptables.removals(save, chain, ours=ours)

    _commit(host, lines, partial(programs.iptables_restore, family))


def remove_gone(host: Host, family: int, network: str, valid: Collection[str]) -> None:
    """Remove the chains of this network's containers that are not among the valid ones."""

    def lines() -> list[str]:
        save = programs.iptables_save(family)
        gone = iptables.gone(save, network, valid)
        return [line for chain in gone for line in iptables.removals(save, chain)]

    _commit(host, lines, partial(programs.iptables_restore, family))


def missing_iptables(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    chain, comment = _names(attachment)
    for family in _families(wanted):
        save = programs.iptables_save(family)
        found = iptables.missing(save, wanted, family, chain=chain, comment=comment)
        if found:
            return f"could not check ipv{family} dnat: {found}"
    return ""


def add_nft(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Make the attachment's rules by nft. May be repeated."""
    for family in _families(wanted):

        def lines(family: int = family) -> list[str]:
            return nft.additions(_list_nft(family), wanted, family, attachment.container_id)

        _commit(host, lines, _nft)


def remove_nft(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Remove its nft rules; with None those of all attachments of the container, in whatever network."""
    for family in FAMILIES if wanted is None else _families(wanted):

        def lines(family: int = family) -> list[str]:
            found = _list_nft(family)
            return nft.removals(found, family, attachment.container_id, ours=_addresses(wanted))

        _commit(host, lines, _nft)


def missing_nft(_: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    for family in _families(wanted):
        chain = nft.missing(_list_nft(family), wanted, family, attachment.container_id)
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


def _commit(host: Host, look: Callable[[], list[str]], commit: Callable[[list[str]], None]) -> None:
    with host.state.lock(_LOCK):
        for attempt in range(_ATTEMPTS):
            lines = look()
            if not lines:
                return
            try:
                commit(lines)
            except CniError:
                # Refused again for the same reason, it is not somebody else's change that was in the way.
                if attempt == _ATTEMPTS - 1 or look() == lines:
                    raise
            else:
                return


def _nft(lines: list[str]) -> None:
    programs.run("nft", "-f", "-", stdin="".join(f"{line}\n" for line in lines))


def _list_nft(family: int) -> nft.Listing:
    """Return upstream's table, empty if it is not there."""
    table = nft.table_of(family)
    if f"table {table}" not in programs.run("nft", "list", "tables").splitlines():
        return {}
    return nft.listing(programs.run("nft", "-a", "list", "table", *table.split()))
