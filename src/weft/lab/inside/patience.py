"""How long a wait goes on: as long as something changes.

On a busy machine each step takes long, and comes all the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from weft.beside.tasks import awaited

SECONDS: Final = 45.0  # Kubernetes waits 40 s before it starts a container a third time
_LOOK_AGAIN: Final = 0.5  # seconds
_UNSEEN: Final = object()

T = TypeVar("T")


class Patience:
    """Is over once what is watched has stayed the same for `seconds`."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last: object = _UNSEEN
        self._since = clock()

    def check(self, progress: object) -> None:
        """Note how far things are. Raises `TimeoutError` if that has not changed for too long."""
        now = self._clock()
        if progress != self._last:
            self._last, self._since = progress, now
        elif now - self._since > self._seconds:
            raise TimeoutError


async def patiently(work: Coroutine[Any, Any, T], progress: Callable[[], Awaitable[object]]) -> T:
    """Return what `work` comes to. `TimeoutError` once `progress` has stayed the same for too long."""
    patience = Patience()
    task = awaited(work)
    try:
        while not task.done():
            patience.check(await progress())
            await asyncio.wait((task,), timeout=_LOOK_AGAIN)
        return task.result()
    finally:
        task.cancel()
