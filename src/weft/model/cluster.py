"""Events from a store: the leases of other nodes, and what happens to our own."""

from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.value import Value

# What the store alone reads; the daemon compares, keeps and gives it back. Written to the disk as a JSON array.
Token = tuple[int | str, ...]


class Tally(Value, frozen=False):
    """How often a store gave one answer to one verb, and the compressed bytes that it took."""

    asked: int = 0
    received: int = 0


class OwnLease(Value):
    """This node's own lease, as last seen in the store; kept across restarts.

    `expires` is in seconds of the store's clock, None for a lease without expiry. `token` proves that the lease is
    ours.
    """

    lease: Lease
    expires: float | None
    token: Token


class Held(Value):
    own: OwnLease


class Revoked(Value):
    """The own lease was deleted, or expired while the store was out of reach."""

    reason: str


class TakenOver(Value):
    """Another node wrote the own lease; `lease` is None if that is unreadable."""

    lease: Lease | None
    reason: str


OwnEvent = Held | Revoked | TakenOver


class Malformed(Value):
    """An entry that is not a lease. `created` tells, as in a lease, whether it is the entry that was known before."""

    id: str
    problem: Problem
    created: int = 0


class Listed(Value):
    """All entries of the store at the moment `mark`.

    What is missing is gone, if the list continues what we know (`cluster.store.Store.continues`). `own` are this
    node's.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None


class Changed(Value):
    """Changes since the last event, up to `mark`: only the newest for each id."""

    put: tuple[Lease, ...] = ()
    gone: tuple[str, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None


class Lost(Value):
    """The store does not answer, or has `refused` us; what we know stays valid."""

    reason: str
    refused: bool = False


StoreEvent = Listed | Changed | Lost
