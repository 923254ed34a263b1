"""What the daemon knows about itself, for health, the log, metrics and the CNI plugins."""

from collections.abc import Callable
from typing import Final

from weft.model.errors import Problem
from weft.model.node.history import History
from weft.model.value import Value, field

# The part that enforces policies, and what pods have lost by it.
POLICIES: Final = "network policies"


class Status(Value, frozen=False):
    """Each part of the daemon adds what it can tell; callables say what is wrong at the moment."""

    waiting: Problem | None = None  # why there is no lease that is certainly ours
    parts: dict[str, Callable[[], Problem | None]] = field(default_factory=dict)  # what readiness depends on
    losses: dict[str, Callable[[], Problem | None]] = field(default_factory=dict)  # of some pods, not of all
    store: Problem | None = None  # why it is not heard; STORE-002 refuses us, and needs an operator
    peers: int = 0  # that are believed
    peers_refused: int = 0
    faults: int = 0  # how often a part ended by a fault of ours and was started again
    history: History = field(default_factory=History)

    def look(self) -> dict[str, Problem | None]:
        """By part, the lease first."""
        return {"lease": self.waiting, **{name: problem() for name, problem in self.parts.items()}}

    def lost(self) -> dict[str, Problem]:
        return {name: problem for name, ask in self.losses.items() if (problem := ask()) is not None}

    @property
    def unable(self) -> Problem | None:
        """Why pods cannot be served now. A part that fails says more than the lease that waits for it."""
        lease, *parts = self.look().values()
        return next((problem for problem in (*parts, lease) if problem is not None), None)

    @property
    def refused(self) -> bool:
        return self.store is not None and self.store.code == "STORE-002"

    @property
    def ready(self) -> bool:
        return self.unable is None and not self.refused
