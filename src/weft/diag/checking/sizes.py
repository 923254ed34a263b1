"""How large may a packet be? Sizes to try at once, and what their outcomes say. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.diag.checking.causes import Cause
from weft.diag.checking.judging import judged
from weft.diag.checking.trial import Outcome, Trial, Tried
from weft.model.net import Family
from weft.model.value import Value, replace

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


def measured(cause: Cause, attempt: Callable[[Sequence[Trial]], Sequence[Outcome]]) -> Cause:
    """A cause of sizes with the largest size that arrives, by trials of other sizes that `attempt` makes."""
    if ("size", "mtu") not in cause.traits:
        return cause
    trial = cause.examples[0].trial
    bounds = Bounds(low=LEAST[trial.family], high=trial.size)
    while sizes := bounds.between:
        wanted = [replace(trial, size=size) for size in sizes]
        bounds = bounds.narrowed(judged(wanted, attempt(wanted)))
    return replace(cause, limit=bounds.low)
