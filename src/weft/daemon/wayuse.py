"""With which peers pods speak now: by whose forwarding entry or WireGuard session packets go that are no echoes."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from weft.desired.tunnels.wireguard import LivePeer
from weft.model.lease import Lease, WayKind
from weft.model.net import Ip

_LATELY: Final = 3.0  # seconds that a path counts as in use
_SAME: Final = 0.05  # seconds between an echo and the packet that it was
_HEADERS: Final = 32  # WireGuard's, and its tag
_PADDED: Final = 16  # bytes, to a multiple of which it fills a packet up
_LEAST: Final = 80  # bytes of the smallest packet of a pod in there; a keep-alive has fewer


class Use:
    """All times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._echoed: dict[str, float] = {}  # by id, when the last echo of either side went by vxlan
        self._sent: dict[str, int] = {}  # by id, bytes of echoes that have gone by WireGuard
        self._surplus: dict[str, tuple[int, int]] = {}  # … and what has gone there beside, at the last two looks
        self._used: dict[str, float] = {}  # by id, when a pod's packet was seen last

    def echoed(self, lease: Lease, kind: WayKind, now: float, *, sent: int = 0) -> None:
        """One has gone by, for which this node has sent a packet of so many bytes."""
        if kind == "vxlan":
            self._echoed[lease.id] = now
        elif sent:
            self._sent[lease.id] = self._sent.get(lease.id, 0) + _HEADERS + -(-sent // _PADDED) * _PADDED

    def look(
        self, leases: Iterable[Lease], used: Mapping[Ip, float], tunnels: Mapping[str, LivePeer], now: float
    ) -> set[str]:
        """The ids of those whose paths are in use, by forwarding entries' ages and by WireGuard's counters."""
        for lease in leases:
            echoed = self._echoed.get(lease.id, -inf) + _SAME
            if any(remote in used and now - used[remote] > echoed for remote in lease.remotes):
                self._used[lease.id] = now
            tunnel = None if lease.way is None else lease.way.tunnel
            live = None if tunnel is None else tunnels.get(tunnel.key)
            if live is not None and self._carries(lease.id, live):
                self._used[lease.id] = now
        return {name for name, when in self._used.items() if now < when + _LATELY}

    def _carries(self, name: str, live: LivePeer) -> bool:
        """Two looks in a row have to say so: WireGuard may count an echo sooner than we do, or later."""
        surplus = live.sent - self._sent.get(name, 0)
        before, last = self._surplus.get(name, (surplus, surplus))
        self._surplus[name] = (last, surplus)
        return surplus - max(before, last) >= _LEAST
