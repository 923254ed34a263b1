"""A node's lease: its subnets, and what other nodes need to reach them."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, Literal

from weft.model.net import Endpoint, Ip, Net
from weft.model.value import Value

# Seconds that a lease lasts without renewal (flannel.md §4.3).
LEASE_TTL: Final = 86400


# What a node does with policies; empty where it does not say, as flanneld does not.
PolicyMode = Literal["", "enforce", "audit"]


class LeaseAttrs(Value, gc=False):
    """The part of a lease that its node publishes (flannel.md §4.2)."""

    public_ip: IPv4Address | None
    public_ipv6: IPv6Address | None = None
    backend: str = ""
    data: Any = None  # decoded JSON (for vxlan `{"VNI": 1, "VtepMAC": "aa:…"}`), None when absent
    data_v6: Any = None
    policies: PolicyMode = ""

    @property
    def publics(self) -> tuple[Ip, ...]:
        """IPv4 first."""
        return tuple(ip for ip in (self.public_ip, self.public_ipv6) if ip is not None)

    def __hash__(self) -> int:
        return hash((self.public_ip, self.public_ipv6, self.backend))  # what is JSON has no hash


WayKind = Literal["vxlan", "direct"]  # how a node sends packets to the next one: in clear, or by WireGuard


class Tunnel(Value, gc=False):
    """A peer's own WireGuard as this node reaches it: its key in base64, and where it is; None if it has to begin."""

    key: str
    endpoint: Endpoint | None = None
    keepalive: bool = False


class Way(Value, gc=False):
    """How this node reaches a peer, as its store says. With it a lease says all that the peer's objects need.

    Packets go to the next hop, the peer itself unless `via` another node, whose id that is. Of the hop are `kind`,
    `bases` and `hop_key`; of the peer in any case `remotes` and `tunnel`. `bases` and `remotes` hold at most
    one address a family.
    """

    kind: WayKind
    via: str = ""
    bases: tuple[Ip, ...] = ()  # the first addresses of the hop's subnets
    remotes: tuple[Ip, ...] = ()  # the peer's addresses outside of the tunnel
    hop_key: str = ""  # of its WireGuard; empty if it has none
    tunnel: Tunnel | None = None
    mtu: int = 0  # of an IP packet, on all of the way; 0 is the device's
    reason: str = ""  # why it is no better one

    def __str__(self) -> str:
        name = f"via {self.via} ({self.kind})" if self.via else self.kind
        return f"{name}: {self.reason}" if self.reason else name


class Lease(Value, gc=False):
    """One node's lease as the store holds it, and the way there if that is the store's to say."""

    id: str  # permanent (etcd: `10.5.1.0-24`; Kubernetes: the node's name), without a further meaning
    v4: IPv4Network | None
    v6: IPv6Network | None
    attrs: LeaseAttrs
    created: int = 0  # orders leases by age (etcd: create_revision; smaller is older)
    way: Way | None = None

    @property
    def subnets(self) -> tuple[Net, ...]:
        """IPv4 first."""
        if self.v6 is None:
            return () if self.v4 is None else (self.v4,)
        return (self.v6,) if self.v4 is None else (self.v4, self.v6)

    @property
    def remotes(self) -> tuple[Ip, ...]:
        """Its node's addresses outside of the tunnel, which packets are sent to."""
        return self.attrs.publics if self.way is None else self.way.remotes

    @property
    def dialled(self) -> tuple[Ip, ...]:
        """These, and where its WireGuard is."""
        tunnel = None if self.way is None else self.way.tunnel
        return self.remotes if tunnel is None or tunnel.endpoint is None else (*self.remotes, tunnel.endpoint.ip)
