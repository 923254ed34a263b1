"""What the daemon knows about itself, for health, the log, metrics and the CNI plugins."""

from collections.abc import Callable

from weft.model.errors import Problem
from weft.model.node.history import History
from weft.model.value import Value, field


class Status(Value, frozen=False):
    """`waiting` says why there is no lease that is ours for certain, None once there is.

    `parts` say when asked what is wrong with them now; each is there as soon as it can tell. `losses` likewise: what
    some pods have lost and the others have not. `store` says why the store is not heard; one that refuses us
    (STORE-002) needs an operator. `peers` are believed, `peers_refused` are not. `faults` counts how often a part of
    the daemon ended by a fault of ours and was started again.
    """

    waiting: Problem | None = None
    parts: dict[str, Callable[[], Problem | None]] = field(default_factory=dict)
    losses: dict[str, Callable[[], Problem | None]] = field(default_factory=dict)
    store: Problem | None = None
    peers: int = 0
    peers_refused: int = 0
    faults: int = 0
    history: History = field(default_factory=History)

    def look(self) -> dict[str, Problem | None]:
        """By part, the lease first."""
        return {"lease": self.waiting, **{name: problem() for name, problem in self.parts.items()}}

    def lost(self) -> dict[str, Problem]:
        return {name: problem for name, ask in self.losses.items() if (problem := ask()) is not None}

    @property
    def unable(self) -> Problem | None:
        """Why pods cannot be served now. The part that fails says more than the lease that waits for it."""
        lease, *parts = self.look().values()
        return next((problem for problem in (*parts, lease) if problem is not None), None)

    @property
    def refused(self) -> bool:
        return self.store is not None and self.store.code == "STORE-002"

    @property
    def ready(self) -> bool:
        """The lease is ours, every part is right, and the store does not refuse us."""
        return self.unable is None and not self.refused
