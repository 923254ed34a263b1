"""What this node is and owns goes to disk before anybody hears of it, however long that takes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft.beside.tasks import awaited
from weft.beside.threads import beside
from weft.cluster.mesh.disk import Disk, Saved
from weft.model.errors import Problem, Unavailable
from weft.model.mesh.effects import PathFound, Recalled

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0  # for a disk that does not answer, or does not take what has to be kept


class Saving:
    """`unwritten` is why the disk does not take what has to be kept now."""

    def __init__(self, disk: Disk) -> None:
        self.unwritten: Problem | None = None
        self._disk = disk
        self._writing = set[asyncio.Task[None]]()

    async def load(self) -> Saved | None:
        if self._writing:  # a run that was cancelled; what it writes must not come after what we write
            await asyncio.wait(self._writing)
        said = ""
        while True:
            try:
                return await beside(self._disk.load)
            except Unavailable as error:
                if str(error) != said:
                    log.warning("%s", error)
                said = str(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def keep(self, saved: Saved) -> None:
        while True:
            try:
                await self._write(partial(self._disk.keep, saved))
            except OSError as error:
                seen = f"mesh.json cannot be written: {error.strerror}"
                hint = "Nothing is given to others, and nothing taken, before that; packets flow"
                problem = Problem(code="STATE-002", where="mesh", seen=seen, hint=hint)
                if problem != self.unwritten:
                    log.warning("%s", problem)
                self.unwritten = problem
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self.unwritten = None
                return

    async def recalled(self) -> Recalled | None:
        return await beside(self._disk.recalled)

    async def paths(self) -> Sequence[PathFound]:
        return await beside(self._disk.paths)

    async def remember(self, recalled: Recalled) -> bool:
        """Tell whether the disk has it."""
        return await self._attempt(partial(self._disk.remember, recalled))

    async def remember_paths(self, paths: Sequence[PathFound]) -> None:
        await self._attempt(partial(self._disk.remember_paths, paths))

    async def _attempt(self, write: Callable[[], None]) -> bool:
        try:
            await self._write(write)
        except OSError as error:
            log.debug("members.bin or paths.bin cannot be written: %s", error)
            return False
        return True

    async def _write(self, write: Callable[[], None]) -> None:
        """It goes on when this is cancelled."""
        writing = awaited(beside(write))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.shield(writing)
