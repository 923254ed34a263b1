"""What weft puts into the kernel, as values, and a snapshot of this machine's network.

Two objects with one `key` are two states of the same thing: `plan.diff` needs no more. Devices are named, not numbered,
because a recreated device has another index. A class also says what plan, log and repairs need to know of its kind.

Keys are made once: thousands of objects are looked up by them.
"""

from collections.abc import Mapping
from typing import Final

from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING, MAIN_TABLE
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo
from weft.model.net import Ip, Mac, Net, number_of, within
from weft.model.value import Value, field, put_in

# A key starts with the kind of object; the rest is what the kernel compares.
Key = tuple[str | int | bytes, ...]
_MASQ: Final = "--ip-masq"
_FORWARD: Final = "--iptables-forward-rules"


class Ownership(Value):
    """What is one daemon's among the things with weft's mark: two daemons may serve two networks on one node.

    A daemon owns its devices, what sits on them, and routes into its networks, those of the configuration before
    included.
    """

    devices: frozenset[str]
    networks: tuple[Net, ...]
    node_links: frozenset[str] = frozenset()

    def leads_to(self, net: Net) -> bool:
        return any(within(net, network) for network in self.networks)


class Object(Value, gc=False):
    """A thing in the kernel. Kinds are added in order of `rank` and removed in reverse."""

    key: Key = ()

    rank = 0
    unwanted = "no setting asks for it"
    code_if_changed = ""  # of changing it back
    code_if_gone = ""  # of putting it back; the same code if empty
    code_if_unwanted = "ROUTE-002"  # of removing it
    code_if_refused = "VTEP-002"
    advice = "See `ip -d link show`"  # to people, where it is refused
    vital = False  # without it no peer is reached
    port = 0  # the UDP port at which it listens
    patience = 60.0  # the longest pause, in seconds, between two tries to put what is refused

    def __hash__(self) -> int:
        return hash(self.key)

    def code_of_repair(self, *, gone: bool) -> str:
        """Of changing it back, or of putting it back where it is gone."""
        return (self.code_if_gone if gone else "") or self.code_if_changed

    @property
    def link(self) -> str | None:
        """The link whose removal removes it; None for what stays, and for a link itself."""
        return None

    def took_others_along(self) -> bool:
        """Tell whether its last change may have removed other objects without a notice."""
        return False

    def is_within(self, ownership: Ownership) -> bool:
        """Tell whether this daemon owns it."""
        raise NotImplementedError

    def reason(self) -> str:
        """The setting that asks for it, in words; empty for what serves a peer."""
        return "the configuration's Backend, with our lease and uplink"


class Sysctl(Object):
    """A setting below /proc/sys: `name` has slashes (`net/ipv6/conf/flannel.1/accept_ra`)."""

    name: str
    value: str

    rank = 1

    def __post_init__(self) -> None:
        put_in(self, "key", ("sysctl", self.name))

    def __str__(self) -> str:
        return f"sysctl {self.name}={self.value}"

    def code_of_repair(self, *, gone: bool) -> str:  # noqa: ARG002 - the same for both
        if self.name in BRIDGE_NETFILTER.values():
            return "POL-002"
        return "KERN-002" if self.name in FORWARDING.values() else "VTEP-003"

    @property
    def link(self) -> str | None:
        if not self.name.startswith(("net/ipv4/conf/", "net/ipv6/conf/")):
            return None
        name = self.name.split("/")[3]
        return None if name in ("all", "default") else name

    def is_within(self, ownership: Ownership) -> bool:
        return self.link is None or self.link in ownership.devices

    def reason(self) -> str:
        if self.name in FORWARDING.values():
            return "pods here, or peers of a mesh, need this machine to forward"
        if self.name in BRIDGE_NETFILTER.values():
            return "--network-policy"
        if self.name.endswith("accept_ra"):
            return "a VTEP takes no addresses from router advertisements"
        return "peers of a mesh may send by this machine to others"


class OnLink(Object):
    """It belongs to the daemon of the link `dev`."""

    dev: str

    @property
    def link(self) -> str:
        return self.dev

    def is_within(self, ownership: Ownership) -> bool:
        return self.dev in ownership.devices


class Address(OnLink):
    """Scope global, no label, no broadcast."""

    ip: Ip
    prefixlen: int

    rank = 2
    code_if_changed = "VTEP-001"
    vital = True
    unwanted = "the configuration's Backend and our lease do not ask for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("address", self.dev, number_of(self.ip), self.prefixlen))

    def __str__(self) -> str:
        return f"address {self.ip}/{self.prefixlen} dev {self.dev}"

    def is_within(self, ownership: Ownership) -> bool:
        """Not an IPv4 address outside our networks, nor a link-local one, which is the kernel's (flannel.md §6.1)."""
        if not super().is_within(ownership):
            return False
        if self.ip.version == 6:
            return not self.ip.is_link_local
        return any(self.ip in network for network in ownership.networks)


