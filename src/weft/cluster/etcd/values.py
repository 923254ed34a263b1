"""The values that pass between the etcd store's parts, and how they are told to the daemon."""

from typing import NamedTuple

from weft.desired.allocate import Choice, Chooser, Present
from weft.model.cluster import Malformed, OwnLease, Token
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Net
from weft.model.value import Value


class Mark(NamedTuple):
    """A point in a store's history. Another cluster, or time running backwards, is another history."""

    revision: int
    cluster: int
    term: int

    def precedes(self, later: "Mark") -> bool:
        """False for a restored snapshot or another cluster.

        A restored store may have the same cluster id and have caught up in revisions; its Raft term began again.
        """
        return later.cluster == self.cluster and later.revision >= self.revision and later.term >= self.term


class Proof(NamedTuple):
    """The token of an own lease: its key is ours while it has both. `etcd_lease` is 0 for a reservation."""

    etcd_lease: int
    mod_revision: int


def mark_in(token: Token) -> Mark | None:
    """None if another store made the token."""
    return Mark(*map(int, token)) if len(token) == len(Mark._fields) and _are_numbers(token) else None


def proof_in(own: OwnLease) -> Proof:
    """One that no key has, if another store made the token."""
    token = own.token
    if len(token) == len(Proof._fields) and _are_numbers(token) and all(0 <= int(each) < 1 << 63 for each in token):
        return Proof(*map(int, token))
    return Proof(etcd_lease=0, mod_revision=0)


def _are_numbers(token: Token) -> bool:
    return all(isinstance(each, int) for each in token)


class Entry(NamedTuple):
    """With what compare-and-swap needs."""

    lease: Lease
    etcd_lease: int
    mod_revision: int


class Listing(Value):
    """`blocked` are the subnets of keys with unreadable values."""

    mark: Mark
    entries: tuple[Entry, ...]
    malformed: tuple[Malformed, ...] = ()
    blocked: tuple[Net, ...] = ()

    @property
    def leases(self) -> tuple[Lease, ...]:
        return tuple(entry.lease for entry in self.entries)

    @property
    def present(self) -> Present:
        reserved = frozenset(entry.lease.id for entry in self.entries if not entry.etcd_lease)
        return Present(leases=self.leases, reserved=reserved, unreadable=self.blocked)

    @property
    def published(self) -> LeaseAttrs | None:
        """A key says whose it is by its content."""
        return None

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:
        return chooser.choose(self.present, recorded=self.unchanged(recorded))

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:
        """settled.md §5."""
        if recorded is None:
            return None
        name, proof = recorded.lease.id, proof_in(recorded)
        found = next((entry for entry in self.entries if entry.lease.id == name), None)
        return found.lease if found is not None and found[1:] == proof else None
