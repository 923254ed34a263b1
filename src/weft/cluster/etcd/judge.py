"""Judges what the store holds: is it ours, is it free, whose is it. Asks nobody and writes nothing."""

from weft.cluster.etcd.values import Entry, Listing, OwnLease
from weft.desired.allocate import Present
from weft.model.errors import PeerError
from weft.model.lease import Lease, LeaseAttrs
from weft.wire.etcd import parse_id


def unchanged(recorded: OwnLease | None, listing: Listing) -> Entry | None:
    """Our own earlier key, if nobody has touched it since we wrote it (settled.md §5)."""
    if recorded is None:
        return None
    for entry in listing.entries:
        if entry.lease.id == recorded.lease.id:
            same = (entry.etcd_lease, entry.mod_revision) == (recorded.etcd_lease, recorded.mod_revision)
            return entry if same else None
    return None


def present(listing: Listing) -> Present:
    """What the choice of a subnet looks at."""
    reserved = frozenset(entry.lease.id for entry in listing.entries if not entry.etcd_lease)
    return Present(leases=listing.leases, reserved=reserved, unreadable=listing.blocked)


def overlaps(name: str, lease: Lease) -> bool:
    """Tell whether the key `name` stands for a subnet that overlaps one of `lease`."""
    try:
        others = parse_id(name)
    except PeerError:
        return False
    return any(
        other is not None and other.version == net.version and other.overlaps(net)
        for other in others
        for net in lease.subnets
    )


def is_bare(entry: Entry, attrs: LeaseAttrs) -> bool:
    """Tell whether the entry names our address and nothing more, as an operator's reservation does."""
    theirs = entry.lease.attrs
    address = theirs.public_ip == attrs.public_ip and theirs.public_ipv6 in (None, attrs.public_ipv6)
    return address and theirs.data is None and theirs.data_v6 is None


def who(lease: Lease) -> str:
    """What a lease says of its node besides the address, for a message."""
    mac = lease.attrs.data.get("VtepMAC") if isinstance(lease.attrs.data, dict) else None
    return f"backend {lease.attrs.backend or 'unknown'}" + (f", VTEP MAC {mac!s:.20}" if mac else "")
