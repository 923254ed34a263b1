"""How large may a packet be? Sizes to try at once, and what their outcomes say. Pure."""

from collections.abc import Iterable
from typing import Final

from weft.lab.checking.trial import Tried
from weft.lab.spec import Family
from weft.model.value import Value

LEAST: Final[dict[Family, int]] = {4: 68, 6: 1280}  # bytes that every link carries (RFC 791 §3.2, RFC 8200 §5)
_AT_ONCE: Final = 40  # two rounds tell the sizes of an Ethernet apart


class Bounds(Value):
    """Packets of `low` bytes arrive, those of `high` bytes do not."""

    low: int
    high: int

    @property
    def between(self) -> list[int]:
        """The sizes to try next, evenly between; none once the bounds are next to each other."""
        inside = range(self.low + 1, self.high)
        step = max(1, -(-len(inside) // _AT_ONCE))
        return list(inside[step - 1 :: step])

    def narrowed(self, tried: Iterable[Tried]) -> "Bounds":
        """The bounds after such sizes were tried: `low` is below the smallest that failed."""
        outcomes = sorted((each.trial.size, not each.fault) for each in tried)
        high = min((size for size, passed in outcomes if not passed), default=self.high)
        return Bounds(
            low=max((size for size, passed in outcomes if passed and size < high), default=self.low), high=high
        )