class Neighbour(OnLink):
    """A permanent neighbour."""

    ip: Ip
    mac: Mac

    rank = 3
    code_if_changed = "FDB-001"
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("neighbour", self.dev, number_of(self.ip)))

    def __str__(self) -> str:
        return f"neighbour {self.ip} lladdr {self.mac!s} dev {self.dev}"


class FdbEntry(OnLink):
    """A VTEP's permanent entry: the underlay address behind which `mac` lives."""

    mac: Mac
    remote: Ip

    rank = 4
    code_if_changed = "FDB-001"
    unwanted = Neighbour.unwanted

    def __post_init__(self) -> None:
        put_in(self, "key", ("fdb", self.dev, self.mac))

    def __str__(self) -> str:
        return f"fdb {self.mac!s} dev {self.dev} dst {self.remote}"


class Route(Object):
    dst: Net
    via: Ip | None = None  # None for a link-scope route
    dev: str = ""  # empty for a blackhole
    onlink: bool = False
    blackhole: bool = False
    table: int = MAIN_TABLE
    priority: int = 0  # the metric; 0 is the kernel's default (IPv4: 0, IPv6: 1024)
    scope: int = 0  # of an IPv4 route with a gateway; all below site (200) mean the same
    source: Ip | None = None  # of what this node itself sends, if it chooses no other; its address must be there
    mtu: int = 0  # of packets by this route; 0 is the device's

    rank = 5
    code_if_changed = "ROUTE-001"
    unwanted = Neighbour.unwanted

    def __post_init__(self) -> None:
        dst = self.dst
        key = ("route", self.table, number_of(dst.network_address), dst.prefixlen, self.priority)
        put_in(self, "key", key)

    def __str__(self) -> str:
        rest = "".join(
            f" {name} {value}"
            for name, value, usual in (
                ("table", self.table, MAIN_TABLE),
                ("metric", self.priority, 0),
                ("scope", self.scope, 0),
                ("src", self.source, None),
                ("mtu", self.mtu, 0),
            )
            if value != usual
        )
        if self.blackhole:
            return f"route blackhole {self.dst}{rest}"
        if not self.dev:
            return f"route {self.dst} without a way out{rest}"
        via = "" if self.via is None else f" via {self.via}"
        return f"route {self.dst}{via} dev {self.dev}{' onlink' if self.onlink else ''}{rest}"

    @property
    def link(self) -> str | None:
        return self.dev or None

    def is_within(self, ownership: Ownership) -> bool:
        """Ours are in the main table: one in another table is an administrator's, whatever its protocol."""
        return self.table == MAIN_TABLE and (self.dev in ownership.devices or ownership.leads_to(self.dst))

    def reason(self) -> str:
        return "--ip-blackhole-route" if self.blackhole else super().reason()


KernelState = frozenset[Object]
Objects = Mapping[Key, Object]


class Snapshot(Value):
    """This machine's network at one moment."""

    links: tuple[LinkInfo, ...] = ()
    addresses: tuple[AddressInfo, ...] = ()
    routes: tuple[RouteInfo, ...] = ()  # the main table's, without ours
    ours: dict[Key, Object] = field(default_factory=dict)  # all with our mark

    def link(self, which: str | int) -> LinkInfo | None:
        return next((link for link in self.links if which in (link.name, link.index)), None)

    @property
    def ips(self) -> frozenset[Ip]:
        return frozenset(address.ip for address in self.addresses)

    def addresses_of(self, index: int) -> tuple[AddressInfo, ...]:
        return tuple(address for address in self.addresses if address.index == index)


class Chain(Value):
    name: str
    rules: tuple[str, ...]  # in the tool's own syntax
    table: str = ""  # of iptables: `nat` or `filter`
    hook: str = ""  # nft's text behind `chain NAME {`: `type nat hook postrouting priority srcnat; …`
    comment: str = ""
    jump_from: str = ""  # the built-in chain of iptables that jumps here
    jump: str = ""


class RuleSet(Object):
    """Our rules of one kind (`nft` or `iptables`) and family (4 or 6)."""

    kind: str
    family: int
    chains: tuple[Chain, ...] = ()

    rank = 6
    code_if_changed = code_if_unwanted = "NFT-002"
    patience = 10.0
    unwanted = f"none of {_MASQ}, {_FORWARD} and EnableNFTables asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("ruleset", self.kind, self.family))

    def __str__(self) -> str:
        chains = ", ".join(f"{chain.name} ({len(chain.rules)})" for chain in self.chains)
        return f"ruleset {self.kind} IPv{self.family}: {chains or 'none'}"

    def is_within(self, ownership: Ownership) -> bool:  # noqa: ARG002 - one daemon alone keeps the rules of a node
        return True

    def reason(self) -> str:
        flags = dict.fromkeys(_MASQ if "nat" in (chain.table or chain.hook) else _FORWARD for chain in self.chains)
        return ", ".join(flags)
