"""ipip: one tunnel device for all peers, a route to each through its address (flannel.md §6.4). IPv4 only.

The device has no fixed other end: the gateway of each route is the underlay address that the outer header gets.
With DirectRouting, a peer on the uplink's own segment gets its route on the uplink instead.
"""

from collections.abc import Collection, Sequence
from typing import Final

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, DirectRouting, Inputs, check_room, check_type, options_of, refuse_ipv6
from weft.model.kernel.links import Attribute, Link
from weft.model.kernel.objects import Address, KernelState, Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip
from weft.model.value import Value

DEVICE: Final = "flannel.ipip"
OVERHEAD: Final = 20  # the outer IPv4 header


class IpipOptions(Value):
    """flannel.md §6.4."""

    direct_routing: DirectRouting = False


class IpipLink(Link):
    """A tunnel of IPv4 in IPv4 to whatever address a route says, of any inner protocol (linux/if_tunnel.h)."""

    local: Ip
    protocol: int = 0
    path_mtu_discovery: int = 0  # the inner packet's own bit counts

    kind = "ipip"
    advice = "The kernel may lack ipip: see `modprobe ipip`. Or another tunnel has the address: see `ip tunnel show`"
    attributes = (
        Attribute("local", 2, "ip4"),  # IFLA_IPTUN_LOCAL
        Attribute("protocol", 9, "u8"),  # IFLA_IPTUN_PROTO
        Attribute("path_mtu_discovery", 10, "u8"),  # IFLA_IPTUN_PMTUDISC
    )
    foreign = frozenset((3, 4, 5, 19))  # IFLA_IPTUN_REMOTE, _TTL, _TOS, _COLLECT_METADATA

    def __str__(self) -> str:
        return f"link {self.name} ipip local {self.local} mtu {self.mtu}"


LINKS = (IpipLink,)
claims = addresses


def options(fields: Fields, families: Collection[int]) -> IpipOptions:
    """Pods with IPv6 are refused: flannel's ipip fails for them (Q-37)."""
    refuse_ipv6(fields, families, "ipip")
    return fields.read(IpipOptions)


def check(inputs: Inputs) -> None:
    check_room(inputs, OVERHEAD, "the tunnel")


def devices(_inputs: Inputs) -> Sequence[Device]:
    return (Device(DEVICE, IpipLink, frozenset({4})),)


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu - OVERHEAD


def advertise(inputs: Inputs) -> LeaseAttrs:
    return LeaseAttrs(public_ip=inputs.facts.public_v4, backend="ipip")


def shared(inputs: Inputs) -> KernelState:
    """The tunnel has the base of our subnet as its only address."""
    local = inputs.facts.uplink.v4  # behind NAT the public address is none of ours
    if inputs.v4 is None or local is None:
        return frozenset()
    base = inputs.v4.network_address
    return frozenset(
        {
            IpipLink(name=DEVICE, mtu=mtu(inputs), local=local),
            Address(dev=DEVICE, ip=base, prefixlen=base.max_prefixlen),
        }
    )


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    attrs = lease.attrs
    check_type(lease, "ipip")
    if inputs.v4 is None or lease.v4 is None or attrs.public_ip is None:
        return frozenset()
    facts = inputs.facts
    direct = options_of(inputs, IpipOptions).direct_routing and facts.is_on_link(attrs.public_ip)
    dev = facts.uplink.name if direct else DEVICE
    return frozenset({Route(dst=lease.v4, via=attrs.public_ip, dev=dev, onlink=True)})
