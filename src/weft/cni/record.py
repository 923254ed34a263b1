"""What we know of an attachment beyond upstream's files, below the state directory (decisions.md §9).

One small file for each attachment and subject: the proof by which an address may one day be called leaked, the way
to the host's end when the container's namespace is gone, what a plugin must undo whatever the runtime remembers. It
lives as long as the attachment, at most as long as the boot; one that is torn, empty or of another boot says nothing.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from weft.cni.host import Host
from weft.cni.skel import Call
from weft.model.attachment import Attachment, Cidr
from weft.model.marks import ALIAS
from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object

# The subject of `Record`.
LINKS: Final = "attachments"


class Record(Value):
    """The host's end of an attachment, by name and index, and what else must be undone.

    `masq` is the kind of masquerade rules, empty if none; `addresses` are filled in only with them. `spoof_check` says
    that there are rules against spoofed MACs.
    """

    veth: str
    index: int
    masq: str = ""
    addresses: tuple[Cidr, ...] = ()
    spoof_check: bool = False


@lru_cache(maxsize=64)
def key_of(attachment: Attachment) -> str:
    """Name an attachment in 32 hex digits. One call of a chain asks a dozen times for the same."""
    parts = (attachment.network, attachment.container_id, attachment.ifname)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def alias_of(attachment: Attachment) -> str:
    """Return the alias of the attachment's host end."""
    return f"{ALIAS}pod:{key_of(attachment)}"


def write(call: Call, record: Record) -> None:
    """Keep what is known of this attachment's links."""
    known = {
        "veth": record.veth,
        "index": record.index,
        "masq": record.masq,
        "addresses": [str(address) for address in record.addresses],
        "spoofCheck": record.spoof_check,
    }
    keep(call, LINKS, known)


def read(call: Call) -> Record | None:
    """Return what is known of this attachment's links in this boot."""
    known = look_up(call.host, LINKS, call.attachment)
    return None if known is None else parse(known)


def remove(call: Call) -> None:
    """Forget the attachment's links."""
    forget(call.host, LINKS, call.attachment)


def parse(known: Object) -> Record | None:
    """Read what `write` has kept; None if it is torn."""
    try:
        return Record(
            veth=cnijson.text(known, "veth"),
            index=cnijson.integer(known, "index"),
            masq=cnijson.text(known, "masq"),
            addresses=tuple(map(cnijson.parse_cidr, cnijson.items(known, "addresses", cnijson.as_text))),
            spoof_check=cnijson.flag(known, "spoofCheck"),
        )
    except JsonError:
        return None


def keep(call: Call, subject: str, known: Object) -> None:
    """Keep what a plugin knows of this attachment, instead of what it knew before."""
    keep_of(call.host, subject, call.attachment, known)


def keep_of(host: Host, subject: str, attachment: Attachment, known: Object) -> None:
    """Keep what a plugin knows of an attachment that need not be the call's."""
    content = {
        "network": attachment.network,
        "container": attachment.container_id,
        "ifname": attachment.ifname,
        "boot": host.boot_id,
        # The inode of the host's namespace: that a link is missing in another one proves nothing.
        "netns": host.namespace[1],
        **known,
    }
    data = json.dumps(content).encode("utf-8", "surrogateescape")
    host.state.replace(_path(subject, attachment), data, parents=0o700)


def look_up(host: Host, subject: str, attachment: Attachment) -> Object | None:
    """Return what was kept of an attachment in this boot, None if nothing or if it cannot be read."""
    found = recall(host, subject, attachment)
    return found if found is not None and found.get("boot") == host.boot_id else None


def recall(host: Host, subject: str, attachment: Attachment) -> Object | None:
    """Return what was kept of an attachment, in an earlier boot too: `boot` in it tells."""
    return _load(host, _path(subject, attachment))


def written(host: Host, subject: str, attachment: Attachment) -> int:
    """Return when something was kept of an attachment last, in nanoseconds. `FileNotFoundError` if nothing is."""
    return host.state.modified(_path(subject, attachment))


def everything(host: Host, subject: str) -> Iterator[tuple[Attachment, Object]]:
    """Give all that is kept of a subject, that of earlier boots too: `boot` in it tells."""
    for path in _paths(host, subject):
        known = _load(host, path)
        if known is not None:
            with suppress(JsonError):
                yield _attachment(known), known


def forget(host: Host, subject: str, attachment: Attachment) -> None:
    """Forget what was kept of an attachment."""
    with suppress(FileNotFoundError):
        host.state.unlink(_path(subject, attachment))


def collect(call: Call, subject: str) -> None:
    """Forget, in GC, what was kept of attachments that are not valid, and what cannot be read any more."""
    for attachment, _ in everything(call.host, subject):
        if not call.is_valid(attachment):
            forget(call.host, subject, attachment)
    discard_torn(call.host, subject)


def discard_torn(host: Host, subject: str) -> None:
    """Remove records that cannot be read: they say nothing, and are never written in place."""
    for path in _paths(host, subject):
        try:
            _attachment(cnijson.load(host.state.read(path)))
        except JsonError:
            with suppress(FileNotFoundError):
                host.state.unlink(path)
        except FileNotFoundError:
            continue


def _attachment(known: Object) -> Attachment:
    return Attachment(
        network=cnijson.text(known, "network"),
        container_id=cnijson.text(known, "container"),
        ifname=cnijson.text(known, "ifname"),
    )


def _paths(host: Host, subject: str) -> list[str]:
    try:
        return [f"/{subject}/{name}" for name in host.state.list(f"/{subject}") if name.endswith(".json")]
    except FileNotFoundError:
        return []


def _load(host: Host, path: str) -> Object | None:
    try:
        return cnijson.load(host.state.read(path))
    except (FileNotFoundError, JsonError):
        return None


def _path(subject: str, attachment: Attachment) -> str:
    return f"/{subject}/{key_of(attachment)}.json"
