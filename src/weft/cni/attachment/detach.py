"""Taking attachments down: DEL of one, GC of those that are gone (cni.md §3.7, §3.9).

An attachment is made useless before its address is free for others, and our record of it is forgotten last.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from weft.cni.attachment import interface, masq, spoofcheck, veth
from weft.cni.attachment.conf import MASQ_KINDS, DeleteConf
from weft.cni.host.host import Host
from weft.cni.sdk import delegate, record
from weft.cni.sdk.record import Record
from weft.cni.sdk.startup import Call, Subject
from weft.model.attachment import Attachment, Cidr
from weft.model.kernel.reported import LinkInfo
from weft.wire import cni
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import Object


def delete(call: Call, read: Callable[[Object], DeleteConf]) -> None:
    """Undo an attachment, also without its namespace. May be repeated."""
    kept = call.read_for_delete(read, otherwise=read({}))
    known = record.read(call)
    link = veth.own_end(call)
    masquerade = kept.masquerades or bool(known.masq)
    addresses = _addresses(call, link, known) if masquerade else ()
    peer = veth.peer_of(call.host.rtnl, link) if link is not None else None
    interface.disable(call, link, peer.index if peer else veth.recorded_end(call.host.rtnl, call.attachment, known))
    if known.masq:
        masq.remove(call.attachment, known.masq, addresses)
    elif masquerade:
        for kind in MASQ_KINDS:
            with _noted(call, kind):
                masq.remove(call.attachment, kind, addresses)
    if known.spoof_check:
        spoofcheck.remove([call.attachment])
    elif kept.spoof_check:
        with _noted(call, "nft"):
            spoofcheck.remove([call.attachment])
    _release(call.host, call.attachment)
    ipam_type = kept.ipam_type or known.ipam
    if ipam_type:
        delegate.delete_addresses(call, ipam_type)
    record.forget(call.host, record.LINKS, call.attachment)


def collect(call: Call, read: Callable[[Object], DeleteConf]) -> None:
    """A failure stops no other step."""
    kept = read(call.config)
    cni.valid_attachments(call.config)  # without its list a GC is refused before anything is touched
    gone: dict[Attachment, Record] = {}
    for attachment, found in record.all_of(call.host, record.LINKS):
        if not call.is_valid(attachment):  # of an earlier boot only the record is left
            links = record.as_value(Record, found) if found.get("boot") == call.host.boot_id else None
            gone[attachment] = links or Record()
    problems: list[CniError] = []
    for attachment, known in gone.items():
        with _gathered(problems):
            interface.disable(call, None, veth.recorded_end(call.host.rtnl, attachment, known))
        _release(call.host, attachment)
    for kind in MASQ_KINDS:
        recorded = any(known.masq == kind for known in gone.values())
        if recorded or kept.masquerades:
            # A kind that made none of these rules and does not work here has none: that is no problem.
            with _gathered(problems) if recorded else _noted(call, kind):
                masq.collect(call, kind, {attachment: known.addresses for attachment, known in gone.items()})
    checked = {attachment for attachment, known in gone.items() if known.spoof_check}
    if kept.spoof_check:
        # Our record of the links may be torn, and the one of the addresses not.
        given = (attachment for attachment, _ in record.all_of(call.host, record.ADDRESSES))
        checked.update(attachment for attachment in given if not call.is_valid(attachment))
    if checked:
        with _gathered(problems):
            spoofcheck.remove(checked)
    if kept.ipam_type:
        with _gathered(problems):
            delegate.ask(call, kept.ipam_type, "GC")
    if problems:
        raise problems[0] if len(problems) == 1 else failure("; ".join(map(str, problems)))
    record.collect(call, record.LINKS)


def _undo_leaked(host: Host, attachment: Attachment, known: Object) -> None:
    """Those of an earlier boot went with it."""
    _release(host, attachment)
    links = record.as_value(Record, known)
    if links is None or known.get("boot") != host.boot_id:
        return
    if links.masq:
        masq.remove(attachment, links.masq, links.addresses)
    if links.spoof_check:
        spoofcheck.remove([attachment])


# What a plugin keeps that makes a pair of links.
LINKS: Final = Subject(name=record.LINKS, undo=_undo_leaked)


def _release(host: Host, attachment: Attachment) -> None:
    if host.gate is not None:
        host.gate.release(record.key_of(attachment))


def _addresses(call: Call, link: LinkInfo | None, known: Record) -> tuple[Cidr, ...]:
    if link is not None and call.host.container is not None:
        seen = interface.addresses_on(call.host.container.rtnl, link.index)
        return tuple(address for address in seen if not address.ip.is_link_local)
    if known.addresses:
        return known.addresses
    previous = call.previous_if_any()
    return tuple(ip.address for ip in previous.ips) if previous else ()


@contextmanager
def _gathered(problems: list[CniError]) -> Iterator[None]:
    try:
        yield
    except CniError as error:
        problems.append(error)
    except OSError as error:
        problems.append(failure(str(error)))


@contextmanager
def _noted(call: Call, kind: str) -> Iterator[None]:
    """A kind that does not work here has made no rules."""
    try:
        yield
    except CniError as error:
        call.note(f"{call.request.plugin}: no {kind} rules looked at: {error}")
