"""What the mesh wants to know of the paths to its peers (`weft.cluster.store.Paths`), by ids of leases."""

import asyncio
from collections.abc import Callable, Collection

from weft.cluster.mesh.leases import Leasebook
from weft.model.lease import Lease
from weft.model.mesh.effects import Answer, Sights


class MeshPaths:
    """`sees` gets what was seen of them."""

    def __init__(self, book: Leasebook, sees: Callable[[Sights], None]) -> None:
        self._book = book
        self._sees = sees
        self._wanted: dict[bytes, None] = {}  # in this order; one that is there already is asked once
        self._keys: dict[str, bytes] = {}  # of those that were asked, by the ids of their leases
        self._fed = asyncio.Event()

    def want(self, key: bytes) -> None:
        self._wanted[key] = None
        self._fed.set()

    async def next(self) -> Lease:
        while True:
            await self._fed.wait()
            while self._wanted:
                key = next(iter(self._wanted))
                del self._wanted[key]
                lease = self._book.lease(key)
                if lease is not None:
                    self._keys[lease.id] = key
                    return lease
            self._fed.clear()

    def saw(self, answered: Collection[str], active: Collection[str]) -> None:
        keys = self._keys
        sights = Sights(
            answered=tuple(Answer(key=keys[each], kind="vxlan") for each in answered),
            active=frozenset(keys[each] for each in active),
        )
        self._sees(sights)
