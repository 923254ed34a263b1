"""flannel's state files: what each delegate got, and whose file is whose (flannel.md §10.5, settled.md §9).

A container's first attachment has upstream's file `<id>`, a further one `<id>.<hash of network and interface>`. Our
record says which, and is written before the file. Without a record a file is upstream's.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from weft.cni.host.files import TEMPORARY
from weft.cni.host.host import Host
from weft.cni.plugins.flannel.conf import DeleteConf
from weft.cni.plugins.hostlocal.plugin import NAME as HOST_LOCAL
from weft.cni.plugins.static import NAME as STATIC
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.model.attachment import Attachment
from weft.wire import cni, cnijson
from weft.wire.cnijson import JsonError, Object

SUBJECT: Final = "flannel"

_HASH_HEX: Final = 16
# No writer takes so long.
_BEING_WRITTEN_NS: Final = 60 * 10**9


def choose(call: Call, conf: DeleteConf) -> tuple[str, bytes | None]:
    first = f"{conf.data_dir}/{call.container_id}"
    before = read(call.host, first)
    if before is None or _recorded(call.host, call.attachment) == first:
        return first, before
    own = _own_path(conf, call.attachment)
    return own, read(call.host, own)


def find(call: Call, conf: DeleteConf) -> tuple[str, bytes] | None:
    # By our record too: `dataDir` may have been changed since ADD.
    for own in (_own_path(conf, call.attachment), _recorded(call.host, call.attachment)):
        content = read(call.host, own) if own else None
        if content is not None:
            return own, content
    first = f"{conf.data_dir}/{call.container_id}"
    content = read(call.host, first)
    if content is None or _is_anothers(call, first) or _network(content) not in (None, call.network):
        return None
    return first, content


def read(host: Host, path: str) -> bytes | None:
    try:
        return host.files.read(path)
    except FileNotFoundError:
        return None


def drop(call: Call, path: str) -> None:
    with suppress(FileNotFoundError):
        call.host.files.unlink(path)
    record.forget(call.host, SUBJECT, call.attachment)


def stale(call: Call, conf: DeleteConf) -> Iterator[tuple[str, bytes]]:
    """An upstream file does not tell its interface: it stays while any attachment of the container is valid."""
    valid = cni.valid_attachments(call.config)
    containers = {container_id for container_id, _ in valid}
    kept = {
        _own_path(conf, Attachment(network=call.network, container_id=container_id, ifname=ifname))
        for container_id, ifname in valid
    }
    holders = {known.get("path"): attachment for attachment, known in record.all_of(call.host, SUBJECT)}
    for name, path, content in _files(call.host, conf):
        holder = holders.get(path)
        network = _network(content)
        if holder is not None and network in (None, holder.network):
            gone = not call.is_valid(holder)
        else:
            gone = network == call.network and name not in containers and path not in kept
        if gone:
            yield path, content


def is_used(call: Call, conf: DeleteConf) -> bool:
    """True if an attachment of this network has state that is not of an earlier boot."""
    old = {
        known.get("path") for _, known in record.all_of(call.host, SUBJECT) if known.get("boot") != call.host.boot_id
    }
    return any(path not in old and _network(content) == call.network for _, path, content in _files(call.host, conf))


def undo(host: Host, attachment: Attachment, known: Object) -> None:
    """Remove the state file of a leaked attachment, unless a plugin that is not ours needs it for its own DEL.

    `FileNotFoundError` if the directory cannot be seen. `JsonError` if it is torn and new: upstream writes in place, so
    it may be whole in a moment, and only our record tells whose it is.
    """
    path = cnijson.text(known, "path")
    content = read(host, path)
    if content is None:
        host.files.stamp(path.rpartition("/")[0])
        return
    network = _network(content)
    # That of an earlier boot is written no more; and the clock may have been set back.
    alive = known.get("boot") == host.boot_id
    if network is None and alive and abs(time.time_ns() - host.files.modified(path)) < _BEING_WRITTEN_NS:
        raise JsonError(f"{path} is no configuration, and may still be written")
    if network is None or (network == attachment.network and _addresses_are_ours(content)):
        with suppress(FileNotFoundError):
            host.files.unlink(path)


def _addresses_are_ours(content: bytes) -> bool:
    try:
        ipam = cnijson.text(cnijson.member(cnijson.load(content), "ipam"), "type")
    except JsonError:
        return False
    return ipam in ("", HOST_LOCAL, STATIC)


def _files(host: Host, conf: DeleteConf) -> Iterator[tuple[str, str, bytes]]:
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = host.files.list(conf.data_dir)
    for name in names:
        path = f"{conf.data_dir}/{name}"
        with suppress(OSError):  # gone meanwhile, or a directory
            if not name.startswith(TEMPORARY):
                yield name, path, host.files.read(path)


def _network(content: bytes) -> str | None:
    """None if it is no configuration."""
    try:
        return cnijson.text(cnijson.load(content), "name")
    except JsonError:
        return None


def _own_path(conf: DeleteConf, attachment: Attachment) -> str:
    what = f"{attachment.network}\0{attachment.ifname}".encode("utf-8", "surrogateescape")
    return f"{conf.data_dir}/{attachment.container_id}.{hashlib.sha256(what).hexdigest()[:_HASH_HEX]}"


def _recorded(host: Host, attachment: Attachment) -> str:
    known = record.recall(host, SUBJECT, attachment)
    return "" if known is None else str(known.get("path"))


def _is_anothers(call: Call, first: str) -> bool:
    if _recorded(call.host, call.attachment) == first:
        return False
    return any(
        known.get("path") == first and attachment != call.attachment
        for attachment, known in record.all_of(call.host, SUBJECT)
    )
