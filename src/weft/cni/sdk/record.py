"""What we know of an attachment beyond upstream's files, below the state directory (settled.md §9).

One small file for each attachment and subject: the proof that an address is leaked, the way to the host's end when the
container's namespace is gone, what a plugin must undo whatever the runtime remembers. It says nothing if it is torn,
empty or of another boot.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Final, TypeVar

from weft.cni.host.host import Host
from weft.cni.sdk.startup import Call
from weft.kernel.statefiles import SHORTAGES, Spoilt
from weft.model.attachment import Attachment, Cidr
from weft.model.errors import Problem
from weft.model.kernel.marks import POD_ALIAS
from weft.model.keyed import Key
from weft.model.net import Ip, ip_in
from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, encode

V = TypeVar("V", bound=Value)

# The subjects that others than their plugins look at: that of `Record`, and the addresses that host-local gave.
LINKS: Final = "attachments"
ADDRESSES: Final = "ipam"
_WORDS: Final = 200
_POD: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}")  # Kubernetes has no other names
_KEY: Final = re.compile(r"[0-9a-f]{32}")


class Record(Value):
    """The host's end of an attachment, by name and index, and what else must be undone.

    `masq` is the kind of masquerade rules; `addresses` are filled in only with them. `ipam` is the plugin that gives
    the addresses. `pod` and `uid` are what Kubernetes' runtimes say of it, the first as `default/web`; without `asked`
    they were not looked for.
    """

    veth: Annotated[str, Key("veth")] = ""
    index: Annotated[int, Key("index")] = 0
    masq: Annotated[str, Key("masq")] = ""
    addresses: Annotated[tuple[Cidr, ...], Key("addresses")] = ()
    spoof_check: Annotated[bool, Key("spoofCheck")] = False
    ipam: Annotated[str, Key("ipam")] = ""
    pod: Annotated[str, Key("pod")] = ""
    uid: Annotated[str, Key("uid")] = ""
    asked: Annotated[bool, Key("asked")] = False


@lru_cache(maxsize=64)
def key_of(attachment: Attachment) -> str:
    """Name an attachment in 32 hex digits. One call of a chain asks a dozen times for the same."""
    parts = (attachment.network, attachment.container_id, attachment.ifname)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def alias_of(attachment: Attachment) -> str:
    return f"{POD_ALIAS}{key_of(attachment)}"


def pod_in(args: Mapping[str, str]) -> tuple[str, str]:
    """A pod's name, as `default/web`, and its UID, where CNI_ARGS are those of Kubernetes' runtimes; else empty."""
    pod = f"{args.get('K8S_POD_NAMESPACE', '')}/{args.get('K8S_POD_NAME', '')}"
    return (pod if _POD.fullmatch(pod) else ""), args.get("K8S_POD_UID", "")


def write(call: Call, record: Record) -> None:
    keep(call, LINKS, encode(record))


def read(call: Call) -> Record:
    """Empty if nothing is known."""
    known = look_up(call.host, LINKS, call.attachment)
    return (None if known is None else as_value(Record, known)) or Record()


def as_value(kind: type[V], known: Object) -> V | None:
    try:
        return decode(kind, known)
    except JsonError:
        return None


def keep(call: Call, subject: str, known: Object) -> None:
    keep_of(call.host, subject, call.attachment, known)


def keep_of(host: Host, subject: str, attachment: Attachment, known: Object) -> None:
    """Keep what a plugin knows of an attachment, instead of what it knew before; `since` stays what it was."""
    before = look_up(host, subject, attachment)
    content = {
        "network": attachment.network,
        "container": attachment.container_id,
        "ifname": attachment.ifname,
        "boot": host.boot_id,
        # The inode of the host's namespace: that a link is missing in another one proves nothing.
        "netns": host.namespace[1],
        # In nanoseconds since 1970: a call that began later has not made what the record names, or not all of it.
        "since": time.time_ns() if before is None else since(before),
        **known,
    }
    data, path = json.dumps(content).encode("utf-8", "surrogateescape"), _path(subject, attachment)
    try:
        host.state.replace(path, data, parents=0o700)
    except (IsADirectoryError, NotADirectoryError) as error:
        # Not of our making: it makes room, and the next sweep says so if it is a record.
        host.state.set_aside(path if isinstance(error, IsADirectoryError) else f"/{subject}")
        host.state.replace(path, data, parents=0o700)


def put_back(call: Call, subject: str, before: Object | None) -> None:
    """What has not changed keeps its time (`written`)."""
    if before is None:
        forget(call.host, subject, call.attachment)
    elif before != recall(call.host, subject, call.attachment):
        keep(call, subject, before)


def look_up(host: Host, subject: str, attachment: Attachment) -> Object | None:
    """Of this boot only."""
    found = recall(host, subject, attachment)
    return found if found is not None and found.get("boot") == host.boot_id else None


def recall(host: Host, subject: str, attachment: Attachment) -> Object | None:
    """Return what was kept, in an earlier boot too: `boot` in it tells."""
    return _load(host, _path(subject, attachment))


def is_kept(host: Host, subject: str, attachment: Attachment) -> bool:
    return recall(host, subject, attachment) is not None


def since(known: Object) -> int:
    """When the attachment's first record of this kind was kept, in nanoseconds since 1970; 0 if it does not say so."""
    found = known.get("since")
    return found if isinstance(found, int) else 0


