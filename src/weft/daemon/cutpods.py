"""Pods that have lost their links while their containers live: heard of by the kernel's notices, told of by code."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from weft.daemon import repairs
from weft.model.errors import Problem

log = logging.getLogger(__name__)

# When a container's namespace ends before its DEL, its links go, and DEL comes a moment later.
_GRACE_SECONDS: Final = 5.0


class CutPods:
    """Attachments whose host end was deleted, by their keys."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._event = asyncio.Event()

    def add(self, key: str) -> None:
        """Have it looked at."""
        self._keys.add(key)
        self._event.set()

    async def tell(self, look: Callable[[frozenset[str]], Awaitable[list[Problem]]]) -> None:
        """Log, for ever, what `look` finds of those that were cut."""
        while True:
            await self._event.wait()
            await asyncio.sleep(_GRACE_SECONDS)
            keys, self._keys = frozenset(self._keys), set()
            self._event.clear()
            try:
                problems = await look(keys)
            except OSError as error:
                log.warning("pods that lost their links cannot be looked at: %s", error)
                continue
            repairs.say_some(log.warning, [str(problem) for problem in problems])
