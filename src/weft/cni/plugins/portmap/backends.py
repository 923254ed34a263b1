"""The ways to have port maps on a host, and what is kept of an attachment so that any of them can be undone.

DEL, CHECK and GC go by what was kept, not by what the runtime repeats: some runtimes repeat no mappings.

Upstream's rules are changed by one look and one commit for each family (cni.md §5.3, §5.4). Requests exclude each
other, so that no two make what all share. Upstream's plugin knows no such lock: what it changes between a look and its
commit makes the commit fail, and both are repeated.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from weft.cni.attachment.owners import owner_of
from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.plugins.portmap import conf as portmapconf
from weft.cni.plugins.portmap import iptables, maps, nft
from weft.cni.plugins.portmap.conf import IPTABLES, NFTABLES, PortMap
from weft.cni.plugins.portmap.elements import TABLE, Taken, is_of
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.kernel.netfilter.conntrack import forget_udp
from weft.model.attachment import Attachment
from weft.model.kernel.nftset import Element
from weft.model.net import FAMILIES, Ip
from weft.model.value import Value
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.iptables import Table
from weft.wire.nft import Listing

# Our own nf_tables maps; the others bear the names of upstream's backends.
MAPS: Final = "maps"

SUBJECT: Final = "portmap"
_LOCK: Final = "/portmap.lock"


class Backend(Value):
    """`remove` gets None if nothing is known; `missing` names the first thing that is not as `add` made it."""

    add: Callable[[Host, Attachment, PortMap], None]
    remove: Callable[[Host, Attachment, PortMap | None], None]
    missing: Callable[[Host, Attachment, PortMap], str]


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


BACKENDS: Final = {
    MAPS: Backend(add=maps.add, remove=maps.remove, missing=maps.missing),
    IPTABLES: Backend(add=add_iptables, remove=remove_iptables, missing=missing_iptables),
    NFTABLES: Backend(add=add_nft, remove=remove_nft, missing=missing_nft),
}


class KeptPorts(Value):
    backend: str
    wanted: PortMap


def keep(call: Call, kept: KeptPorts) -> None:
    record.keep(call, SUBJECT, {"form": kept.backend, **portmapconf.render(kept.wanted)})


def look_up(host: Host, attachment: Attachment) -> KeptPorts | None:
    return _read(record.look_up(host, SUBJECT, attachment))


def all_kept(host: Host) -> Iterator[tuple[Attachment, KeptPorts | None]]:
    """None stands for what is of another boot or torn."""
    for attachment, known in list(record.all_of(host, SUBJECT)):
        yield attachment, _read(known) if known.get("boot") == host.boot_id else None


def undo(host: Host, attachment: Attachment, kept: KeptPorts, *, note: Callable[[str], None]) -> None:
    """Remove what was made, and end the UDP flows that led there. Shared ports go to a sibling."""
    BACKENDS[kept.backend].remove(host, attachment, kept.wanted)
    for sibling in maps.stop_sharing(host, attachment):
        _complete(host, sibling)
    end_flows(host, kept.wanted, of_container=True, note=note)


def undo_known(
    host: Host, attachment: Attachment, known: Object, *, note: Callable[[str], None] = lambda _: None
) -> None:
    """Remove what was made for an attachment that is gone, and forget it; what is of an earlier boot went with that."""
    kept = _read(known) if known.get("boot") == host.boot_id else None
    if kept is not None:
        undo(host, attachment, kept, note=note)
    record.forget(host, SUBJECT, attachment)


def share(host: Host, attachment: Attachment, holder: Element) -> bool:
    for other, kept in all_kept(host):
        sibling = other.container_id == attachment.container_id and other != attachment
        if sibling and kept is not None and is_of(holder, owner_of(other)):
            maps.share(host, attachment, other)
            return True
    return False


def free_if_dead(call: Call, holder: Element) -> bool:
    for attachment, _ in all_kept(call.host):
        if is_of(holder, owner_of(attachment)):
            try:
                return bool(call.build.free(call.host, attachment))
            except (OSError, CniError, JsonError):
                return False
    return False


def put_back(host: Host, attachment: Attachment) -> bool:
    """Returns whether something was missing and all is well now. Skips containers with a request in progress."""
    with host.claim(attachment.container_id) as claimed:
        return claimed and _complete(host, attachment)


def _complete(host: Host, attachment: Attachment) -> bool:
    kept = look_up(host, attachment)
    if kept is None or kept.backend != MAPS:
        return False
    try:
        if not maps.missing(host, attachment, kept.wanted):
            return False
        maps.add(host, attachment, kept.wanted)
        return not maps.missing(host, attachment, kept.wanted)
    except (OSError, CniError, Taken):
        return False  # CHECK says what is wrong


def end_flows(host: Host, wanted: PortMap, *, of_container: bool, note: Callable[[str], None]) -> None:
    """What fails is only noted: such an entry ends by itself half a minute after the last packet."""
    ports = {mapping.host_port for mapping in wanted.conf.mappings if mapping.protocol == "udp"}
    if not ports:
        return
    try:
        for address in wanted.addresses:
            forget_udp(host.netfilter, address.version, ports, leading_to=address.ip if of_container else None)
    except OSError as error:
        note(f"portmap: UDP flows are not ended: {error}")


def _read(known: Object | None) -> KeptPorts | None:
    if known is None or known.get("form") not in BACKENDS:
        return None
    wanted = portmapconf.restore(known)
    return None if wanted is None else KeptPorts(backend=known["form"], wanted=wanted)


def hand_back(host: Host) -> list[Attachment]:
    """Rewrite what is in our maps to upstream's rules, so that its plugin can remove them (settled.md §8).

    A port works all the time: upstream's rules come before ours go. What is in upstream's form already is only
    forgotten. Raises `CniError`; what has been rewritten until then is done.
    """
    rewritten = []
    for attachment, kept in all_kept(host):
        if kept is not None and kept.backend == MAPS:
            BACKENDS[programs.choose()].add(host, attachment, kept.wanted)
            BACKENDS[MAPS].remove(host, attachment, kept.wanted)
            rewritten.append(attachment)
        record.forget(host, SUBJECT, attachment)
    _remove_table(host)
    return rewritten


def _remove_table(host: Host) -> None:
    try:
        nf = host.netfilter
    except OSError:
        return  # no nf_tables, no table
    left = maps.listed(nf)
    if left:
        whose = ", ".join(sorted({element.comment for element in left}))
        hint = "the runtime's GC removes those of pods that are gone"
        raise failure(f"table {TABLE} has ports of which nothing else is known: {whose}", hint)
    if nf.sets(TABLE):
        programs.run_nft([f"delete table {TABLE}"])