def written(host: Host, subject: str, attachment: Attachment) -> int:
    """In nanoseconds. `FileNotFoundError` if nothing is kept."""
    return host.state.modified(_path(subject, attachment))


def of_key(host: Host, subject: str, key: str) -> Attachment | None:
    """The name may be anybody's words."""
    known = _load(host, f"/{subject}/{key}.json") if _KEY.fullmatch(key) else None
    try:
        return None if known is None else _attachment(known)
    except JsonError:
        return None


def links_of_key(host: Host, key: str) -> Record | None:
    known = _load(host, f"/{LINKS}/{key}.json") if _KEY.fullmatch(key) else None
    return as_value(Record, known) if known and known.get("container") else None


def pod_of_key(host: Host, key: str) -> str:
    found = links_of_key(host, key)
    return "" if found is None else found.pod


def given_to_key(host: Host, key: str) -> tuple[Ip, ...]:
    """The addresses that host-local gave, as far as that is known."""
    known = _load(host, f"/{ADDRESSES}/{key}.json") if _KEY.fullmatch(key) else None
    given = (known or {}).get("addresses")
    found = (ip_in(str(each)) for each in given) if isinstance(given, list) else ()
    return tuple(ip for ip in found if ip is not None)


def all_of(host: Host, subject: str) -> Iterator[tuple[Attachment, Object]]:
    """Those of earlier boots too: `boot` in it tells."""
    for path in _paths(host, subject):
        known = _load(host, path)
        if known is not None:
            with suppress(JsonError):
                yield _attachment(known), known


def forget(host: Host, subject: str, attachment: Attachment) -> None:
    try:
        host.state.unlink(_path(subject, attachment))
    except IsADirectoryError:
        host.state.set_aside(_path(subject, attachment))
    except FileNotFoundError:
        pass


def undo_gone(call: Call, subject: str, undo: Callable[[Host, Attachment, Object], None]) -> list[str]:
    """Return what failed, which stops no other. What cannot be read any more is set aside."""
    problems = []
    for attachment, known in list(all_of(call.host, subject)):
        if not call.is_valid(attachment):
            try:
                undo(call.host, attachment, known)
            except (CniError, JsonError, OSError) as error:
                problems.append(f"{attachment.container_id} {attachment.ifname}: {error}")
    for problem in set_aside_torn(call.host, subject):
        call.note(str(problem))
    return problems


def collect(call: Call, subject: str) -> None:
    for attachment, _ in all_of(call.host, subject):
        if not call.is_valid(attachment):
            forget(call.host, subject, attachment)
    for problem in set_aside_torn(call.host, subject):
        call.note(str(problem))


def set_aside_torn(host: Host, subject: str) -> list[Problem]:
    """Records that cannot be read say nothing, and are never written in place. Returns one `Problem` for all."""
    torn = []
    for path in _paths(host, subject):
        try:
            _attachment(cnijson.load(host.state.read(path)))
        except (JsonError, Spoilt) as error:
            torn.append(f"{path.rpartition('/')[2]}: {error}")
            host.state.set_aside(path)
        except OSError:
            continue
    if not torn:
        return []
    seen = f"{len(torn)} cannot be read, first {torn[0][:_WORDS]}"
    hint = "The latest are kept beside them. Those that lost one are detached without what it said"
    return [Problem(code="STATE-001", where=f"records of {subject}", seen=seen, hint=hint)]


def _attachment(known: Object) -> Attachment:
    if not cnijson.text(known, "container"):
        raise JsonError("it names no container")
    return Attachment(
        network=cnijson.text(known, "network"),
        container_id=cnijson.text(known, "container"),
        ifname=cnijson.text(known, "ifname"),
    )


def _paths(host: Host, subject: str) -> list[str]:
    try:
        return [f"/{subject}/{name}" for name in host.state.list(f"/{subject}") if name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _load(host: Host, path: str) -> Object | None:
    try:
        return cnijson.load(host.state.read(path))
    except JsonError:
        return None
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return None


def _path(subject: str, attachment: Attachment) -> str:
    return f"/{subject}/{key_of(attachment)}.json"
