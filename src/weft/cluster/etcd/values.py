"""The values that pass between the etcd store's parts and the daemon."""

from typing import Final, NamedTuple

from weft.model.cluster import Malformed, Mark
from weft.model.lease import Lease
from weft.model.net import Net
from weft.model.value import Value

# Seconds that an etcd lease lasts without renewal (flannel.md §4.3).
LEASE_TTL: Final = 86400


class OwnLease(Value):
    """This node's own lease, as it was last seen in the store; worth keeping across restarts.

    `etcd_lease` is 0 and `expires` None for a reservation, a key without an etcd lease, which never expires.
    `expires` is in the seconds of the clock that the store was given, which nobody sets.
    """

    lease: Lease
    etcd_lease: int
    mod_revision: int
    expires: float | None

    @property
    def reservation(self) -> bool:
        """Tell whether an operator reserved the subnet: the key has no etcd lease, so nothing to renew."""
        return self.etcd_lease == 0


class Entry(NamedTuple):
    """A lease of the store with what compare-and-swap needs to know about its key."""

    lease: Lease
    etcd_lease: int
    mod_revision: int


class Listing(Value):
    """All of the store's leases at one revision. `blocked` are the subnets of keys with unreadable values."""

    mark: Mark
    entries: tuple[Entry, ...]
    malformed: tuple[Malformed, ...] = ()
    blocked: tuple[Net, ...] = ()

    @property
    def leases(self) -> tuple[Lease, ...]:
        return tuple(entry.lease for entry in self.entries)


class Held(Value):
    """The own lease is ours, as `own` says: seen at the start, renewed, or put anew."""

    own: OwnLease


class Revoked(Value):
    """The own key is gone: deleted by someone, or expired while the store was out of reach."""

    reason: str


class TakenOver(Value):
    """Another node wrote the own key: `lease` is what it holds now, None if that is unreadable."""

    lease: Lease | None
    reason: str


OwnEvent = Held | Revoked | TakenOver
