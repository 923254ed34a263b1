"""What the mesh wants to know of the paths to its peers (`weft.cluster.store.Paths`), by ids of leases."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from weft.cluster.mesh.leases import Leasebook
from weft.cluster.store import Echo
from weft.model.lease import WayKind
from weft.model.mesh.effects import Answer, Probe, Sights, TunnelSeen


class MeshPaths:
    """`sees` gets what was seen of them."""

    def __init__(self, book: Leasebook, sees: Callable[[Sights], None]) -> None:
        self._book = book
        self._sees = sees
        self._wanted: dict[tuple[bytes, WayKind], Probe] = {}  # in this order; of two by one path the newer one is sent
        self._keys: dict[str, bytes] = {}  # of those that were asked, by the ids of their leases
        self._fed = asyncio.Event()

    def want(self, probe: Probe) -> None:
        self._wanted[probe.key, probe.kind] = probe
        self._fed.set()

    async def next(self) -> Echo:
        while True:
            await self._fed.wait()
            while self._wanted:
                probe = self._wanted.pop(next(iter(self._wanted)))
                lease = self._book.lease(probe.key)
                if lease is not None:
                    self._keys[lease.id] = probe.key
                    return Echo(lease=lease, kind=probe.kind, size=probe.size)
            self._fed.clear()

    def saw(self, answered: Collection[Echo], active: Collection[str], tunnels: Sequence[TunnelSeen] = ()) -> None:
        keys = self._keys
        answers = (Answer(key=keys[echo.lease.id], kind=echo.kind, size=echo.size) for echo in answered)
        active_keys = frozenset(keys[each] for each in active)
        self._sees(Sights(answered=tuple(answers), active=active_keys, tunnels=tuple(tunnels)))
