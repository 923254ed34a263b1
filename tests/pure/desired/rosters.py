"""Rosters of a node, and leases of other nodes."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.inputs import Backend
from weft.desired.leasecheck import Ours
from weft.desired.roster import Roster
from weft.model.cluster import Malformed
from weft.model.errors import Problem
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import replace

OURS = Ours(
    networks=(builders.NETWORK_V4, builders.NETWORK_V6),
    subnets=(builders.subnet_v4(1), builders.subnet_v6(1)),
    addresses=frozenset({builders.public_v4(1), builders.public_v6(1), IPv4Address("10.5.200.9")}),
    prefixes=(IPv4Network("192.168.0.0/24"), IPv4Network("10.5.201.0/28"), IPv6Network("fd00::/64")),
    claims=frozenset({builders.mac(1)}),
)


def roster(backend: Backend = vxlan) -> Roster:
    return Roster(OURS, own_ids=["10.5.1.0-24"], claiming=backend.claims)


def peer(node: int, **changes: object) -> Lease:
    attrs = {key: changes.pop(key) for key in list(changes) if key in LeaseAttrs.__slots__}
    return replace(builders.lease(node, vxlan, **attrs), **changes)


def data(mac: object) -> dict[str, object]:
    return {"VNI": 1, "VtepMAC": str(mac)}


def nonsense(lease: Lease) -> Malformed:
    problem = Problem(code="ADDR-002", where=f"lease {lease.id}", seen="nonsense")
    return Malformed(id=lease.id, problem=problem, created=lease.created)


def listed(roster: Roster, leases: Iterable[Lease]) -> set[str]:
    """Take a complete list and judge all of it, as the daemon does in slices. Returns the ids whose service changes."""
    roster.note_list(leases)
    return roster.judge()


def changed(
    roster: Roster, *, put: Iterable[Lease] = (), gone: Iterable[str] = (), malformed: Iterable[Malformed] = ()
) -> set[str]:
    """Likewise."""
    roster.note(put=put, gone=gone, malformed=malformed)
    return roster.judge()
