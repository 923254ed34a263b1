"""What a plane's next round is about, and what its rounds have done so far."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from weft.model.kernel.objects import Key
from weft.model.node.nodestate import Durations
from weft.model.value import Value, field

_ONE_MOMENT: Final = 5.0  # seconds
_LATELY: Final = 600.0
_MOST: Final = 20  # moments that are kept, of each code


class Marks(Value, frozen=False):
    """What a round is about: a full look (`sweep`: because it was time), a comparison of all, and single keys.

    `decided` are keys that were decided again, `changed` those that somebody else changed in a way that
    is known, `unseen` in a way that is not; `by` says who, where that is known. `since` is when the first of what is
    decided came from the store.
    """

    look: bool = False
    sweep: bool = False
    all: bool = False
    decided: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    unseen: set[Key] = field(default_factory=set)
    by: dict[Key, str] = field(default_factory=dict)
    since: float | None = None


class Tally(Value, frozen=False):
    """What a loop has done, for health, logs and metrics. `moments` are when it repaired something last, by code.

    `took` is how long it was from the store's word of a peer until the kernel had it.
    """

    rounds: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    unannounced: int = 0
    failing: dict[Key, str] = field(default_factory=dict)
    moments: dict[str, deque[float]] = field(default_factory=dict)
    took: Durations = field(default_factory=Durations)

    def repaired(self, codes: Iterable[str], now: float) -> None:
        """Count repairs. What is repaired within some seconds is of one moment: a link takes its routes along."""
        more = Counter(codes)
        self.repairs.update(more)
        for code in more:
            moments = self.moments.setdefault(code, deque(maxlen=_MOST))
            if not moments or now - moments[-1] >= _ONE_MOMENT:
                moments.append(now)

    def lately(self, now: float) -> dict[str, int]:
        """At how many moments of the last ten minutes something was repaired, by code."""
        counts = {code: sum(now - each < _LATELY for each in moments) for code, moments in self.moments.items()}
        return {code: count for code, count in counts.items() if count}
