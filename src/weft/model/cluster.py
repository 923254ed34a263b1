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
    """This node's own lease, as last seen in the store; kept across restarts."""

    lease: Lease
    expires: float | None  # in seconds of the store's clock; None without expiry
    token: Token  # proves that the lease is ours


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
    """An entry that is not a lease."""

    id: str
    problem: Problem
    created: int = 0  # as a lease's: it tells whether the entry was known before


class Listed(Value):
    """The entries of the store; what is missing in a complete list is gone, if it continues what we know.

    `cluster.store.Directory.continues` tells that.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...] = ()  # this node's
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None  # the moment
    complete: bool = True


class Changed(Value):
    """Changes since the last event: only the newest for each id."""

    put: tuple[Lease, ...] = ()
    gone: tuple[str, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    mark: Token | None = None  # the moment up to which


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
    """The store does not answer, in whole or in part; what we know stays valid."""

    reason: str
    refused: bool = False  # it has refused us
    ids: frozenset[str] | None = None  # all leases of which it hears nothing now, None if it hears of none


StoreEvent = Listed | Changed | Lost
