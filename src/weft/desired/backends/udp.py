"""udp: inner packets as they are, one in each datagram, relayed by a process of ours (flannel.md §6.5). IPv4 only.

The kernel routes the whole network into a TUN device. The relay (`weft.forward`) knows which peer has which subnet,
and sends to the address that the peer's lease says, at a port that is the same for all. Where the kernel takes our
programs, these do what is usual between the device and the uplink, and the relay does the rest.
"""

from collections.abc import Collection, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Final

from weft.config.jsonfields import Fields
from weft.desired.inputs import Device, Inputs, check_room, options_of, refuse_ipv6, unusable
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.links import Attribute, Link, Tun
from weft.model.objects import Address, KernelState, Object, OnLink, Route
from weft.model.value import Value, put_in

DEVICE: Final = "flannel0"
OVERHEAD: Final = 28  # the outer IPv4 and UDP headers

_IN_KERNEL: Final = "Kernel"  # of a lease's data


class UdpOptions(Value):
    """`Backend` of type udp (flannel.md §6.5)."""

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


class Relay(OnLink):
    """The process that serves the device, with one socket for all peers."""

    local: IPv4Address
    port: int
    joined: bool = True  # the kernel may join datagrams for it, which programs before it do not understand

    rank = 6
    vital = True
    patience = 4.0
    unwanted = Link.unwanted
    code_if_refused = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("relay", self.dev))

    def __str__(self) -> str:
        return f"relay of {self.dev} from {self.local} port {self.port}"

    @property
    def code(self) -> str:
        return "VTEP-004"


class Forward(OnLink):
    """A subnet that the relay of `dev` knows: packets for it go to `via`."""

    dst: IPv4Network
    via: IPv4Address

    rank = 7
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("forward", self.dev, self.dst.network_address.packed, self.dst.prefixlen))

    def __str__(self) -> str:
        return f"forward {self.dst} by the relay of {self.dev} to {self.via}"

    @property
    def code(self) -> str:
        return "FDB-001"


class KernelPath(OnLink):
    """The programs at `dev` and at the uplink, which carry packets past the relay."""

    uplink: str
    local: IPv4Address
    port: int

    rank = 8
    patience = 4.0
    unwanted = "the configuration's Backend does not ask for it, or the kernel cannot"
    code_if_refused = "VTEP-004"

    def __post_init__(self) -> None:
        put_in(self, "key", ("kernelpath", self.dev))

    def __str__(self) -> str:
        return f"kernel path of {self.dev} by {self.uplink} from {self.local} port {self.port}"

    @property
    def code(self) -> str:
        return "VTEP-004"


class KernelForward(OnLink):
    """A subnet that these programs know: packets come from `via`, and go there unless the relay must send them."""

    dst: IPv4Network
    via: IPv4Address
    sends: bool

    rank = 9
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("kernelforward", self.dev, self.dst.network_address.packed, self.dst.prefixlen))

    def __str__(self) -> str:
        there = "to and from" if self.sends else "from"
        return f"forward {self.dst} by the kernel path of {self.dev} {there} {self.via}"

    @property
    def code(self) -> str:
        return "FDB-001"


def options(fields: Fields, families: Collection[int]) -> UdpOptions:
    """Read the options of `Backend`. Pods with IPv6 are refused, which flannel's udp has not either."""
    refuse_ipv6(fields, families, "udp")
    return fields.read(UdpOptions)


def check(inputs: Inputs) -> None:
    """Raise `ConfigError` when the uplink leaves too little for a packet in a datagram."""
    check_room(inputs, OVERHEAD, "a datagram")


def devices(_inputs: Inputs) -> Mapping[int, Device]:
    """One TUN device."""
    return {4: Device(DEVICE, TunLink)}


def mtu(inputs: Inputs) -> int:
    """What the outer headers leave of the uplink's."""
    return inputs.facts.uplink.mtu - OVERHEAD


def advertise(inputs: Inputs) -> LeaseAttrs:
    """Publish our address, and whether our kernel takes the datagrams; upstream's udp publishes no type and no data."""
    return LeaseAttrs(public_ip=inputs.facts.public_v4, data={_IN_KERNEL: True} if _in_kernel(inputs) else None)


def shared(inputs: Inputs) -> KernelState:
    """The device with the base of our subnet as its only address, the route of the network, and the relay."""
    local, network = inputs.facts.uplink.v4, inputs.netconf.v4
    if inputs.v4 is None or local is None or network is None:
        return frozenset()
    base, port = inputs.v4.network_address, options_of(inputs, UdpOptions).port
    in_kernel = _in_kernel(inputs)
    state: set[Object] = {
        TunLink(name=DEVICE, mtu=mtu(inputs)),
        Address(dev=DEVICE, ip=base, prefixlen=base.max_prefixlen),
        Route(dst=network.network, dev=DEVICE),
        Relay(dev=DEVICE, local=local, port=port, joined=not in_kernel),
    }
    if in_kernel:
        state.add(KernelPath(dev=DEVICE, uplink=inputs.facts.uplink.name, local=local, port=port))
    return frozenset(state)


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    """Who has the peer's subnet, for the relay and for the kernel.

    What the kernel sends, a program cannot always read: on a link within one machine it is not complete. So a peer that
    does not say that its own kernel takes it gets all from the relay.
    """
    attrs = lease.attrs
    if attrs.backend not in ("", "udp"):
        raise unusable(lease, f"backend {attrs.backend!r:.60}", "udp, as on this node, which publishes no type")
    if inputs.v4 is None or lease.v4 is None or attrs.public_ip is None:
        return frozenset()
    forward = Forward(dev=DEVICE, dst=lease.v4, via=attrs.public_ip)
    if not _in_kernel(inputs):
        return frozenset({forward})
    sends = isinstance(attrs.data, dict) and attrs.data.get(_IN_KERNEL) is True
    return frozenset({forward, KernelForward(dev=DEVICE, dst=lease.v4, via=attrs.public_ip, sends=sends)})


def _in_kernel(inputs: Inputs) -> bool:
    ways = inputs.prepared  # unknown before the start has come so far
    return isinstance(ways, Ways) and ways.in_kernel
