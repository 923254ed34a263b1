"""Judges what the store holds: whose is it, and is it the store that we know. Sends and writes nothing."""

import json
from collections.abc import Mapping

from weft.cluster.etcd.values import Entry, mark_in
from weft.model.cluster import Listed, Token
from weft.model.errors import PeerError
from weft.model.lease import Lease, LeaseAttrs
from weft.wire.etcd import parse_id


def overlaps(name: str, lease: Lease) -> bool:
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
    """As an operator's reservation is: our address and nothing more."""
    theirs = entry.lease.attrs
    address = theirs.public_ip == attrs.public_ip and theirs.public_ipv6 in (None, attrs.public_ipv6)
    return address and theirs.data is None and theirs.data_v6 is None


def continues(mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
    """Tell whether a list can come from the history in which we knew the leases `made` at `mark`.

    Revisions that went back show that it cannot. Where new writes have made up for the lost ones, so may the leases:
    at the revision that we know nothing can be missing, and what we know cannot have been made again before it.
    """
    known, now = mark_in(mark), mark_in(listed.mark or ())
    if known is None or now is None:
        return True
    if not known.precedes(now):
        return False
    there = {lease.id: lease.created for lease in (*listed.leases, *listed.own)}
    missing = made.keys() - there.keys() - {entry.id for entry in listed.malformed}
    if now.revision == known.revision and missing:
        return False
    return all(there[name] > known.revision or there[name] == made[name] for name in made.keys() & there.keys())


def who(lease: Lease) -> str:
    """What a lease says of its node besides the address, for a message."""
    data = "" if lease.attrs.data is None else f", data {json.dumps(lease.attrs.data):.80}"
    return f"backend {lease.attrs.backend or 'unknown'}{data}"
