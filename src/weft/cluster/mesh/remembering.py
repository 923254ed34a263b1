"""Writes others' leases to disk before the daemon hears of them, so that no later run takes a served peer for gone.

Ways may be lost: the daemon hears of them at once, and they are written late.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from weft.cluster.mesh.leases import Leasebook
from weft.cluster.mesh.saving import Saving
from weft.mesh.core import Core
from weft.model.mesh.effects import Agreed, Hop, Leases, PathFound, Recalled
from weft.model.mesh.records import Member

_PAUSE_SECONDS: Final = 0.1  # between two writes of leases: of many that come, most come together
_SOON_SECONDS: Final = 0.2  # until ways are written: where one changes, others do so at once
_LATE_SECONDS: Final = 5.0  # between two writes of ways


class Remembering:
    """`agreed`: the book has all leases that a neighbour knows of. `whole`: it had at least those of the last run."""

    def __init__(
        self, saving: Saving, book: Leasebook, tell: Callable[[], None], kept: Callable[[], Awaitable[None]]
    ) -> None:
        """`kept` waits until mesh.json has all that the core wants there."""
        self.agreed = False
        self.whole = False
        self._saving = saving
        self._book = book
        self._tell = tell
        self._kept = kept
        self._untold: list[Leases | Agreed | Hop] = []
        self._written: dict[bytes, Member] = {}  # the leases that the disk knows
        self._fed, self._moved = asyncio.Event(), asyncio.Event()

    def clear(self) -> None:
        self.agreed = False
        self._untold.clear()
        self._written = {}

    async def recall(self) -> tuple[Recalled | None, Sequence[PathFound]]:
        recalled = await self._saving.recalled()
        self.whole = recalled is not None
        return recalled, await self._saving.paths()

    def begun(self, core: Core) -> None:
        """The leases that a core has at its start come from the disk."""
        self._written = dict(core.leases)

    def take(self, effect: Leases | Agreed | Hop) -> None:
        if isinstance(effect, Hop):
            self._moved.set()
            if not any(isinstance(each, Leases) and effect.key in each.gone for each in self._untold):
                self._book.go(effect)
                self._tell()
                return  # no end of an earlier lease of that peer waits to be told first
        self._untold.append(effect)
        self._fed.set()

    async def run(self, core: Core) -> NoReturn:
        while True:
            await self._fed.wait()
            self._fed.clear()
            count = len(self._untold)
            news = [each for effect in self._untold if isinstance(effect, Leases) for each in effect.changed]
            writes = any(self._written.get(member.key) != member for member in news)
            if writes:
                await self._kept()  # of what is on its way to mesh.json a later run must know nothing from elsewhere
                count, leases = len(self._untold), dict(core.leases)
                written = await self._saving.remember(core.recalled)
                self._written = leases if written else self._written
            self._carry_out(count)
            if writes:
                await asyncio.sleep(_PAUSE_SECONDS)

    def _carry_out(self, count: int) -> None:
        for effect in self._untold[:count]:
            if isinstance(effect, Leases):
                self._book.take(effect)
            elif isinstance(effect, Hop):
                self._book.go(effect)
            else:
                self.agreed = effect.so
        del self._untold[:count]
        self._tell()

    async def run_late(self, core: Core) -> NoReturn:
        while True:
            await self._moved.wait()
            await asyncio.sleep(_SOON_SECONDS)
            self._moved.clear()
            await self._saving.remember_paths(tuple(core.paths))
            await asyncio.sleep(_LATE_SECONDS)
