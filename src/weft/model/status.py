"""What the daemon knows about itself, for health, the log, metrics and the CNI plugins."""

from collections.abc import Callable

from weft.model.errors import Problem
from weft.model.value import Value


class Status(Value, frozen=False):
    """The daemon's own account. `waiting` says why it is not ready, None once it is.

    `peers` are believed, `peers_refused` are not; `count_failing` counts, when it is asked, those of the believed
    that are not served, or not whole.
    """

    waiting: Problem | None = None
    store_down: Problem | None = None
    peers: int = 0
    peers_refused: int = 0
    count_failing: Callable[[], int] = int

    @property
    def peers_failing(self) -> int:
        """Believed peers that are not served, or not whole, now."""
        return self.count_failing()

    @property
    def ready(self) -> bool:
        """True when the lease is ours, the peers are programmed and subnet.env is written."""
        return self.waiting is None
