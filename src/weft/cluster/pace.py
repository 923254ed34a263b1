"""How long is waited before a store is asked again that has failed."""

import asyncio
from collections.abc import Callable
from typing import Final

_DOUBLINGS: Final = 16


class Pace:
    """Waits `first` seconds, then twice as long each time, `most` at most; `first` again once answers have lasted.

    Of that, up to a half less by `jitter`, 0 to 1: never all nodes of a cluster at the same moment.
    """

    def __init__(self, first: float, most: float, jitter: Callable[[], float]) -> None:
        self.failures = 0
        self._first = first
        self._most = most
        self._jitter = jitter
        self._since: float | None = None  # the moment of the first answer after the last wait

    def answered(self) -> None:
        """Note an answer. Once answers have come for half of the longest wait, the next failure counts as the first.

        One answer is not enough: a store that answers and breaks off each time would be asked without end.
        """
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._most / 2:
            self.failures = 0

    async def wait(self) -> None:
        self._since = None
        longest = min(self._first * 2**self.failures, self._most)
        self.failures = min(self.failures + 1, _DOUBLINGS)
        await asyncio.sleep(longest * (0.5 + self._jitter() / 2))
