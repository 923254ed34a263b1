"""Whether a path to a peer carries packets, by the echoes that come back on it.

A path of which nothing is known yet counts as one that does. One that has fallen comes back late: an operator who
mends a firewall waits some seconds, and one that falls again and again changes nobody's way.
"""

from math import inf
from typing import Final

IN_USE: Final = 1.0  # seconds between two echoes on a path that packets of pods take
FALLEN: Final = 5.0  # … on one that they would take if it answered
_PATIENCE: Final = 1.0  # seconds until an echo without an answer is a miss, and the next one goes out
_MISSES: Final = 5  # in a row: the path has fallen
_ANSWERS: Final = 3  # in a row: it is back
_SOON: Final = 60.0  # seconds: a path that falls so soon after its return waits twice as long the next time
_SHORTEST: Final = 10.0  # seconds that a return waits
_LONGEST: Final = 300.0


class Path:
    """`usable` is None before the first word. `due` is when `tick` is wanted."""

    __slots__ = ("_answers", "_asked", "_hold", "_misses", "_rose", "_until", "due", "usable")

    def __init__(self, due: float) -> None:
        self.usable: bool | None = None
        self.due = due
        self._asked = -inf  # when the echo that is out was sent; -inf if none is
        self._misses = self._answers = 0  # in a row
        self._hold = _SHORTEST
        self._rose = self._until = -inf

    def tick(self, now: float, interval: float) -> bool:
        """At `due`: judge the echo that is out; tell whether one is to be sent now."""
        if self._asked > -inf:
            self._asked = -inf
            self._missed(now)
            if self.usable is False:  # nothing hurries
                self.due = now + interval
                return False
        self._asked = now
        self.due = now + _PATIENCE
        return True

    def answered(self, now: float, interval: float) -> None:
        """An echo has come back, perhaps one that was given up."""
        sent, self._asked = self._asked, -inf
        self._misses = 0
        self._answers += 1
        if self.usable is False and self._answers < _ANSWERS:
            self.due = now + _PATIENCE
        else:
            self.due = max(now, sent + interval) if sent > -inf else now + interval
        if self.usable is None or (self.usable is False and self._answers >= _ANSWERS and now >= self._until):
            self._rose = now if self.usable is False else -inf
            self.usable = True

    def forgive(self, due: float) -> None:
        """We were late ourselves: what was not seen in that time says nothing."""
        self._asked = -inf
        self.due = min(self.due, due)

    def hasten(self, due: float) -> None:
        """It has come into use."""
        if self._asked == -inf:
            self.due = min(self.due, due)

    def _missed(self, now: float) -> None:
        self._answers = 0
        self._misses += 1
        if self._misses < _MISSES or self.usable is False:
            return
        self._hold = min(_LONGEST, 2 * self._hold) if now < self._rose + _SOON else _SHORTEST
        self._until = now + self._hold
        self.usable = False
