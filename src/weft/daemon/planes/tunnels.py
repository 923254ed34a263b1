"""WireGuard's peers as they are at this moment, for a store that finds ways: a plane's own look may be seconds old."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from weft.desired.tunnels.wireguard import LivePeer


@runtime_checkable
class SeesTunnels(Protocol):
    async def tunnels(self) -> Mapping[str, LivePeer]:
        """By their keys, in base64; none while there is no device. Raises `OSError`."""
        ...


async def ask(planes: Iterable[object]) -> Mapping[str, LivePeer]:
    """Of the first plane that sees them. Raises `OSError`."""
    for plane in planes:
        if isinstance(plane, SeesTunnels):
            return await plane.tunnels()
    return {}
