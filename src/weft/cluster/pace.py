"""How long is waited before a store is asked again that has failed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_DOUBLINGS: Final = 16


class Pace:
    """Waits `first` seconds, then twice as long each time, `most` at most, until something has lasted for a while.

    Of that, up to a half less by `jitter`, 0 to 1: never all nodes of a cluster at the same moment.
    """

    def __init__(self, first: float, most: float, jitter: Callable[[], float]) -> None:
        self.failures = 0
        self._first = first
        self._most = most
        self._jitter = jitter

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Something is tried: what fails after half of the longest wait fails for the first time.

        Not what succeeds for a moment: a store that answers and then breaks off would be asked without end.
        """
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            if asyncio.get_running_loop().time() - began >= self._most / 2:
                self.failures = 0

    async def wait(self) -> None:
        """Wait before the next try."""
        longest = min(self._first * 2**self.failures, self._most)
        self.failures = min(self.failures + 1, _DOUBLINGS)
        await asyncio.sleep(longest * (0.5 + self._jitter() / 2))
