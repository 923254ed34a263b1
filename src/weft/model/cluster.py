"""Events from a store: the leases of other nodes, and what happens to our own."""

from collections.abc import Iterable

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
    """The entries of the store at the moment `mark`: all of them only if the list is `complete`.

    What is missing in a complete one is gone, if it continues what we know (`cluster.store.Directory.continues`).
    `own` are this node's.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None
    complete: bool = True


class Changed(Value):
    """Changes since the last event, up to `mark`: only the newest for each id."""

    put: tuple[Lease, ...] = ()
    gone: tuple[str, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None


# What is said of an id: a lease, a malformed entry, or None for gone.
Word = Lease | Malformed | None


def changed(words: Iterable[tuple[str, Word]], mark: Token | None) -> Changed:
    """The newest of the words for each id, in their order."""
    newest: dict[str, Word] = {}
    for name, word in words:
        newest.pop(name, None)
        newest[name] = word
    return Changed(
        put=tuple(word for word in newest.values() if isinstance(word, Lease)),
        gone=tuple(name for name, word in newest.items() if word is None),
        malformed=tuple(word for word in newest.values() if isinstance(word, Malformed)),
        mark=mark,
    )


class Lost(Value):
    """The store does not answer, or has `refused` us; what we know stays valid.

    `ids` are the leases of which it hears nothing at present, None if it hears of none; each `Lost` says all of them.
    """

    reason: str
    refused: bool = False
    ids: frozenset[str] | None = None


StoreEvent = Listed | Changed | Lost
