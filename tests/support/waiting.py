"""Waiting for what becomes true. The time that is given is a quiet machine's; a busy one has a multiple of it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

HANGS: Final = 300.0  # seconds for what takes moments, however busy the machine: what has not come by then hangs
_BUSY: Final = 6
_SAMPLE: Final = 0.2  # seconds of a processor
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


def eventually(look: Callable[[], T], *, seconds: float = 10.0) -> T:
    """What `look` returns once that is true; fails with its last answer when it never is."""
    for _ in looks(seconds):
        if answer := look():
            return answer
    raise AssertionError(f"not within {seconds} s and more, last seen {answer!r}")


def in_time(start: float, seconds: float) -> bool:
    """Tell whether less than so many seconds have passed since `start`, or as many as are those on a busy machine."""
    took = time.monotonic() - start
    return took < seconds or took < seconds * slowness()


def slowness() -> float:
    """How many times as long as on a processor of its own work takes here now."""
    start, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < _SAMPLE:
        pass
    return (time.monotonic() - start) / _SAMPLE


async def comes(look: Callable[[], T], *, seconds: float = 10.0) -> T:
    """What `look` returns once that is true; fails with a timeout when it never is."""
    start = time.monotonic()
    async with asyncio.timeout(_BUSY * seconds):
        while not (answer := look()):  # noqa: ASYNC110 - there is no event for what the test looks at
            await asyncio.sleep(_pause(time.monotonic() - start))
    return answer


def _pause(waited: float) -> float:
    return min(max(_SHORTEST, waited / 20), _LONGEST)
