"""How large a packet may be: the search for the largest that passes. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.model.value import Value

SMALLEST: Final = 68  # bytes of a packet that every link carries (RFC 791 §3.2)
# What answers may be anybody's, and limit its answers: a round has few packets, and a size is tried so often.
_FEW: Final = 3
_SURE: Final = 3
MOST: Final = 66  # packets of `largest`, of any size


class Bounds(Value):
    """Packets of `low` bytes arrive, those of `high` bytes do not."""

    low: int
    high: int

    def between(self, most: int) -> list[int]:
        """Up to `most` sizes to try next, evenly between; none once the bounds are next to each other."""
        inside = range(self.low + 1, self.high)
        step = len(inside) // (most + 1) + 1
        return list(inside[step - 1 :: step])

    def narrowed(self, outcomes: Iterable[tuple[int, bool]]) -> "Bounds":
        """`low` stays below the smallest size that failed."""
        tried = sorted(outcomes)
        high = min((size for size, passed in tried if not passed), default=self.high)
        return Bounds(low=max((size for size, passed in tried if passed and size < high), default=self.low), high=high)


def largest(size: int, passing: Callable[[Sequence[int]], Sequence[bool]]) -> int | None:
    """The largest packet that passes where one of `size` bytes does not; 0 if not even a small one does.

    `passing` says so of each size. None if larger ones pass than others that are lost, or some of one size do. Before
    that is said, it is searched twice: on a busy machine an answer may come too late once.
    """
    found = _searched(size, passing)
    return _searched(size, passing) if found is None else found


def _searched(size: int, passing: Callable[[Sequence[int]], Sequence[bool]]) -> int | None:
    bounds, least = Bounds(low=SMALLEST, high=size), [SMALLEST] * _SURE
    while sizes := [*least, *bounds.between(_FEW)]:
        tried = list(zip(sizes, passing(sizes), strict=True))
        lost = [each for each, passed in tried if not passed]
        if least and len(lost) == len(tried):
            return 0
        if SMALLEST in lost or any(passed and each > min(lost, default=size) for each, passed in tried):
            return None
        bounds, least = bounds.narrowed(tried), []
    sure = passing([bounds.low] * _SURE + [bounds.high] * _SURE)
    return bounds.low if list(sure) == [True] * _SURE + [False] * _SURE else None
