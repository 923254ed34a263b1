"""How often one object is put back before we admit that someone else wants it otherwise (decisions.md §4).

A burst of repairs at once, then one every few seconds, then ever fewer while the fight goes on. Time is an
argument, in seconds of any clock that only goes forward.
"""

from dataclasses import dataclass
from typing import Final

from weft.model.objects import Key

BURST: Final = 20
PAUSE: Final = 3.0
LONGEST_PAUSE: Final = 60.0


@dataclass(slots=True)
class _Record:
    repairs: int = 0
    last: float = float("-inf")
    pause: float = PAUSE
    announced: bool = False


class Fuse:
    """Counts repairs per object and says how long to wait before the next."""

    def __init__(self) -> None:
        self._records: dict[Key, _Record] = {}

    def wait(self, key: Key, now: float) -> float:
        """Seconds until `key` may be repaired again; 0 counts as a repair made now."""
        record = self._records.setdefault(key, _Record())
        quiet = now - record.last
        if quiet > LONGEST_PAUSE * 2:
            record.repairs, record.pause, record.announced = 0, PAUSE, False
        if record.repairs >= BURST:
            if quiet < record.pause:
                return record.pause - quiet
            record.pause = min(record.pause * 2, LONGEST_PAUSE)
        record.repairs += 1
        record.last = now
        return 0.0

    def announce(self, key: Key) -> bool:
        """True once per fight: the first time an object has to wait."""
        record = self._records[key]
        first, record.announced = not record.announced, True
        return first
