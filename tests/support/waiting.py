"""Waiting for what becomes true. The time that is given is a quiet machine's; a busy one has a multiple of it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_BUSY: Final = 6
_SHORTEST, _LONGEST = 0.005, 0.1  # seconds between two looks: each costs what is waited for some of the processor


def looks(seconds: float) -> Iterator[None]:
    """Come to an end when what is looked for, once in each turn, has had its time: the pauses grow with the wait."""
    start = time.monotonic()
    while True:
        yield
        waited = time.monotonic() - start
        if waited > _BUSY * seconds:
            return
        time.sleep(_pause(waited))


async def comes(look: Callable[[], T], *, seconds: float = 10.0) -> T:
    """What `look` returns once that is true; fails with a timeout when it never is."""
    start = time.monotonic()
    async with asyncio.timeout(_BUSY * seconds):
        while not (answer := look()):  # noqa: ASYNC110 - there is no event for what the test looks at
            await asyncio.sleep(_pause(time.monotonic() - start))
    return answer


def _pause(waited: float) -> float:
    return min(max(_SHORTEST, waited / 20), _LONGEST)
