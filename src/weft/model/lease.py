"""A node's lease: its subnets, and what other nodes need to reach them."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

from weft.model.net import Net
from weft.model.value import Value

# Seconds that a lease lasts without renewal (flannel.md §4.3).
LEASE_TTL: Final = 86400


class LeaseAttrs(Value, gc=False):
    """The part of a lease that its node publishes (flannel.md §4.2)."""

    public_ip: IPv4Address | None
    public_ipv6: IPv6Address | None = None
    backend: str = ""
    data: Any = None  # decoded JSON (for vxlan `{"VNI": 1, "VtepMAC": "aa:…"}`), None when absent
    data_v6: Any = None

    def __hash__(self) -> int:
        return hash((self.public_ip, self.public_ipv6, self.backend))  # what is JSON has no hash


class Lease(Value, gc=False):
    """One node's lease as the store holds it."""

    id: str  # permanent (etcd: `10.5.1.0-24`; Kubernetes: the node's name), without a further meaning
    v4: IPv4Network | None
    v6: IPv6Network | None
    attrs: LeaseAttrs
    created: int = 0  # orders leases by age (etcd: create_revision; smaller is older)

    @property
    def subnets(self) -> tuple[Net, ...]:
        """IPv4 first."""
        if self.v6 is None:
            return () if self.v4 is None else (self.v4,)
        return (self.v6,) if self.v4 is None else (self.v4, self.v6)
