"""What we know of an attachment beyond upstream's files, below the state directory (decisions.md §9).

One small file for each attachment: the proof by which an address may one day be called leaked, and the way to the
host's end when the container's namespace is gone. It lives as long as the attachment, at most as long as the boot;
one that is torn, empty or of another boot says nothing.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from weft.cni.skel import Call
from weft.model.attachment import Cidr
from weft.model.objects import ALIAS
from weft.wire import cnijson

_DIRECTORY: Final = "/attachments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The host's end of an attachment, by name and index, and what else must be undone.

    `masq` is the kind of masquerade rules, empty if none; `addresses` are filled in only with them.
    """

    veth: str
    index: int
    masq: str = ""
    addresses: tuple[Cidr, ...] = ()


def key_of(call: Call) -> str:
    """Name an attachment: what §1.1 identifies it by, and its network."""
    parts = (call.network, call.container_id, call.ifname)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def alias_of(call: Call) -> str:
    """Return the alias of the attachment's host end."""
    return f"{ALIAS}pod:{key_of(call)}"


def write(call: Call, record: Record) -> None:
    """Keep what is known of this attachment."""
    content = {
        "network": call.network,
        "container": call.container_id,
        "ifname": call.ifname,
        "boot": call.host.boot_id,
        "veth": record.veth,
        "index": record.index,
        "masq": record.masq,
        "addresses": _texts(record.addresses),
    }
    data = json.dumps(content).encode("utf-8", "surrogateescape")
    call.host.state.replace(_path(call), data, parents=0o700)


def read(call: Call) -> Record | None:
    """Return what is known of this attachment in this boot."""
    try:
        content = cnijson.load(call.host.state.read(_path(call)))
        if cnijson.text(content, "boot") != call.host.boot_id:
            return None
        return Record(
            veth=cnijson.text(content, "veth"),
            index=cnijson.integer(content, "index"),
            masq=cnijson.text(content, "masq"),
            addresses=tuple(map(cnijson.parse_cidr, cnijson.items(content, "addresses", cnijson.as_text))),
        )
    except (FileNotFoundError, ValueError):
        return None


def remove(call: Call) -> None:
    """Forget the attachment."""
    with suppress(FileNotFoundError):
        call.host.state.unlink(_path(call))


def _texts(addresses: Sequence[Cidr]) -> list[str]:
    return [str(address) for address in addresses]


def _path(call: Call) -> str:
    return f"{_DIRECTORY}/{key_of(call)}.json"
