"""What the daemon knows about itself, for health, the log, metrics and the CNI plugins."""

from dataclasses import dataclass

from weft.model.errors import Problem


@dataclass(slots=True, kw_only=True)
class Status:
    """The daemon's own account. `waiting` says why it is not ready, None once it is."""

    waiting: Problem | None = None
    store_down: Problem | None = None
    peers: int = 0
    peers_refused: int = 0
    peers_failing: int = 0

    @property
    def ready(self) -> bool:
        """True when the lease is ours, the peers are programmed and subnet.env is written."""
        return self.waiting is None
