"""Long work in slices: a generator that yields wherever the event loop may have a turn, and returns its result.

rtnetlink works inside `send`, so long work is cut up rather than waited for.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Slices = Generator[None, None, T]


def at_once(work: Slices[T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(work: Slices[T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
