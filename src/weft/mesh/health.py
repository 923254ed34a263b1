"""Whether a path to a peer carries packets, and how large ones, by the echoes that come back on it.

A path of which nothing is known yet counts as one that does. One that has fallen comes back late: an operator who
mends a firewall waits some seconds, and one that falls again and again changes nobody's way.
"""

from math import inf
from typing import Final

from weft.mesh.sizes import Sizes

IN_USE: Final = 1.0  # seconds between two echoes on a path that packets of pods take
FALLEN: Final = 5.0  # … on one that they would take if it answered
_PATIENCE: Final = 1.0  # seconds until an echo without an answer is a miss, and the next one goes out
_MISSES: Final = 5  # in a row: the path has fallen
_ANSWERS: Final = 3  # in a row: it is back
_SOON: Final = 60.0  # seconds: a path that falls so soon after its return waits twice as long the next time
_SHORTEST: Final = 10.0  # seconds that a return waits
_LONGEST: Final = 300.0


class Path:
    """`usable` is None before the first word. `due` is when `tick` is wanted, with the seconds between two echoes."""

    __slots__ = (
        "_answers",
        "_asked",
        "_calm",
        "_hold",
        "_misses",
        "_rose",
        "_size",
        "_until",
        "answered_at",
        "due",
        "sizes",
        "usable",
    )

    def __init__(self, due: float, *, usable: bool | None = None, mtu: int = 0) -> None:
        """`usable` and `mtu` as an earlier run found them."""
        self.usable = usable
        self.sizes = Sizes(mtu)
        self.due = due
        self.answered_at = -inf  # the last time
        self._asked = -inf  # when the echo that is out was sent; -inf if none is
        self._size = 0  # its size, if it is a large one
        self._calm = False  # the last echo has come back
        self._misses = self._answers = 0  # in a row
        self._hold = _SHORTEST
        self._rose = self._until = -inf

    @property
    def missing(self) -> bool:
        """Since the last answer an echo was missed."""
        return self._misses > 0

    @property
    def proved(self) -> bool:
        return self.usable is True and not self.missing

    def tick(self, now: float, interval: float) -> int | None:
        """At `due`: judge the echo that is out; the size of the one to be sent now, None for none."""
        if self._asked > -inf:
            self._asked, self._calm = -inf, False
            if self._size:
                self.sizes.lost(now)
            else:
                self._missed(now)
                if self.usable is False:  # nothing hurries
                    self.due = now + interval
                    return None
        self._asked = now
        self._size = self.sizes.size(now) if self._takes_large(interval) else 0
        self.due = now + _PATIENCE
        return self._size

    def answered(self, size: int, now: float, interval: float) -> None:
        """An echo has come back, perhaps one that was given up."""
        sent = self._asked
        if size == self._size or sent == -inf:
            self._asked = -inf
        if size:
            self.sizes.answered(size, now)
        self._calm = True
        self.answered_at = now
        self._misses = 0
        self._answers += 1
        if self.usable is None or (self.usable is False and self._answers >= _ANSWERS and now >= self._until):
            self._rose = now if self.usable is False else -inf
            self.usable = True
        if self._asked > -inf:
            return
        if self.usable is False and self._answers < _ANSWERS:
            self.due = now + _PATIENCE
        elif self.sizes.measuring and self._takes_large(interval):
            self.due = now
        else:
            self.due = max(now, sent + interval) if sent > -inf else now + interval

    def forgive(self, due: float) -> None:
        """We were late ourselves: what was not seen in that time says nothing."""
        self._asked = -inf
        self.due = min(self.due, due)

    def hasten(self, due: float) -> None:
        """It has come into use, or may soon."""
        if self._asked == -inf:
            self.due = min(self.due, due)

    def _takes_large(self, interval: float) -> bool:
        """Between two large echoes is a small one, so that what is lost is lost for its size."""
        return self._calm and self.usable is True and (interval == IN_USE or not self.sizes.measured)

    def _missed(self, now: float) -> None:
        self._answers = 0
        self._misses += 1
        if self._misses < _MISSES or self.usable is False:
            return
        self._hold = min(_LONGEST, 2 * self._hold) if now < self._rose + _SOON else _SHORTEST
        self._until = now + self._hold
        self.usable = False
