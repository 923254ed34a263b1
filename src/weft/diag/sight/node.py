"""One sight of a node: all that the checks judge it by, as it was at one moment."""

from ipaddress import ip_network
from typing import Final, Literal

from weft.diag.rules.ruleset import Ruleset
from weft.model.errors import Problem
from weft.model.kernel.reported import AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, RouteInfo, RuleInfo
from weft.model.net import Family, Ip, Net
from weft.model.node.nodestate import NodeState
from weft.model.value import Value, field
from weft.wire.subnetenv import PluginEnv

_CARRIERS: Final = ("vxlan", "wireguard", "tun", "ipip")  # kinds of links that carry pods' packets between nodes


class Vxlan(Value):
    """A VXLAN device's own settings (linux/if_link.h, IFLA_VXLAN_*)."""

    name: str
    vni: int
    port: int


class Configured(Value):
    """A network that the runtime may use: its file, name, plugins and bridges.

    `hairpin`: its pods reach themselves; `isolated`: they do not reach each other.
    """

    file: str
    name: str
    plugins: tuple[str, ...]
    bridges: tuple[str, ...] = ()
    hairpin: bool = False
    isolated: bool = False


class PodEnd(Value):
    """A pod's end of a pair of links, as the kernel shows it from the node."""

    link: LinkInfo
    addresses: tuple[Ip, ...] = ()


class Attached(Value):
    """A pod's link as its runtime remembers it from ADD; `hosts` has the node's end, `pod` is a name or empty."""

    network: str
    container: str
    pod: str
    ifname: str
    hosts: tuple[str, ...]
    addresses: tuple[Ip, ...]

    def __str__(self) -> str:
        return f"pod {self.pod}" if self.pod else f"container {self.container[:12]}"


class Reserved(Value):
    """How many addresses host-local has given of one network."""

    network: str
    given_v4: int
    given_v6: int


Way = Literal["overlay", "large", "underlay"]


class Probed(Value):
    """What became of echo requests to a peer. `large` ones have the pods' MTU, and are not fragmented."""

    peer: str
    address: Ip
    way: Way
    size: int
    answered: bool = False


class DeadPort(Value):
    """A port of the host whose `rule` leads to an address that no pod has."""

    port: str
    address: Ip
    rule: str


Knock = Literal["silent", "refused", "rejected"]


class Knocked(Value):
    """What a peer's public IP said to packets to its `device`'s port, and to a datagram to the port `beside` it.

    `refused` is the peer's own "port unreachable"; `rejected` is a firewall's.
    """

    peer: str
    device: Knock
    beside: Knock


class Lost(Value):
    """A packet that did not arrive, or whose answer did not come back; `peer` is named as in `Probed`, or empty.

    `cause` is what a trace of it found, None if it was not traced. `here`: it has seen that it is lost on this node.
    `forbidden`: a policy drops it.
    """

    source: Ip
    target: Ip
    peer: str = ""
    cause: Problem | None = None
    here: bool = False
    forbidden: bool = False


class Proof(Value):
    """How many packets of this node and its pods were `tried`, and arrived, and between how many pods and peers.

    `silent` are peers of which no address is known that is sure to answer, and that did not. `more` pods and peers were
    not tried: there are so many.
    """

    tried: int
    arrived: int
    pods: int
    peers: int
    lost: tuple[Lost, ...] = ()
    silent: tuple[str, ...] = ()
    more: int = 0


class Pod(Value):
    """A pod of this node, with its first address of each family. All are on its link `device`."""

    name: str
    addresses: dict[Family, str]
    all_addresses: tuple[str, ...] = ()
    device: str = ""
    mtu: int = 0
    peer: int = 0  # the index of the link's other end, on the node


class Hanging(Value):
    """What may take packets on a link: a bridge's port that is `shut`, `isolated` or `locked`, or a `program`."""

    device: str
    kind: str
    seen: str


class Clock(Value):
    """`unix` is in seconds; a program keeps it right if it is `synchronised`."""

    unix: float
    synchronised: bool


# The parts that are read by themselves, named as fields of `Sight`; links, routes and neighbours stand for all that is
# listed with them.
Part = Literal[
    "links",
    "routes",
    "neighbours",
    "settings",
    "counters",
    "rules",
    "dead_ports",
    "legacy_tables",
    "subnet_env",
    "networks",
    "plugins",
    "reserved",
    "attached",
    "programs",
    "managers",
    "clock",
    "daemon",
    "probes",
    "proof",
]


