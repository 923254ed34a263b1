"""A node on which all is well, as a sight, and what the doctor finds when something of it changes."""

from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

from tests.pure.diag.rules.test_verdict import rules
from weft.diag.checks import CHECKS
from weft.diag.finding import Finding, ask
from weft.diag.rules.ruleset import Ruleset
from weft.diag.sight.node import (
    Attached,
    Configured,
    Knock,
    Knocked,
    PodEnd,
    Probed,
    Proof,
    Reserved,
    Sight,
    Vxlan,
    Way,
)
from weft.model.errors import Problem
from weft.model.kernel.reported import AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, PortInfo, RouteInfo, RuleInfo
from weft.model.net import Mac
from weft.model.node.nodestate import (
    NetworkState,
    NodeState,
    PeerState,
    UplinkState,
)
from weft.model.value import replace
from weft.wire.subnetenv import PluginEnv

MAC = Mac.parse("0e:00:00:00:00:02")


TROUBLE = Problem(code="ADDR-002", where="lease x", seen="it is outside")


ETH0, VXLAN, CNI0, POD = 2, 3, 4, 5


LINKS = (
    LinkInfo(index=ETH0, name="eth0", mtu=1500, up=True),
    LinkInfo(index=VXLAN, name="flannel.1", kind="vxlan", mtu=1450, up=True),
    LinkInfo(index=CNI0, name="cni0", kind="bridge", mtu=1450, up=True),
    LinkInfo(index=POD, name="veth1", kind="veth", mtu=1450, up=True, master=CNI0, port=PortInfo(hairpin=True)),
)


POD_IP = ip_address("10.244.1.2")


END = PodEnd(link=LinkInfo(index=2, name="eth0", kind="veth", mtu=1450, up=True), addresses=(POD_IP,))


ATTACHED = Attached(
    network="cbr0", container="c1", pod="web", ifname="eth0", hosts=("cni0", "veth1"), addresses=(POD_IP,)
)


ROUTES = (
    RouteInfo(dst=ip_network("0.0.0.0/0"), via=ip_address("192.168.0.254"), index=ETH0),
    RouteInfo(dst=ip_network("10.244.1.0/24"), index=CNI0, protocol=2),
    RouteInfo(dst=ip_network("10.244.2.0/24"), via=ip_address("10.244.2.0"), index=VXLAN, protocol=165),
    RouteInfo(dst=ip_network("10.244.1.9/32"), index=POD),
)


ADDRESSES = (
    AddressInfo(index=ETH0, ip=ip_address("192.168.0.1"), prefixlen=24),
    AddressInfo(index=CNI0, ip=ip_address("10.244.1.1"), prefixlen=24),
    AddressInfo(index=CNI0, ip=ip_address("fe80::1"), prefixlen=64, scope=253),
)


PEER = PeerState(id="10.244.2.0-24", subnets=["10.244.2.0/24"], public=["192.168.0.2"], backend="vxlan")


NETWORK = NetworkState(networks=["10.244.0.0/16"], backend="vxlan", mtu=1450, devices=["flannel.1"])


STATE = NodeState(
    version="1",
    instance="a",
    pid=1,
    seconds=9,
    ready=True,
    parts={"routes": None},
    losses={},
    store=None,
    faults=0,
    network=NETWORK,
    uplink=UplinkState(name="eth0", index=ETH0, mtu=1500, addresses=["192.168.0.1"], why=""),
    peers=[PEER],
)


FLANNEL = Configured(
    file="10-flannel.conflist", name="cbr0", plugins=("flannel", "portmap"), bridges=("cni0",), hairpin=True
)


def probed(way: Way, *, answered: bool = True) -> Probed:
    inner = way in ("overlay", "large")
    address = ip_address("10.244.2.0" if inner else "192.168.0.2")
    return Probed(
        peer="10.244.2.0/24", address=address, way=way, size=1450 if way == "large" else 64, answered=answered
    )


def knocked(device: Knock, beside: Knock) -> Knocked:
    return Knocked(peer="10.244.2.0/24", device=device, beside=beside)


MUTE = (probed("overlay", answered=False), probed("underlay", answered=False))


CUT = (probed("overlay", answered=False), probed("underlay"))


MAIN_RULE = RuleInfo(family=4, priority=32766, table=254)


WELL = Sight(
    links=LINKS,
    addresses=ADDRESSES,
    routes=ROUTES,
    neighbours=(NeighbourInfo(index=VXLAN, ip=ip_address("10.244.2.0"), mac=MAC, state=0x80),),
    fdb=(FdbInfo(index=VXLAN, mac=MAC, remote=ip_address("192.168.0.2"), state=0x80),),
    vxlans=(Vxlan(name="flannel.1", vni=1, port=8472),),
    settings={"net/ipv4/ip_forward": "1", "net/ipv4/neigh/default/gc_thresh3": "1024"},
    counters={"Udp.InCsumErrors": 0},
    subnet_env=PluginEnv(
        networks=(IPv4Network("10.244.0.0/16"),), subnets=(IPv4Network("10.244.1.0/24"),), mtu=1450, ip_masq=True
    ),
    networks=(FLANNEL,),
    plugins=frozenset(("flannel", "portmap")),
    reserved=(Reserved(network="cbr0", given_v4=3, given_v6=0),),
    pods={"veth1": END},
    attached=(ATTACHED,),
    programs=frozenset(("weftd",)),
    daemon=STATE,
    ways={"192.168.0.2": ETH0},
    probes=(probed("overlay"), probed("large"), probed("underlay")),
    proof=Proof(tried=2, arrived=2, pods=1, peers=1),
)


FLANNELD = replace(WELL, daemon=None, programs=frozenset(("flanneld",)))


def find(sight: Sight = WELL, **changes: Any) -> list[Finding]:
    return ask(CHECKS, replace(sight, **changes)).findings


def codes(sight: Sight = WELL, **changes: Any) -> list[str]:
    return [finding.problem.code for finding in find(sight, **changes)]


def links(name: str, **changes: Any) -> dict[str, Any]:
    return {"links": tuple(replace(link, **changes) if link.name == name else link for link in LINKS)}


def state(**changes: Any) -> dict[str, Any]:
    return {"daemon": replace(STATE, **changes)}


def at_input(*statements: Any, hook: str = "input") -> Ruleset:
    found = rules(list(statements))
    return Ruleset(chains={place: replace(chain, hook=hook) for place, chain in found.chains.items()})
