"""udp: inner packets as they are, one in each datagram, relayed by a process of ours (flannel.md §6.5).

The kernel routes the whole networks into a TUN device. The relay (`weft.forward`) knows which peer has which subnet,
and sends to the address that the peer's lease says, at a port that is the same for all. Where the kernel takes our
programs, these do what is usual of IPv4 between the device and the uplink, and the relay does the rest.

A datagram has one packet, of IPv4 or IPv6; upstream's have IPv4 alone. Datagrams are of IPv4, and of IPv6 in a network
without IPv4.
"""

from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Annotated, Final

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs, check_room, options_of, unusable
from weft.model.kernel.links import Attribute, Link, Tun
from weft.model.kernel.objects import Address, KernelState, Object, OnLink, Route, Sysctl
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net
from weft.model.value import Value, put_in, replace

DEVICE: Final = "flannel0"
OVERHEAD: Final = {4: 28, 6: 48}  # the outer IP and UDP headers

_IN_KERNEL: Final = "Kernel"  # of a lease's data


class UdpOptions(Value):
    """flannel.md §6.5."""

    port: Annotated[int, Key("Port", "The UDP port of all nodes.", default="8285", least=1, most=65535)] = 8285
    kernel_path: Annotated[
        bool, Key("KernelPath", "Have the kernel carry packets itself, where it can; weft's own.", default="true")
    ] = True


class Ways(Value):
    """Whether this node's kernel takes our programs."""

    in_kernel: bool


class TunLink(Tun):
    """The relay's, with a header before each packet that tells of offloads."""

    queues: int = 1
    vnet_header: int = 1

    attributes = (*Tun.attributes, Attribute("vnet_header", 5, "u8"))
    foreign = frozenset((4,))  # IFLA_TUN_PI


LINKS = (TunLink,)
claims = addresses


class Relay(OnLink):
    """The process that serves the device, with one socket for all peers."""

    local: Ip
    port: int
    joined: bool = True  # the kernel may join datagrams for it, which programs before it do not understand
    own6: IPv6Address | None = None  # from where it tells of errors about IPv6

    rank = 6
    code_if_changed = "VTEP-004"
    vital = True
    patience = 4.0
    unwanted = Link.unwanted
    code_if_refused = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("relay", self.dev))

    def __str__(self) -> str:
        errors = "" if self.own6 is None else f", errors from {self.own6}"
        return f"relay of {self.dev} from {self.local} port {self.port}{errors}"


class Forward(OnLink):
    """A subnet that the relay of `dev` knows: packets for it go to `via`."""

    dst: Net
    via: Ip

    rank = 7
    code_if_changed = "FDB-001"
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("forward", self.dev, self.dst.network_address.packed, self.dst.prefixlen))

    def __str__(self) -> str:
        return f"forward {self.dst} by the relay of {self.dev} to {self.via}"


class KernelPath(OnLink):
    """The programs at `dev` and at the uplink, which carry packets past the relay."""

    uplink: str
    local: IPv4Address
    port: int

    rank = 8
    code_if_changed = "VTEP-004"
    patience = 4.0
    unwanted = "the configuration's Backend does not ask for it, or the kernel cannot"
    code_if_refused = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("kernelpath", self.dev))

    def __str__(self) -> str:
        return f"kernel path of {self.dev} by {self.uplink} from {self.local} port {self.port}"


class KernelForward(OnLink):
    """A subnet that these programs know: packets come from `via`, and go there unless the relay must send them."""

    dst: IPv4Network
    via: IPv4Address
    sends: bool

    rank = 9
    code_if_changed = "FDB-001"
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("kernelforward", self.dev, self.dst.network_address.packed, self.dst.prefixlen))

    def __str__(self) -> str:
        there = "to and from" if self.sends else "from"
        return f"forward {self.dst} by the kernel path of {self.dev} {there} {self.via}"


