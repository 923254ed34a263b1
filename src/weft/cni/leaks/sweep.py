"""Frees what leaked attachments hold: addresses, state files, rules, records (settled.md §9).

Nothing is freed without proof (`desired.leaks`), nor while a request of that container runs. The `undo` of each
`Subject` removes what a plugin made; an attachment that cannot be freed whole keeps its records.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from weft.cni.attachment import masq, veth
from weft.cni.host.files import TEMPORARY, RootedFiles, pauses
from weft.cni.host.host import RETIRED, Host
from weft.cni.plugins.flannel import state as flannelstate
from weft.cni.plugins.hostlocal import store as hostlocalstore
from weft.cni.registry import SUBJECTS, find
from weft.cni.sdk import record
from weft.cni.sdk.record import Record
from weft.cni.sdk.startup import Call, Plugin
from weft.desired import leaks
from weft.desired.leaks import State, Trace, Verdict
from weft.model.attachment import Attachment
from weft.model.errors import Problem
from weft.model.kernel.reported import LinkInfo
from weft.wire import cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError, Object

Records = dict[str, Object]

# The kernel takes some tens of milliseconds to take down a namespace, more where many go at a time.
_CLEANUP_SECONDS: Final = 1.0
# No runtime waits longer for a chain of plugins.
_BEGINNING_NS: Final = 240 * 10**9


def attachments(host: Host, *, network: str = "", data_dir: str = "") -> Iterator[Attachment]:
    """With `network` or `data_dir` only those with an address in it."""
    seen: set[Attachment] = set()
    for subject in (record.ADDRESSES,) if network or data_dir else SUBJECTS:
        for attachment, known in record.all_of(host, subject):
            asked = network in ("", attachment.network) and data_dir in ("", known.get("dataDir"))
            if attachment not in seen and asked:
                seen.add(attachment)
                yield attachment


def judge(host: Host, attachment: Attachment) -> Verdict:
    return _judge(host, attachment, _records(host, attachment))


def unplugged(host: Host, attachment: Attachment) -> str:
    known = record.look_up(host, record.LINKS, attachment)
    links = record.as_value(Record, known) if known is not None else None
    end = _host_end(host, attachment, links.veth, links.index) if links is not None else None
    return end.name if end is not None and not end.master else ""


def free(host: Host, attachment: Attachment) -> str:
    """Return the proof, empty if nothing was done. Raises `OSError`, `CniError` or `JsonError`."""
    with host.claim(attachment.container_id) as claimed:
        records = _records(host, attachment) if claimed else {}
        return _free(host, attachment, records, _judge(host, attachment, records))


def free_own(host: Host, attachment: Attachment) -> str:
    """Its host end goes a moment after its namespace: where the new one lacks the interface, that is waited for."""
    # Without these two nothing is proved; mostly there is none, and each look costs every ADD.
    if not any(record.is_kept(host, subject, attachment) for subject in (record.LINKS, record.ADDRESSES)):
        return ""
    records = _records(host, attachment)
    for pause in pauses(_CLEANUP_SECONDS):
        verdict = _judge(host, attachment, records)
        again = host.container is not None and host.container.rtnl.link(attachment.ifname) is None
        if verdict.state is not State.ATTACHED or not again:
            return _free(host, attachment, records, verdict)
        time.sleep(pause)
    return ""


def undo_own(host: Host, attachment: Attachment) -> None:
    """Undo an attachment that a chain of plugins has just begun, at which a later one fails; the turn is the caller's.

    Left to DEL is what we cannot undo (an IPAM program of others has another configuration than the later plugin), and
    what was made too long ago.
    """
    records = _records(host, attachment)
    found = records.get(record.LINKS, {})
    links = record.as_value(Record, found) if found.get("boot") == host.boot_id else None
    if links is None or (links.ipam and find(links.ipam) is None):
        return
    if abs(time.time_ns() - record.written(host, record.LINKS, attachment)) > _BEGINNING_NS:
        return
    end = _host_end(host, attachment, links.veth, links.index)
    if end is not None:
        host.rtnl.delete_link(end.index)
    _free(host, attachment, records, _judge(host, attachment, records))


def is_made_since(plugin: Plugin, call: Call, moment: int) -> bool:
    """Tell whether a plugin has made its part of an attachment since a moment, in nanoseconds since 1970.

    Our records prove it: of the first plugin of a chain also those of its delegates, links and address. An interface
    without a record of its links is ours only if nothing was done with it, or if there was none before. A plugin that
    keeps nothing has made nothing that its DEL must spare.
    """
    if plugin.keeps is None:
        return True
    chained = cnijson.value_of(call.config, "prevResult")
    subjects = {plugin.keeps.name} if chained else {plugin.keeps.name, record.LINKS, record.ADDRESSES}
    found = {subject: record.recall(call.host, subject, call.attachment) for subject in subjects}
    records = {subject: known for subject, known in found.items() if known is not None}
    if any(record.since(known) < moment for known in records.values()):
        return False
    container = None if chained or record.LINKS in records else call.host.container
    link = container.rtnl.link(call.ifname) if container is not None else None
    if container is None or link is None:
        return bool(records)
    first = records.get(plugin.keeps.name, {}).get("first")
    return first is True or veth.is_unused(call, container, link)


def _free(host: Host, attachment: Attachment, records: Records, verdict: Verdict) -> str:
    if verdict.state is not State.LEAKED:
        return ""
    given = records.get(record.ADDRESSES)
    anothers = given is not None and hostlocalstore.is_anothers(host, attachment, given)
    for subject, known in records.items():
        if not anothers:
            SUBJECTS[subject].undo(host, attachment, known)
    for subject in reversed(records):
        record.forget(host, subject, attachment)
    return "" if anothers else verdict.proof


def free_network(host: Host, network: str) -> int:
    """Returns how many attachments that were; those that resist stay."""
    freed = 0
    # A full range is mostly full of what lives: one look at all links spares a closer one at each of them.
    alive = {link.alias for link in host.rtnl.links()}
    for attachment in attachments(host, network=network):
        if record.alias_of(attachment) in alive:
            continue
        try:
            freed += bool(free(host, attachment))
        except (OSError, CniError, JsonError):
            continue
    return freed


def put_back_masquerade(host: Host, attachment: Attachment) -> bool:
    """Returns whether that was so and is done. Skips one whose request is running."""
    with host.claim(attachment.container_id) as claimed:
        found = record.look_up(host, record.LINKS, attachment) if claimed else None
        links = None if found is None else record.as_value(Record, found)
        if links is None or not links.masq:
            return False
        try:
            if all(masq.is_there(attachment, links.masq, each) for each in links.addresses):
                return False
            masq.add(attachment, links.masq, links.addresses)
        except CniError:
            return False  # CHECK says what is wrong
    return True


def set_aside_torn(host: Host) -> list[Problem]:
    return [problem for subject in SUBJECTS for problem in record.set_aside_torn(host, subject)]


def tidy(host: Host, seen: frozenset[str]) -> frozenset[str]:
    """Return what the next call must get as `seen`: a file that was there at an earlier look has lost its writer."""
    found = set()
    for files, path in _temporaries(host):
        with suppress(FileNotFoundError):
            if path in seen:
                files.unlink(path)
            else:
                found.add(path)
    return frozenset(found)


def _temporaries(host: Host) -> Iterator[tuple[RootedFiles, str]]:
    places = {(host.state, f"/{subject}") for subject in SUBJECTS}
    for _, known in record.all_of(host, flannelstate.SUBJECT):
        places.add((host.files, str(known.get("path")).rpartition("/")[0]))
    for files, directory in places:
        with suppress(OSError):
            for name in files.list(directory):
                if name.startswith(TEMPORARY):
                    yield files, f"{directory}/{name}"


def _records(host: Host, attachment: Attachment) -> Records:
    found = {subject: record.recall(host, subject, attachment) for subject in SUBJECTS}
    return {subject: known for subject, known in found.items() if known is not None}


def _judge(host: Host, attachment: Attachment, records: Records) -> Verdict:
    def has_host_end(name: str, index: int) -> bool:
        return _host_end(host, attachment, name, index) is not None

    traces = [_trace(subject, known) for subject, known in records.items()]
    return leaks.judge(traces, boot=host.boot_id, netns=host.namespace[1], has_host_end=has_host_end)


def _host_end(host: Host, attachment: Attachment, name: str, index: int) -> LinkInfo | None:
    """Find it by index, and by name or alias: people rename links, and numbers may come again."""
    alias = record.alias_of(attachment)
    link = host.rtnl.link(index)
    if link is not None and (link.name == name or link.alias in (alias, RETIRED)):
        return link
    named = host.rtnl.link(name)
    return named if named is not None and named.alias == alias else None


def _trace(subject: str, known: Object) -> Trace:
    links = record.as_value(Record, known) if subject == record.LINKS else None
    netns = known.get("netns")
    return Trace(
        boot=str(known.get("boot")),
        netns=netns if isinstance(netns, int) else 0,
        veth=links.veth if links else "",
        index=links.index if links else 0,
    )
