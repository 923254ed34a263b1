"""The forms that port maps take on a host, and what is kept of an attachment so that any of them can be undone.

DEL, CHECK and GC go by what was kept, not by what the runtime repeats: some runtimes repeat no mappings.
"""

from collections.abc import Callable, Iterator
from typing import Final

from weft.cni.attachment.owners import owner_of
from weft.cni.plugins.portmap import conf as portmapconf
from weft.cni.plugins.portmap import maps, shared
from weft.cni.plugins.portmap import rules as portmaprules
from weft.cni.plugins.portmap.conf import IPTABLES, NFTABLES
from weft.cni.plugins.portmap.elements import Taken, is_of
from weft.cni.plugins.portmap.ports import PortMap
from weft.cni.sdk import record
from weft.cni.sdk.host import Host
from weft.cni.sdk.startup import Call
from weft.kernel.netfilter.conntrack import forget_udp
from weft.model.attachment import Attachment
from weft.model.kernel.nftset import Element
from weft.model.value import Value
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError, Object

# Our own nf_tables maps; the other forms bear the names of upstream's backends.
MAPS: Final = "maps"

SUBJECT: Final = "portmap"


class Form(Value):
    """One way to have port maps on a host.

    `add` makes an attachment's ports work; `remove` undoes that, with None as all that is known of it; `missing`
    names the first thing that is not as `add` made it.
    """

    add: Callable[[Host, Attachment, PortMap], None]
    remove: Callable[[Host, Attachment, PortMap | None], None]
    missing: Callable[[Host, Attachment, PortMap], str]


FORMS: Final = {
    MAPS: Form(add=maps.add, remove=maps.remove, missing=maps.missing),
    IPTABLES: Form(
        add=portmaprules.add_iptables, remove=portmaprules.remove_iptables, missing=portmaprules.missing_iptables
    ),
    NFTABLES: Form(add=portmaprules.add_nft, remove=portmaprules.remove_nft, missing=portmaprules.missing_nft),
}


class KeptPorts(Value):
    """What is kept of an attachment: the form's name, and what was wanted."""

    form: str
    wanted: PortMap


def keep(call: Call, kept: KeptPorts) -> None:
    """Keep it, before anything is done."""
    record.keep(call, SUBJECT, {"form": kept.form, **portmapconf.render(kept.wanted)})


def look_up(host: Host, attachment: Attachment) -> KeptPorts | None:
    """Return what was kept in this boot, None if nothing or if it cannot be read."""
    return _read(record.look_up(host, SUBJECT, attachment))


def everything(host: Host) -> Iterator[tuple[Attachment, KeptPorts | None]]:
    """Give every attachment of which something is kept, with None for what is of another boot or torn."""
    for attachment, known in list(record.everything(host, SUBJECT)):
        yield attachment, _read(known) if known.get("boot") == host.boot_id else None


def forget(host: Host, attachment: Attachment) -> None:
    """Forget what was kept."""
    record.forget(host, SUBJECT, attachment)


def undo(host: Host, attachment: Attachment, kept: KeptPorts, *, note: Callable[[str], None]) -> None:
    """Remove what was made, and end the UDP flows that led there. Ports that are shared go to who shares them."""
    FORMS[kept.form].remove(host, attachment, kept.wanted)
    for sibling in shared.leave(host, attachment):
        _complete(host, sibling)
    end_flows(host, kept.wanted, of_container=True, note=note)


def undo_known(
    host: Host, attachment: Attachment, known: Object, *, note: Callable[[str], None] = lambda _: None
) -> None:
    """Remove what was made for an attachment that is gone, from its record, and forget it.

    What is of an earlier boot went with that.
    """
    kept = _read(known) if known.get("boot") == host.boot_id else None
    if kept is not None:
        undo(host, attachment, kept, note=note)
    forget(host, attachment)


def share(host: Host, attachment: Attachment, holder: Element) -> bool:
    """Share ports with the attachment that has this element, if it is one of the same container."""
    for other, kept in everything(host):
        sibling = other.container_id == attachment.container_id and other != attachment
        if sibling and kept is not None and is_of(holder, owner_of(other)):
            shared.join(host, attachment, other)
            return True
    return False


def free_if_dead(call: Call, holder: Element) -> bool:
    """Free what the attachment of an element has, if our records prove that it is leaked (settled.md §9)."""
    for attachment, _ in everything(call.host):
        if is_of(holder, owner_of(attachment)):
            try:
                return bool(call.build.free(call.host, attachment))
            except (OSError, CniError, JsonError):
                return False
    return False


def put_back(host: Host, attachment: Attachment) -> bool:
    """Have an attachment's ports again that somebody has deleted from our maps, as a restart of nftables does.

    Returns whether that was so and all is well now. Skips an attachment whose request is running, and ports that now
    belong to another one.
    """
    with host.claim(attachment.container_id) as claimed:
        return claimed and _complete(host, attachment)


def _complete(host: Host, attachment: Attachment) -> bool:
    """Make what is missing of an attachment's ports in our maps. Returns whether that was so and all is well now."""
    kept = look_up(host, attachment)
    if kept is None or kept.form != MAPS:
        return False
    try:
        if not maps.missing(host, attachment, kept.wanted):
            return False
        maps.add(host, attachment, kept.wanted)
        return not maps.missing(host, attachment, kept.wanted)
    except (OSError, CniError, Taken):
        return False  # CHECK says what is wrong


def end_flows(host: Host, wanted: PortMap, *, of_container: bool, note: Callable[[str], None]) -> None:
    """Have UDP flows to the mapped ports begin again; `of_container`: only those that lead to it.

    What fails is only noted: such an entry ends by itself half a minute after the last packet.
    """
    ports = {mapping.host_port for mapping in wanted.conf.mappings if mapping.protocol == "udp"}
    if not ports:
        return
    try:
        for address in wanted.addresses:
            forget_udp(host.netfilter, address.version, ports, leading_to=address.ip if of_container else None)
    except OSError as error:
        note(f"portmap: UDP flows are not ended: {error}")


def _read(known: Object | None) -> KeptPorts | None:
    if known is None or known.get("form") not in FORMS:
        return None
    wanted = portmapconf.restore(known)
    return None if wanted is None else KeptPorts(form=known["form"], wanted=wanted)