class KernelTables(Value):
    """What the kernel lists of its network.

    `routes` are those of the main table, `other_routes` those of tables that `policies` name. `pods` are pods' ends of
    pairs of links, by the names of the node's ends.
    """

    links: tuple[LinkInfo, ...] = ()
    addresses: tuple[AddressInfo, ...] = ()
    routes: tuple[RouteInfo, ...] = ()
    neighbours: tuple[NeighbourInfo, ...] = ()
    fdb: tuple[FdbInfo, ...] = ()
    vxlans: tuple[Vxlan, ...] = ()
    policies: tuple[RuleInfo, ...] = ()
    other_routes: tuple[RouteInfo, ...] = ()
    pods: dict[str, PodEnd] = field(default_factory=dict)


class Sight(KernelTables):
    """A node. `settings` are values below /proc/sys by name in slashes; `counters` are the kernel's, by name.

    `programs` are daemons of pod networks that run here. `ways` are the links by which peers' public IPs are reached,
    by index. `managers` are programs that manage links, by the links' names; `link_programs` run and do not say which
    links they manage. `proof` is of packets that were sent. `strangers` are addresses of no peer that have sent to
    VXLAN ports, if a peer does not answer.
    Each part that could not be seen is empty, and `unseen` says why, by its name.
    """

    settings: dict[str, str] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    rules: Ruleset = field(default_factory=Ruleset)
    legacy_tables: tuple[str, ...] = ()
    subnet_env: PluginEnv | None = None
    networks: tuple[Configured, ...] = ()
    plugins: frozenset[str] = frozenset()
    reserved: tuple[Reserved, ...] = ()
    attached: tuple[Attached, ...] = ()
    programs: frozenset[str] = frozenset()
    daemon: NodeState | None = None
    ways: dict[str, int] = field(default_factory=dict)
    probes: tuple[Probed, ...] = ()
    proof: Proof | None = None
    knocks: tuple[Knocked, ...] = ()
    managers: dict[str, str] = field(default_factory=dict)
    link_programs: frozenset[str] = frozenset()
    clock: Clock | None = None
    strangers: tuple[Ip, ...] = ()
    dead_ports: tuple[DeadPort, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)

    def link(self, which: str | int) -> LinkInfo | None:
        return next((link for link in self.links if which in (link.name, link.index)), None)

    def addresses_of(self, index: int) -> list[AddressInfo]:
        return [address for address in self.addresses if address.index == index]

    @property
    def devices(self) -> list[LinkInfo]:
        """They are this node's daemon's, or those that are named as flannel names them."""
        if self.daemon is not None and self.daemon.network is not None:
            named = self.daemon.network.devices
            return [link for link in self.links if link.name in named]
        return [link for link in self.links if link.kind in _CARRIERS and link.name.startswith("flannel")]

    @property
    def ports(self) -> list[int]:
        """The UDP ports of VXLAN devices; of other kinds the kernel does not say which socket they have."""
        named = {link.name for link in self.devices}
        return sorted({device.port for device in self.vxlans if device.name in named})

    @property
    def networks_of_pods(self) -> tuple[Net, ...]:
        if self.daemon is not None and self.daemon.network is not None:
            return tuple(map(ip_network, self.daemon.network.networks))
        return () if self.subnet_env is None else self.subnet_env.networks

    @property
    def subnets(self) -> tuple[Net, ...]:
        if self.daemon is not None and self.daemon.lease is not None:
            return tuple(map(ip_network, self.daemon.lease.subnets))
        return () if self.subnet_env is None else self.subnet_env.subnets

    @property
    def ranges_of_pods(self) -> list[Net]:
        """They are this node's subnets, and the networks of pods' bridges."""
        bridges = (address for bridge in self.bridges for address in self.addresses_of(bridge.index))
        of_bridges = (ip_network(f"{each.ip}/{each.prefixlen}", strict=False) for each in bridges)
        return [*self.subnets, *(net for net in of_bridges if not net.is_link_local)]

    @property
    def mtu(self) -> int:
        """Pods' MTU; 0 if it is not known."""
        if self.daemon is not None and self.daemon.network is not None:
            return self.daemon.network.mtu
        return 0 if self.subnet_env is None else self.subnet_env.mtu

    @property
    def bridges(self) -> list[LinkInfo]:
        named = {name for network in self.networks for name in network.bridges}
        return [link for link in self.links if link.kind == "bridge" and link.name in named]

    @property
    def mtus_of_pods(self) -> dict[str, int]:
        """The names are those of the node's ends; a pod's own end may have another MTU."""
        bridges = {bridge.index for bridge in self.bridges}
        ports = (port for port in self.links if port.master in bridges)
        return {port.name: end.link.mtu if (end := self.pods.get(port.name)) else port.mtu for port in ports}
