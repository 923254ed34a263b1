"""What the kernel reports of links, addresses, routes, neighbours and rules, in its own terms.

`weft.model.kernel.objects` says what we manage. Plugins need these without those.
"""

from typing import Final

from weft.model.net import Ip, Mac, Net
from weft.model.value import Value


class BridgeInfo(Value):
    vlan_filtering: bool = False


class PortInfo(Value):
    hairpin: bool = False
    isolated: bool = False


class PortVlans(Value):
    """A port's VLANs by id. `own` is that of frames that come in untagged (PVID), 0 for none."""

    index: int
    own: int = 0
    untagged: frozenset[int] = frozenset()
    tagged: frozenset[int] = frozenset()


# Of RFC 2863 and linux/if.h: not present, down, lower layer down. Many drivers say unknown, and carry packets.
NO_CARRIER: Final = frozenset((1, 2, 3))


class Counters(Value, gc=False):
    """What a link has counted since it was made; `lost` is what it dropped or could not take or send.

    A packet that the kernel has joined of several, or has still to split, counts once.
    """

    received_bytes: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    sent_packets: int = 0
    received_lost: int = 0
    sent_lost: int = 0

    def reversed(self) -> "Counters":
        """As the other end of a pair of links sees it."""
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
    """A network interface (linux/if_link.h).

    `kind` is the driver's name (`veth`, `bridge`, `vxlan`, `tun`), empty for hardware and loopback. `up` is what the
    administrator set, `operstate` the kernel's number (RFC 2863; 6 is up). `master` is its bridge's index, `link` that
    of its peer or parent, 0 for none; with `peer_netns` (a namespace id, -1 for none) in another namespace. `data` are
    its driver's own settings as they came (IFLA_INFO_DATA), but a bridge's, which counts time there.
    """

    index: int
    name: str
    kind: str = ""
    mtu: int = 0
    mac: Mac | None = None
    up: bool = False
    loopback: bool = False
    point_to_point: bool = False
    promisc: bool = False
    allmulti: bool = False
    master: int = 0
    link: int = 0
    peer_netns: int = -1
    operstate: int = 0
    queue_length: int = 0
    alias: str = ""
    data: bytes = b""
    bridge: BridgeInfo | None = None
    port: PortInfo | None = None


class AddressInfo(Value):
    """An address of an interface (linux/if_addr.h). `peer` is the other end's on point-to-point links.

    `scope` is 0 for global, 253 for link, 254 for host. `protocol` says who made it (IFA_PROTO, 0 unknown).
    """

    index: int
    ip: Ip
    prefixlen: int
    peer: Ip | None = None
    broadcast: Ip | None = None
    scope: int = 0
    label: str = ""
    permanent: bool = True
    secondary: bool = False
    tentative: bool = False
    dad_failed: bool = False
    deprecated: bool = False
    temporary: bool = False
    protocol: int = 0


class NextHop(Value):
    """`weight` counts from 1."""

    index: int
    via: Ip | None = None
    onlink: bool = False
    weight: int = 1


class RouteInfo(Value):
    """A route (linux/rtnetlink.h). `kind` is rtm_type: 1 unicast, 6 blackhole.

    `via`, `index` and `onlink` are those of a single next hop; several are in `hops` alone. `priority` is the kernel's
    number, so 1024 where IPv6 has its default. `mtu` and `advmss` are 0 if unset.
    """

    dst: Net
    via: Ip | None = None
    index: int = 0
    onlink: bool = False
    kind: int = 1
    table: int = 254
    protocol: int = 0
    scope: int = 0
    priority: int = 0
    tos: int = 0
    src: Ip | None = None
    mtu: int = 0
    advmss: int = 0
    hops: tuple[NextHop, ...] = ()


class NeighbourInfo(Value):
    """`state` is NUD_…: 0x80 permanent, 0x40 needs no ARP (linux/neighbour.h)."""

    index: int
    ip: Ip
    mac: Mac | None
    state: int
    flags: int = 0
    protocol: int = 0


class FdbInfo(Value):
    """A forwarding entry of a VXLAN device or a bridge port: `mac` lives behind the VTEP `remote`.

    `port`, `vni` and `via` (an interface index) are 0 unless they differ from the device's own. `flags` is NTF_…: 0x02
    the device's own, 0x10 learnt by someone outside the kernel.
    """

    index: int
    mac: Mac
    remote: Ip | None
    state: int
    flags: int = 0
    master: int = 0
    port: int = 0
    vni: int = 0
    via: int = 0
    vlan: int = 0


class RuleInfo(Value):
    """A policy rule (linux/fib_rules.h). `action` 1 looks into `table`. `more`: it asks for what no field says."""

    family: int
    priority: int
    action: int = 1
    table: int = 0
    src: Net | None = None
    dst: Net | None = None
    mark: int = 0
    mask: int = 0
    iif: str = ""
    oif: str = ""
    invert: bool = False
    protocol: int = 0
    more: bool = False
