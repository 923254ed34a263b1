"""What the next round of a plane is about, and what its rounds have done."""

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
    """What a round is about: a full look (`sweep`: it was due), a comparison of all, or single keys.

    It is known what others made of `changed`, and not of `unseen`; `by` names them. `since` is when the store told the
    first of `decided`.
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
    """`moments` are the latest repairs by code; `took` is from the store's word to the kernel."""

    rounds: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    unannounced: int = 0
    failing: dict[Key, str] = field(default_factory=dict)
    moments: dict[str, deque[float]] = field(default_factory=dict)
    took: Durations = field(default_factory=Durations)

    def repaired(self, codes: Iterable[str], now: float) -> None:
        """Repairs within some seconds are of one moment: a link takes its routes along."""
        more = Counter(codes)
        self.repairs.update(more)
        for code in more:
            moments = self.moments.setdefault(code, deque(maxlen=_MOST))
            if not moments or now - moments[-1] >= _ONE_MOMENT:
                moments.append(now)

    def lately(self, now: float) -> dict[str, int]:
        """The moments of the last ten minutes, by code."""
        counts = {code: sum(now - each < _LATELY for each in moments) for code, moments in self.moments.items()}
        return {code: count for code, count in counts.items() if count}
