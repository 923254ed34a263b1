"""What a store says: the leases of others as events, and what becomes of our own."""

from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.value import Value

# What the store alone reads; the daemon compares, keeps and gives it back. Written to the disk as a JSON array.
Token = tuple[int | str, ...]


class Tally(Value, frozen=False):
    """How often a store gave one answer to one verb, and how many bytes came for it, packed."""

    asked: int = 0
    received: int = 0


class OwnLease(Value):
    """This node's own lease, as last seen in the store; kept across restarts.

    `expires` is in the seconds of the store's clock, which cannot be set; None for a lease that does not expire.
    `token` proves that the lease is ours.
    """

    lease: Lease
    expires: float | None
    token: Token


class Held(Value):
    """The own lease is ours: seen at the start, renewed, or put again."""

    own: OwnLease


class Revoked(Value):
    """The own lease was deleted, or expired while the store was out of reach."""

    reason: str


class TakenOver(Value):
    """Another node wrote the own lease: `lease` is what it holds now, None if that is unreadable."""

    lease: Lease | None
    reason: str


OwnEvent = Held | Revoked | TakenOver


class Malformed(Value):
    """An entry of the store that is not a lease; only its own peer suffers.

    `created` is as a lease's: it tells whether the entry is the one that was known before.
    """

    id: str
    problem: Problem
    created: int = 0


class Listed(Value):
    """Everything that the store holds at the moment `mark`.

    What is missing is gone, if this continues what we know (`weft.cluster.store.Store.continues`). `own` is this
    node's, which may have been another's before.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None


class Changed(Value):
    """What changed since the last event, in the store's order: the newest word for each id, up to `mark`."""

    put: tuple[Lease, ...] = ()
    gone: tuple[str, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None


class Lost(Value):
    """The store does not answer, or `refused` us; what we know stays as it is. `reason` is for people."""

    reason: str
    refused: bool = False


StoreEvent = Listed | Changed | Lost
