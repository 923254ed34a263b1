"""What the store says: events that a lease store sends to the daemon, and what a store offers."""

from weft.model.lease import Lease
from weft.model.value import Value


class Mark(Value):
    """A point in a store's history. Another cluster, or time running backwards, is another history."""

    revision: int
    cluster: int
    term: int

    def precedes(self, later: "Mark") -> bool:
        """Tell whether `later` continues this history: false for a restored snapshot or another cluster."""
        return later.cluster == self.cluster and later.revision >= self.revision and later.term >= self.term


class Malformed(Value):
    """An entry of the store that is not a lease: it costs its own peer and nobody else."""

    id: str
    reason: str


class Listed(Value):
    """Everything that the store holds at `mark`: what is not in it is gone, if that continues what we know.

    `leases` are those of others, `own` is this node's, which may have been another's before.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Mark | None = None


class Changed(Value):
    """What changed since the last event, in the store's order; the newest word for each id."""

    put: tuple[Lease, ...] = ()
    gone: tuple[str, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    revision: int = 0


class Lost(Value):
    """The store does not answer, or `refused` us; what we know stays as it is. `reason` is for people."""

    reason: str
    refused: bool = False


StoreEvent = Listed | Changed | Lost
