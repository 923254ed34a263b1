"""What firewall has done for each attachment, and whose each address is.

Rules of upstream's form and sources of a zone say only which address they are for. An address that was freed under a
dead pod may be a living one's by the time that the dead one is cleaned up, whose rules must stay: the last ADD with an
address owns what stands for it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

from weft.cni.host.host import Host
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.model.attachment import Attachment
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire.cnivalue import encode

SUBJECT: Final = "firewall"
_OWNERS: Final = "/firewall-owners"


class Done(Value):
    """`zone` is firewalld's."""

    boot: Annotated[str, Key("boot")] = ""
    backend: Annotated[str, Key("backend")] = ""
    zone: Annotated[str, Key("zone")] = ""
    addresses: Annotated[tuple[Ip, ...], Key("addresses")] = ()


def keep(call: Call, done: Done) -> None:
    """Keep it, before anything is done; the addresses are this attachment's from now on."""
    record.keep(call, SUBJECT, encode(done))
    for address in done.addresses:
        call.host.state.replace(_path(address), record.key_of(call.attachment).encode(), parents=0o700)


def look_up(host: Host, attachment: Attachment) -> Done | None:
    known = record.look_up(host, SUBJECT, attachment)
    return None if known is None else record.as_value(Done, known)


def owned(host: Host, attachment: Attachment, addresses: Sequence[Ip]) -> tuple[Ip, ...]:
    """Return the addresses without those that are another attachment's by now."""
    return tuple(address for address in addresses if _owner(host, address) in ("", record.key_of(attachment)))


def forget(host: Host, attachment: Attachment, addresses: Sequence[Ip]) -> None:
    for address in owned(host, attachment, addresses):
        with suppress(FileNotFoundError):
            host.state.unlink(_path(address))
    record.forget(host, SUBJECT, attachment)


def _owner(host: Host, address: Ip) -> str:
    try:
        return host.state.read(_path(address)).decode("ascii", "replace")
    except FileNotFoundError:
        return ""


def _path(address: Ip) -> str:
    return f"{_OWNERS}/{address}"
