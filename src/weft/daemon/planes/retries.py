"""When to look at an object again: after a refusal, later each time, or while others keep changing it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from weft.model.kernel.objects import Key, Object
from weft.plan.backoff import Backoff

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0


class Retries:
    """One alarm for each key; `wake` is called when it is due."""

    def __init__(self, wake: Callable[[Iterable[Key]], None], *, clock: Callable[[], float]) -> None:
        self._wake = wake
        self._clock = clock
        self._backoff = Backoff()
        self._pauses: dict[Key, float] = {}
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._moments: dict[Key, float] = {}  # of what was ever refused: when that began or ended

    def refused(self, key: Key, *, longest: float) -> bool:
        """Try again later than the last time, within `longest` seconds; True for the first refusal."""
        first = key not in self._pauses
        if first:
            self._moments[key] = self._clock()
        self._pauses[key] = FIRST_SECONDS if first else min(self._pauses[key] * 2, longest)
        self.later(self._pauses[key], key)
        return first

    def settled(self, key: Key) -> None:
        self._pauses.pop(key, None)
        self._disarm(key)
        self._moments[key] = self._clock()

    def gone(self, key: Key) -> None:
        self._moments.pop(key, None)

    def age(self, key: Key) -> float | None:
        """Seconds since its refusals began or ended; None if it was never refused."""
        moment = self._moments.get(key)
        return None if moment is None else self._clock() - moment

    def may_repair(self, thing: Object, code: str) -> bool:
        """Tell whether a change by others may be undone now, else later."""
        wait = self._backoff.wait(thing.key, self._clock())
        if wait == 0.0:
            return True
        if self._backoff.announce(thing.key):
            log.warning("%s: someone keeps changing %s; repairing it less often", code, thing)
        self.later(wait, thing.key)
        return False

    def later(self, seconds: float, key: Key) -> None:
        self._disarm(key)
        self._alarms[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    def _due(self, key: Key) -> None:
        del self._alarms[key]
        self._wake([key])

    def _disarm(self, key: Key) -> None:
        alarm = self._alarms.pop(key, None)
        if alarm is not None:
            alarm.cancel()
