"""What a backend may look at, and what a backend is."""

from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Final, NamedTuple, Protocol, TypeVar

from weft.config import netconf
from weft.config.jsonfields import Fields
from weft.config.netconf import NetConf
from weft.desired.claims import Claim
from weft.model.errors import ConfigError, PeerError, Problem
from weft.model.kernel.links import Link
from weft.model.kernel.objects import KernelState
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs, PolicyMode
from weft.model.net import Ip, Mac, Net
from weft.model.value import Value, replace

LEAST_MTU: Final = {4: 68, 6: 1280}  # RFC 791; RFC 8200 §5: below it the kernel turns IPv6 off on a device
_OptionsT = TypeVar("_OptionsT", bound=Value)
# An option of several back ends.
DirectRouting = Annotated[
    bool, Key("DirectRouting", "Reach a peer on the uplink's own segment by a plain route, as `host-gw` does.")
]


class Uplink(Value):
    """The link that carries traffic between nodes, and our address of each family on it."""

    name: str
    index: int
    mtu: int
    v4: IPv4Address | None = None
    v6: IPv6Address | None = None


class Facts(Value):
    """What this machine is, as far as the network cares.

    `public_v4` and `public_v6` are what peers dial: the uplink's own address unless the user said otherwise.
    `onlink` holds the prefixes that the uplink reaches without a gateway.
    """

    uplink: Uplink
    public_v4: IPv4Address | None
    public_v6: IPv6Address | None
    onlink: tuple[Net, ...] = ()

    def is_on_link(self, ip: Ip) -> bool:
        """Without a gateway."""
        return any(ip in prefix for prefix in self.onlink)


class Inputs(Value):
    """All that decides what this node's kernel should hold, but for the peers.

    `v4` and `v6` are our own subnets, None before the lease is known or where the family is off.
    `mac_v4` and `mac_v6` are made once per node and kept on disk. `former_networks` are those of the configuration
    before this one, whose routes may still be there. `forwarding` are the families (4, 6) in which this machine was
    seen to forward packets: pods need it to go on. `node_links` are the names of the links that its pods share.
    `relays`: in a mesh, packets of other nodes' pods may pass.
    `prepared` is what the back end needed before there was a lease, as keys; None for most. With `policies` bridged
    packets have to pass the packet filter.
    """

    netconf: NetConf
    backend: "Backend"
    facts: Facts
    mac_v4: Mac
    mac_v6: Mac
    v4: IPv4Network | None = None
    v6: IPv6Network | None = None
    former_networks: tuple[Net, ...] = ()
    forwarding: frozenset[int] = frozenset()
    node_links: frozenset[str] = frozenset()
    prepared: Value | None = None
    ip_masq: bool = False
    random_fully: bool = True
    forward_rules: bool = True
    blackhole_route: bool = False
    relays: bool = True
    policies: PolicyMode = ""

    @property
    def attrs(self) -> LeaseAttrs:
        """What this node publishes of itself."""
        attrs: LeaseAttrs = replace(self.backend.advertise(self), policies=self.policies)
        return attrs


def options_of(inputs: Inputs, kind: type[_OptionsT]) -> _OptionsT:
    """Raises `TypeError` for those of another back end."""
    found = inputs.netconf.options
    if not isinstance(found, kind):
        raise TypeError(f"{kind.__name__.removesuffix('Options').lower()} got {type(found).__name__}")
    return found


def unusable(lease: Lease, seen: str, expected: str, hint: str = "") -> PeerError:
    return PeerError(Problem(code="ADDR-002", where=f"lease {lease.id}", seen=seen, expected=expected, hint=hint))


def check_type(lease: Lease, name: str) -> None:
    if lease.attrs.backend != name:
        raise unusable(lease, f"backend {lease.attrs.backend!r:.60}", f"{name}, as on this node")


def refuse_ipv6(fields: Fields, families: Collection[int], name: str) -> None:
    """Note a problem where pods are to have IPv6, for a back end that carries IPv4 alone."""
    if 6 in families:
        fields.problem(
            "Type",
            f"{name}, with EnableIPv6",
            expected="a back end that carries IPv6, as vxlan or host-gw",
            hint="Or turn EnableIPv6 off",
        )


def check_room(inputs: Inputs, overhead: int, place: str) -> None:
    """Raise `ConfigError` when `overhead` bytes leave too little of the uplink's MTU in `place` for a family."""
    uplink = inputs.facts.uplink
    least = max(LEAST_MTU[family] for family in inputs.netconf.families)
    if uplink.mtu - overhead < least:
        raise ConfigError(
            Problem(
                code="MTU-001",
                where=f"MTU of {uplink.name}",
                seen=f"{uplink.mtu} leaves {uplink.mtu - overhead} bytes in {place}",
                expected=f"at least {least + overhead}",
                hint="Raise the MTU of the uplink" + (", or turn IPv6 off" if len(inputs.netconf.families) > 1 else ""),
            )
        )


class Device(NamedTuple):
    """A device of a back end, which carries pods' packets of these `families`.

    Without one that is `vital` no peer is reached; of another one nothing waits for it.
    """

    name: str
    kind: type[Link]
    families: frozenset[int]
    vital: bool = True


class Backend(netconf.Backend, Protocol):
    """A module with these names is a backend; `weft.desired.backends.BACKENDS` lists them."""

    @property
    def LINKS(self) -> Sequence[type[Link]]:  # noqa: N802 - a constant of the module
        ...

    @property
    def check(self) -> Callable[[Inputs], None]:
        """Raise `ConfigError` when this machine cannot run the backend as configured."""
        ...

    @property
    def devices(self) -> Callable[[Inputs], Sequence[Device]]:
        """Any number, whether or not the lease is known. A family's first with a MAC has the node's for that family."""
        ...

    @property
    def mtu(self) -> Callable[[Inputs], int]:
        """Bytes of an IP packet (FLANNEL_MTU)."""
        ...

    @property
    def advertise(self) -> Callable[[Inputs], LeaseAttrs]: ...

    @property
    def claims(self) -> Callable[[LeaseAttrs], tuple[Claim, ...]]:
        """What only one node can have, in values that compare; what cannot be read is left out."""
        ...

    @property
    def shared(self) -> Callable[[Inputs], KernelState]:
        """A device, its addresses."""
        ...

    @property
    def peer(self) -> Callable[[Inputs, Lease], KernelState]:
        """Raises `PeerError` when the lease's data cannot be used."""
        ...
