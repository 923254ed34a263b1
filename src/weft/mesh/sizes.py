"""How large packets may be on a path: as large as the largest echo that comes back, of a few sizes."""

from math import inf
from typing import Final

WHOLE: Final = 65535  # bytes of an IP packet: as large as those of pods may be
_SIZES: Final = (WHOLE, 1400, 1380, 1280)  # what passes PPPoE and tunnels; the least of IPv6
_TRIES: Final = 2  # of a size, before the next one is tried
_AGAIN: Final = 5.0  # seconds between two echoes of the size that passes
_LARGER: Final = 15.0  # … until a larger one is tried again


class Sizes:
    """A large echo that is lost says nothing of the path: between two of them the caller has a small one answered."""

    __slots__ = ("_again", "_larger", "_lost", "_passes", "_tried", "measured")

    def __init__(self, mtu: int = 0) -> None:
        self.measured = False
        self._passes = _SIZES.index(mtu or WHOLE)
        self._tried: int | None = 0  # what is measured now
        self._lost = 0  # echoes of that size
        self._again, self._larger = inf, inf

    @property
    def mtu(self) -> int:
        """0 if all of pods' packets pass."""
        return _SIZES[self._passes] if self._passes else 0

    def size(self, now: float) -> int:
        """Of the next echo; 0 is a small one."""
        if self._tried is None and now >= self._larger:
            self._tried = 0
        elif self._tried is None and now >= self._again:
            self._tried = self._passes
        return 0 if self._tried is None else _SIZES[self._tried]

    @property
    def measuring(self) -> bool:
        return self._tried is not None

    def answered(self, size: int, now: float) -> None:
        """Perhaps one that was given up."""
        at = _SIZES.index(size)
        if self._tried is not None or at < self._passes:
            self._settle(at, now)

    def lost(self, now: float) -> None:
        """The echo of the size that was asked for last."""
        self._lost += 1
        if self._tried is None or self._lost < _TRIES:
            return
        self._lost = 0
        self._tried += 1
        if self._tried == len(_SIZES):
            self._settle(len(_SIZES) - 1, now)

    def _settle(self, at: int, now: float) -> None:
        if not self.measured or at != self._passes or now >= self._larger:
            self._larger = now + _LARGER if at else inf
        self.measured = True
        self._passes, self._tried, self._lost = at, None, 0
        self._again = now + _AGAIN