def options(fields: Fields, families: Collection[int]) -> UdpOptions:
    """The kernel's programs know datagrams of IPv4 alone."""
    read = fields.read(UdpOptions)
    return read if 4 in families else replace(read, kernel_path=False)


def check(inputs: Inputs) -> None:
    check_room(inputs, OVERHEAD[_outer(inputs)], "a datagram")


def devices(inputs: Inputs) -> Sequence[Device]:
    return (Device(DEVICE, TunLink, frozenset(inputs.netconf.families)),)


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu - OVERHEAD[_outer(inputs)]


def advertise(inputs: Inputs) -> LeaseAttrs:
    """Publish our address, and whether our kernel takes the datagrams; upstream's udp publishes no type and no data.

    An IPv6 address says that our relay carries IPv6: upstream's, which does not, publishes none.
    """
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None,
        data={_IN_KERNEL: True} if _in_kernel(inputs) else None,
    )


def shared(inputs: Inputs) -> KernelState:
    """The device has the bases of our subnets as its only addresses."""
    uplink = inputs.facts.uplink
    local = uplink.v4 if _outer(inputs) == 4 else uplink.v6
    if (inputs.v4 is None and inputs.v6 is None) or local is None:
        return frozenset()
    port = options_of(inputs, UdpOptions).port
    in_kernel = _in_kernel(inputs)
    own6 = None if inputs.v6 is None else inputs.v6.network_address
    state: set[Object] = {
        TunLink(name=DEVICE, mtu=mtu(inputs)),
        Relay(dev=DEVICE, local=local, port=port, joined=not in_kernel, own6=own6),
    }
    for subnet, pool in ((inputs.v4, inputs.netconf.v4), (inputs.v6, inputs.netconf.v6)):
        if subnet is not None and pool is not None:
            base = subnet.network_address
            state |= {
                Address(dev=DEVICE, ip=base, prefixlen=base.max_prefixlen),
                Route(dst=pool.network, dev=DEVICE),
            }
    if own6 is not None:
        state.add(Sysctl(name=f"net/ipv6/conf/{DEVICE}/accept_ra", value="0"))
    if in_kernel and isinstance(local, IPv4Address):
        state.add(KernelPath(dev=DEVICE, uplink=uplink.name, local=local, port=port))
    return frozenset(state)


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    """Who has the peer's subnets, for the relay and, of IPv4, for the kernel.

    What the kernel sends, a program cannot always read: on a link within one machine it is not complete. So a peer that
    does not say that its own kernel takes it gets all from the relay.
    """
    attrs = lease.attrs
    if attrs.backend not in ("", "udp"):
        raise unusable(lease, f"backend {attrs.backend!r:.60}", "udp, as on this node, which publishes no type")
    via = attrs.public_ip if _outer(inputs) == 4 else attrs.public_ipv6
    if via is None:
        return frozenset()
    state: set[Object] = set()
    if inputs.v4 is not None and lease.v4 is not None:
        state.add(Forward(dev=DEVICE, dst=lease.v4, via=via))
    # In dual stack upstream's nodes have an IPv6 subnet, too, and their relay garbles IPv6 packets.
    if inputs.v6 is not None and lease.v6 is not None and attrs.public_ipv6 is not None:
        state.add(Forward(dev=DEVICE, dst=lease.v6, via=via))
    if isinstance(via, IPv4Address) and inputs.v4 is not None and lease.v4 is not None and _in_kernel(inputs):
        sends = isinstance(attrs.data, dict) and attrs.data.get(_IN_KERNEL) is True
        state.add(KernelForward(dev=DEVICE, dst=lease.v4, via=via, sends=sends))
    return frozenset(state)


def _in_kernel(inputs: Inputs) -> bool:
    ways = inputs.prepared  # unknown before the start has come so far
    return isinstance(ways, Ways) and ways.in_kernel


def _outer(inputs: Inputs) -> int:
    """The family of datagrams: that which upstream's have, where the network has it."""
    return 4 if inputs.netconf.v4 is not None else 6
