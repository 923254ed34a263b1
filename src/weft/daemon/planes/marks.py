"""What a plane's next round is about, and what its rounds have done so far."""

from collections import Counter

from weft.model.kernel.objects import Key
from weft.model.value import Value, field


class Marks(Value, frozen=False):
    """What a round is about: a full look (`sweep`: because it was time), a comparison of all, and single keys.

    `decided` are keys about which was decided anew, `changed` those that somebody else changed in a way that
    is known, `unseen` in a way that is not.
    """

    look: bool = False
    sweep: bool = False
    all: bool = False
    decided: set[Key] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    unseen: set[Key] = field(default_factory=set)


class Tally(Value, frozen=False):
    """What a loop has done, for health, logs and metrics."""

    rounds: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    unannounced: int = 0
    failing: dict[Key, str] = field(default_factory=dict)
