"""How often one object is put back before we admit that someone else wants it otherwise (settled.md §4).

A burst of repairs at once, then one every few seconds, then ever fewer while the fight goes on. Time is an
argument, in seconds of any clock that only goes forward.
"""

from collections import OrderedDict
from typing import Final

from weft.model.kernel.objects import Key
from weft.model.value import Value

BURST: Final = 20
PAUSE: Final = 3.0
LONGEST_PAUSE: Final = 60.0
QUIET: Final = 2 * LONGEST_PAUSE  # after this long without a repair the fight is over


class _Record(Value, kw_only=False, frozen=False):
    repairs: int = 0
    last: float = 0.0
    pause: float = PAUSE
    announced: bool = False


class Backoff:
    """What is quiet for long is forgotten."""

    def __init__(self) -> None:
        # In the order of the last repair. Not a dict: to find its first key takes a step for each that went before.
        self._records: OrderedDict[Key, _Record] = OrderedDict()

    def wait(self, key: Key, now: float) -> float:
        """Seconds until `key` may be repaired again; 0 counts as a repair made now."""
        self._forget_quiet(now)
        record = self._records.setdefault(key, _Record())
        if record.repairs >= BURST:
            quiet = now - record.last
            if quiet < record.pause:
                return record.pause - quiet
            record.pause = min(record.pause * 2, LONGEST_PAUSE)
        record.repairs += 1
        record.last = now
        self._records.move_to_end(key)
        return 0.0

    def announce(self, key: Key) -> bool:
        """True once per fight."""
        record = self._records[key]
        first, record.announced = not record.announced, True
        return first

    def _forget_quiet(self, now: float) -> None:
        while self._records:
            key = next(iter(self._records))
            if now - self._records[key].last <= QUIET:
                return
            del self._records[key]
