"""When to look at an object again: after a refusal of the kernel later each time, or when someone fights us.

One alarm for each object, so that whatever else leads to another try does not add to those that wait.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from weft.model.kernel.objects import Key, Object
from weft.plan.backoff import Backoff

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0


class Retries:
    """Alarms by key, and how long the next pause of each is; `wake` is called when one is due.

    `clock` counts seconds and only goes forward.
    """

    def __init__(self, wake: Callable[[Iterable[Key]], None], *, clock: Callable[[], float]) -> None:
        self._wake = wake
        self._clock = clock
        self._backoff = Backoff()
        self._pauses: dict[Key, float] = {}
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._moments: dict[Key, float] = {}  # of what was ever refused: when that began or ended

    def refused(self, key: Key, *, longest: float) -> bool:
        """Try again, later than the last time, after `longest` seconds at most; True if this is the first refusal."""
        first = key not in self._pauses
        if first:
            self._moments[key] = self._clock()
        self._pauses[key] = FIRST_SECONDS if first else min(self._pauses[key] * 2, longest)
        self.later(self._pauses[key], key)
        return first

    def settled(self, key: Key) -> None:
        """Try an object no more: it is as wanted, or wanted no more."""
        self._pauses.pop(key, None)
        self._disarm(key)
        self._moments[key] = self._clock()

    def gone(self, key: Key) -> None:
        """Forget an object that is wanted no more and not there."""
        self._moments.pop(key, None)

    def age(self, key: Key) -> float | None:
        """For how many seconds an object has been refused, or not any more; None if it never was."""
        moment = self._moments.get(key)
        return None if moment is None else self._clock() - moment

    def may_repair(self, thing: Object, code: str) -> bool:
        """Tell whether what someone did to `thing` may be undone now; otherwise it has its time, which is said once."""
        wait = self._backoff.wait(thing.key, self._clock())
        if wait == 0.0:
            return True
        if self._backoff.announce(thing.key):
            log.warning("%s: someone keeps changing %s; repairing it less often", code, thing)
        self.later(wait, thing.key)
        return False

    def later(self, seconds: float, key: Key) -> None:
        """Look at `key` in so many seconds, in place of what was planned for it."""
        self._disarm(key)
        self._alarms[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    def _due(self, key: Key) -> None:
        del self._alarms[key]
        self._wake([key])

    def _disarm(self, key: Key) -> None:
        alarm = self._alarms.pop(key, None)
        if alarm is not None:
            alarm.cancel()
