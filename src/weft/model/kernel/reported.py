"""Links, addresses, routes, neighbours, rules and shapers as the kernel reports them, in its own terms."""

from typing import Final

from weft.model.net import Ip, Mac, Net
from weft.model.value import Value


class BridgeInfo(Value):
    vlan_filtering: bool = False


FORWARDING: Final = 3  # BR_STATE_FORWARDING
_PORT_STATES: Final = ("disabled", "listening", "learning", "forwarding", "blocking")


class PortInfo(Value):
    """A port of a bridge. `state` is of linux/if_bridge.h (BR_STATE_…): 0 disabled, 3 forwarding, 4 blocking.

    A `locked` one takes frames only from MACs that an FDB entry of it names.
    """

    hairpin: bool = False
    isolated: bool = False
    locked: bool = False
    state: int = FORWARDING

    @property
    def state_words(self) -> str:
        return _PORT_STATES[self.state] if self.state < len(_PORT_STATES) else str(self.state)


class PortVlans(Value):
    index: int
    own: int = 0  # of frames that come in untagged (PVID)
    untagged: frozenset[int] = frozenset()
    tagged: frozenset[int] = frozenset()


# Of RFC 2863 and linux/if.h: not present, down, lower layer down. Many drivers say unknown, and carry packets.
NO_CARRIER: Final = frozenset((1, 2, 3))


class Counters(Value, gc=False):
    """Counts since the link was made. A packet that the kernel has joined of several counts once."""

    received_bytes: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    sent_packets: int = 0
    received_lost: int = 0  # errors and drops
    sent_lost: int = 0

    def reversed(self) -> "Counters":
        """The counts as the other end of a pair of links sees them."""
        return Counters(
            received_bytes=self.sent_bytes,
            sent_bytes=self.received_bytes,
            received_packets=self.sent_packets,
            sent_packets=self.received_packets,
            received_lost=self.sent_lost,
            sent_lost=self.received_lost,
        )


class LinkCounts(Value):
    name: str
    alias: str
    mtu: int
    counted: Counters


class LinkInfo(Value):
    """A network interface (linux/if_link.h); indexes are 0 for none."""

    index: int
    name: str
    kind: str = ""  # the driver's name (`veth`, `vxlan`), empty for hardware and loopback
    mtu: int = 0
    mac: Mac | None = None
    up: bool = False  # as the administrator has it
    loopback: bool = False
    point_to_point: bool = False
    promisc: bool = False
    allmulti: bool = False
    master: int = 0  # the index of its bridge
    link: int = 0  # the index of its peer or parent, in the namespace `peer_netns`
    peer_netns: int = -1  # a namespace id, -1 for its own
    operstate: int = 0  # RFC 2863; 6 is up
    queue_length: int = 0
    alias: str = ""
    data: bytes = b""  # IFLA_INFO_DATA as it came, but for a bridge, which counts time there
    bridge: BridgeInfo | None = None
    port: PortInfo | None = None
    xdp: int = 0  # the id of the program that is asked first


class AddressInfo(Value):
    """An address of an interface (linux/if_addr.h)."""

    index: int
    ip: Ip
    prefixlen: int
    peer: Ip | None = None  # the other end's, on a point-to-point link
    broadcast: Ip | None = None
    scope: int = 0  # 0 global, 253 link, 254 host
    label: str = ""
    permanent: bool = True
    secondary: bool = False
    tentative: bool = False
    dad_failed: bool = False
    deprecated: bool = False
    temporary: bool = False
    protocol: int = 0  # who made it (IFA_PROTO), 0 for unknown


class NextHop(Value):
    """`weight` counts from 1."""

    index: int
    via: Ip | None = None
    onlink: bool = False
    weight: int = 1


class RouteInfo(Value):
    """A route (linux/rtnetlink.h). `via`, `index` and `onlink` are a single next hop's; several are in `hops` alone."""

    dst: Net
    via: Ip | None = None
    index: int = 0
    onlink: bool = False
    kind: int = 1  # rtm_type: 1 unicast, 6 blackhole
    table: int = 254
    protocol: int = 0
    scope: int = 0
    priority: int = 0  # the kernel's number: 1024 for IPv6's default
    tos: int = 0
    src: Ip | None = None
    mtu: int = 0  # 0 if unset, as `advmss`
    advmss: int = 0
    hops: tuple[NextHop, ...] = ()


# States of a neighbour, a bit each (linux/neighbour.h).
NUD_INCOMPLETE: Final = 0x01
NUD_REACHABLE: Final = 0x02
NUD_STALE: Final = 0x04
NUD_DELAY: Final = 0x08
NUD_PROBE: Final = 0x10
NUD_FAILED: Final = 0x20
NUD_NOARP: Final = 0x40
NUD_PERMANENT: Final = 0x80


class NeighbourInfo(Value):
    index: int
    ip: Ip
    mac: Mac | None
    state: int  # NUD_…
    flags: int = 0
    protocol: int = 0


class FdbInfo(Value):
    """A forwarding entry of a VXLAN device or a bridge port: `mac` lives behind the VTEP `remote`."""

    index: int
    mac: Mac
    remote: Ip | None
    state: int
    flags: int = 0  # NTF_…: 0x02 the device's own, 0x10 learnt by a program
    master: int = 0
    port: int = 0  # this, `vni` and `via` (an index) are 0 unless they differ from the device's own
    vni: int = 0
    via: int = 0
    vlan: int = 0


class RuleInfo(Value):
    """A policy rule (linux/fib_rules.h)."""

    family: int
    priority: int
    action: int = 1  # 1: look into `table`
    table: int = 0
    src: Net | None = None
    dst: Net | None = None
    mark: int = 0
    mask: int = 0
    iif: str = ""
    oif: str = ""
    invert: bool = False
    protocol: int = 0
    more: bool = False  # it has conditions that no field holds


class Limit(Value):
    """At most `rate` bits a second, and `burst` bits at once beyond it (cni.md §6.2)."""

    rate: int
    burst: int


class Limits(Value):
    """`ingress` is towards the container, `egress` away from it."""

    ingress: Limit | None = None
    egress: Limit | None = None

    def __bool__(self) -> bool:
        return self.ingress is not None or self.egress is not None


class Bucket(Value):
    """A token bucket (tc-tbf(8))."""

    rate: int  # bytes a second
    limit: int  # of its queue, in bytes
    buffer: int  # in ticks
