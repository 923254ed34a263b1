"""What planes tell of peers beside their objects, when somebody asks: packets counted, and WireGuard's peers."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from weft.desired.tunnels.wireguard import LivePeer
from weft.model.kernel.objects import Key
from weft.model.value import Value


class Traffic(Value, gc=False):
    """Counts since the carrier began, and how many seconds ago the peer was heard of."""

    sent: int | None = None
    received: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    heard: float | None = None


def together(parts: Sequence[Traffic]) -> Traffic:
    """Add up the objects of a peer, one for each family."""

    def total(counts: Iterable[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    return Traffic(
        sent=total(part.sent for part in parts),
        received=total(part.received for part in parts),
        sent_bytes=total(part.sent_bytes for part in parts),
        received_bytes=total(part.received_bytes for part in parts),
        heard=min((part.heard for part in parts if part.heard is not None), default=None),
    )


@runtime_checkable
class CountsPeers(Protocol):
    async def traffic(self) -> Mapping[Key, Traffic]:
        """By the keys of objects that lead to peers, nothing twice. Raises `OSError`."""
        ...


async def ask(planes: Iterable[object]) -> dict[Key, Traffic]:
    """Leaves out a plane that cannot answer now."""
    told: dict[Key, Traffic] = {}
    for plane in planes:
        if isinstance(plane, CountsPeers):
            with suppress(OSError):
                told.update(await plane.traffic())
    return told


@runtime_checkable
class SeesTunnels(Protocol):
    async def tunnels(self) -> Mapping[str, LivePeer]:
        """By their keys, in base64; none while there is no device. Raises `OSError`."""
        ...


async def tunnels_of(planes: Iterable[object]) -> Mapping[str, LivePeer]:
    """As they are now, by the first plane that sees any: a plane's own look may be seconds old. Raises `OSError`."""
    for plane in planes:
        if isinstance(plane, SeesTunnels):
            return await plane.tunnels()
    return {}
