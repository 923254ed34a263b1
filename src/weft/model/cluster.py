"""What the store says: events that a lease store sends to the daemon, and what a store offers."""

from weft.model.lease import Lease
from weft.model.value import Value


class Malformed(Value):
    """An entry of the store that is not a lease: it costs its own peer and nobody else."""

    id: str
    reason: str


class Listed(Value):
    """Everything that the store holds, at one revision: what is not in it is gone."""

    leases: tuple[Lease, ...]
    malformed: tuple[Malformed, ...] = ()
    revision: int = 0


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
