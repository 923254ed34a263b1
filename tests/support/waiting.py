"""Waiting for what a loop in the test's own process does."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def comes(look: Callable[[], T], *, seconds: float = 10.0) -> T:
    """What `look` returns once that is true; fails with a timeout when it never is."""
    async with asyncio.timeout(seconds):
        while not (answer := look()):  # noqa: ASYNC110 - there is no event for what the test looks at
            await asyncio.sleep(0.001)
    return answer
