"""Each check over a sight of a healthy node, in which one thing is wrong."""

from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.diag.rules.test_verdict import DROP, field, meta, rules
from weft.cni.plugins.portmap.strangers import Stray
from weft.diag.checks import CHECKS
from weft.diag.finding import Finding, ask, setting
from weft.diag.rules.ruleset import Chain, Ruleset
from weft.diag.sight import node as seen
from weft.diag.sight.node import (
    Attached,
    Clock,
    Configured,
    DeadPort,
    Knocked,
    Lost,
    Peer,
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
from weft.model.node.meshstate import MeshPeer, MeshRing, MeshSaid, MeshState
from weft.model.node.nodestate import (
    LeaseState,
    LoopState,
    NetworkState,
    NodeState,
    PeerState,
    RefusedState,
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


def knocked(*rounds: str) -> Knocked:
    """What the device's port and the one beside it said, in each round."""
    words: Any = tuple(tuple(each.split()) for each in rounds)
    return Knocked(peer="10.244.2.0/24", rounds=words)


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


@pytest.mark.parametrize("sight", [WELL, FLANNELD, Sight()], ids=["weft", "flanneld", "nothing"])
def test_nothing_is_wrong(sight: Sight):
    assert not find(sight)


def test_a_silent_peer_and_a_stranger_are_a_nat():
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    assert codes(probes=gone) == ["LEASE-005"]
    [found] = find(probes=gone, strangers=(ip_address("192.168.0.254"),))
    assert found.problem.code == "NAT-001"
    assert "UDP port 8472 receives datagrams from addresses that are no peer's: 192.168.0.254" in found.problem.seen
    # A stranger alone is none: all peers answer.
    assert not find(strangers=(ip_address("192.168.0.254"),))


def test_flannelds_vtep_for_ipv6_is_narrower_than_it_says():
    v6 = LinkInfo(index=99, name="flannel-v6.1", kind="vxlan", mtu=1430, up=True)
    [found] = find(FLANNELD, links=(*LINKS, v6))
    assert (found.problem.code, found.weight, found.problem.expected) == ("MTU-001", "warning", "1430")
    assert "delegate" in (found.problem.hint or "")
    assert not found.fix
    # One that something else has narrowed is a device as any other.
    [found] = find(FLANNELD, links=(*LINKS, replace(v6, mtu=1400)))
    assert (found.problem.where, found.weight) == ("link flannel-v6.1", "fault")


# What is found with it.
ALSO = {"KERN-003": {"IFACE-001"}, "IPAM-002": {"IPAM-001"}}


@pytest.mark.parametrize(
    "code, changes",
    [
        ("KERN-002", {"settings": {"net/ipv4/ip_forward": "0"}}),
        ("KERN-002", {"settings": {**WELL.settings, "net/ipv4/conf/cni0/forwarding": "0"}}),
        ("KERN-003", {"settings": {**WELL.settings, "net/ipv4/conf/all/rp_filter": "1"},
                      "ways": {"192.168.0.2": CNI0}}),
        ("KERN-001", {"rules": Ruleset(chains={("ip", "nat", "KUBE-SERVICES"): Chain(place=("ip", "nat", "K"))})}),
        ("NEIGH-001", {"settings": {**WELL.settings, "net/ipv4/neigh/default/gc_thresh3": "1"}, "neighbours": (
            NeighbourInfo(index=ETH0, ip=ip_address("192.168.0.2"), mac=MAC, state=2),)}),
        ("CT-001", {"settings": {**WELL.settings, "net/netfilter/nf_conntrack_count": "95",
                                 "net/netfilter/nf_conntrack_max": "100"}}),
        ("NEIGH-001", {"counters": {"Neighbours6.table_fulls": 3}}),
        ("CT-001", {"counters": {"Conntrack.insert_failed": 100}}),
        ("CSUM-001", {"counters": {"Udp.InCsumErrors": 3}}),
        ("NFT-001", {"legacy_tables": ("filter",), "rules": rules(FORWARD=[])}),
        ("INST-003", {"daemon": None, "programs": frozenset()}),
        ("LEASE-001", {"subnet_env": None}),
        ("STORE-001", state(store=Problem(code="STORE-001", where="etcd", seen="away"))),
        ("LEASE-001", state(parts={"subnet": Problem(code="LEASE-001", where="f", seen="gone")})),
        ("CHECK-001", state(losses={"pods": Problem(code="CHECK-001", where="f", seen="gone")})),
        ("INST-002", state(faults=1)),
        ("ADDR-002", state(refused=[RefusedState(id="x", trouble=TROUBLE)])),
        ("ADDR-002", state(peers=[PEER, replace(PEER, trouble=TROUBLE)])),
        ("FDB-001", state(peers=[replace(PEER, lacks=["route: no"])])),
        ("VTEP-002", {"vxlans": (*WELL.vxlans, Vxlan(name="other", vni=1, port=8472))}),
        ("VTEP-002", {"vxlans": (*WELL.vxlans, Vxlan(name="x", vni=2, port=8472),
                                 Vxlan(name="other", vni=1, port=8472))}),
        ("VTEP-003", links("flannel.1", up=False)),
        ("MTU-001", links("flannel.1", mtu=1400)),
        ("MTU-001", links("eth0", mtu=1499)),
        ("MTU-001", {**links("veth1", mtu=1500), "pods": {}}),
        ("BRIDGE-006", links("cni0", up=False)),
        ("BRIDGE-001", {"addresses": (ADDRESSES[0], replace(ADDRESSES[1], ip=ip_address("10.9.0.1")))}),
        ("BRIDGE-003", links("veth1", port=PortInfo())),
        ("BRIDGE-007", links("veth1", port=PortInfo(hairpin=True, state=0))),
        ("BRIDGE-007", links("veth1", port=PortInfo(hairpin=True, state=4))),
        ("BRIDGE-007", links("veth1", port=PortInfo(hairpin=True, isolated=True))),
        ("CHECK-001", {"pods": {"veth1": replace(END, link=replace(END.link, up=False))}}),
        ("CHECK-001", links("veth1", up=False)),
        ("CHECK-001", {"pods": {"veth1": replace(END, addresses=())}}),
        ("ADDR-001", {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.240.0.0/12"), index=ETH0))}),
        ("ADDR-001", {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.244.0.0/16"), index=77))}),
        ("ROUTE-002", {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.244.1.0/26"), index=ETH0,
                                                     via=ip_address("192.168.0.9")))}),
        ("LEASE-003", state(network=replace(NETWORK, networks=["10.244.0.0/23"]))),
        ("IPAM-002", {"reserved": (Reserved(network="cbr0", given_v4=253, given_v6=0),)}),
        ("IPAM-001", {"reserved": (Reserved(network="cbr0", given_v4=11, given_v6=0),)}),
        ("IPAM-001", {"reserved": (Reserved(network="cbr0", given_v4=0, given_v6=11),)}),
        ("FW-002", {"rules": rules(policy="drop")}),
        ("HOSTPORT-003", {"dead_ports": (DeadPort(port="5003/tcp", address=ip_address("10.4.0.2"), rule="x"),)}),
        ("LEASE-005", {"probes": (probed("overlay", answered=False), probed("underlay", answered=False))}),
        ("REACH-001", {"probes": (probed("overlay", answered=False), probed("underlay"))}),
        ("MTU-001", {"probes": (probed("overlay"), probed("large", answered=False))}),
        ("REACH-002", {"probes": CUT, "knocks": (knocked("silent refused", "silent refused"),)}),
        ("VTEP-004", {"probes": CUT, "knocks": (knocked("silent silent", "refused refused"),)}),
        ("REACH-001", {"probes": CUT, "knocks": (knocked("silent refused", "silent silent"),)}),
        ("REACH-001", {"probes": CUT, "knocks": (knocked("rejected silent"),)}),
        ("REACH-001", {"probes": MUTE, "knocks": (knocked("silent refused"),)}),
        ("ROUTE-002", {"probes": CUT, "policies": (RuleInfo(family=4, priority=5270, table=52), MAIN_RULE),
                       "other_routes": (RouteInfo(dst=ip_network("10.244.0.0/16"), table=52, index=ETH0),)}),
        ("HOST-001", {"managers": {"flannel.1": "systemd-networkd", "eth0": "systemd-networkd"}}),
        ("HOST-003", {"clock": Clock(unix=1e6, synchronised=False)}),
        ("IFACE-001", {"ways": {"192.168.0.2": CNI0}}),
        ("CNI-001", {"plugins": frozenset(("flannel",))}),
        ("CLEAN-001", {"networks": (replace(FLANNEL, file="00", plugins=("portmap",)), FLANNEL)}),
        ("CLEAN-001", {"links": (*LINKS, LinkInfo(index=9, name="cali1"), LinkInfo(index=10, name="cali2"))}),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(code: str, changes: dict[str, Any]):
    assert set(codes(**changes)) - ALSO.get(code, set()) == {code}


def test_a_port_without_a_carrier_is_disabled_by_that():
    assert not codes(**links("veth1", operstate=2, port=PortInfo(hairpin=True, state=0)))


def test_isolation_that_a_network_asks_for():
    isolated = links("veth1", port=PortInfo(hairpin=True, isolated=True))
    assert not codes(**isolated, networks=(replace(FLANNEL, isolated=True),))


def test_a_pod_that_is_in_the_making_is_not_judged():
    assert not codes(attached=(), pods={"veth1": replace(END, addresses=())})


def test_whose_address_it_is_decides_which_of_two_pods_is_named():
    other = replace(LINKS[3], index=20, name="veth2")
    thief = replace(ATTACHED, container="c" * 64, pod="", hosts=("veth2",), addresses=(ip_address("10.244.1.3"),))
    ends = {"veth1": END, "veth2": replace(END, addresses=(ip_address("10.244.1.3"), POD_IP))}
    [found] = find(links=(*LINKS, other), pods=ends, attached=(ATTACHED, thief))
    assert (found.problem.code, found.problem.where) == ("CHECK-001", "eth0 of container cccccccccccc")
    assert found.problem.seen == "it has 10.244.1.2, which pod web was given"


def test_a_network_that_calls_others_may_come_first():
    for plugin in ("multus", "multus-shim"):
        first = replace(FLANNEL, file="00-multus.conf", plugins=(plugin,))
        assert not codes(networks=(first, FLANNEL), plugins=WELL.plugins | {plugin})


def test_weights():
    full = {"net/netfilter/nf_conntrack_count": "100", "net/netfilter/nf_conntrack_max": "100"}
    assert find(settings={**WELL.settings, **full})[0].weight == "fault"
    assert find(reserved=(Reserved(network="cbr0", given_v4=240, given_v6=0),))[-1].weight == "warning"
    assert not find(reserved=(Reserved(network="cbr0", given_v4=10, given_v6=0),))
    assert not find(reserved=(Reserved(network="another", given_v4=99, given_v6=0),))
    mixed = find(**state(faults=1, store=TROUBLE))
    assert [finding.weight for finding in mixed] == ["fault", "warning"]


def test_of_a_neighbour_table_whose_size_is_not_known_nothing_is_said():
    known = {name: value for name, value in WELL.settings.items() if "gc_thresh3" not in name}
    neighbours = (NeighbourInfo(index=ETH0, ip=ip_address("192.168.0.2"), mac=MAC, state=2),)
    assert "NEIGH-001" not in codes(settings=known, neighbours=neighbours)


def test_bridge_netfilter_is_wanted_by_rules_of_services_alone():
    services = Ruleset(chains={("ip6", "nat", "KUBE-SERVICES"): Chain(place=("ip6", "nat", "K"))})
    on = {**WELL.settings, "net/bridge/bridge-nf-call-ip6tables": "1"}
    six = {"addresses": (*ADDRESSES, AddressInfo(index=CNI0, ip=ip_address("fd00::1"), prefixlen=64))}
    assert codes(rules=services, **six) == ["KERN-001"]
    off = {**WELL.settings, "net/bridge/bridge-nf-call-ip6tables": "0"}
    [zero], [absent] = (find(rules=services, **six, **each) for each in ({"settings": off}, {}))
    assert zero.problem.seen == "it is 0"
    assert [str(each).partition(" ")[0] for each in zero.fix] == ["sysctl"]  # the module is loaded
    assert [str(each).partition(" ")[0] for each in absent.fix] == ["modprobe", "sysctl"]
    assert "modprobe" not in zero.problem.hint
    assert not codes(rules=services, settings=on, **six)
    assert not codes(rules=services, networks=(), **six)
    for table in ("kube-proxy", "weft-lab-services"):
        assert codes(rules=Ruleset(chains={("ip6", table, "c"): Chain(place=("ip6", table, "c"))}), **six) == [
            "KERN-001"
        ]
    assert not codes(rules=services)  # kube-proxy writes them for both families, whatever pods have


def test_firewalld_is_told_from_others():
    text = rules([DROP])
    named = Ruleset(chains={("inet", "firewalld", "f"): Chain(
        place=("inet", "firewalld", "f"), hook="forward", kind="filter",
        rules=[replace(rule, place=("inet", "firewalld", "f")) for rule in text.chains["inet", "t", "f"].rules],
    )})  # fmt: skip
    [finding] = find(rules=named)
    assert finding.problem.code == "FW-001"
    assert tuple(map(str, finding.fix)) == (
        "firewall-cmd --zone=trusted --add-source=10.244.0.0/16",
        "firewall-cmd --permanent --zone=trusted --add-source=10.244.0.0/16",
    )


def at_input(*statements: Any, hook: str = "input") -> Ruleset:
    found = rules(list(statements))
    return Ruleset(chains={place: replace(chain, hook=hook) for place, chain in found.chains.items()})


def test_what_is_put_back_again_and_again():
    def loops(**lately: int) -> dict[str, Any]:
        loop = LoopState(rounds=9, repairs={"ROUTE-001": 40}, unannounced=0, failing={}, lately=lately)
        return state(loops={"kernel": loop})

    assert not find(**loops(**{"ROUTE-001": 3}))
    [finding] = find(**loops(**{"ROUTE-001": 4, "VTEP-003": 1}))
    assert (finding.problem.code, finding.weight) == ("ROUTE-001", "warning")
    assert finding.problem.seen == "weftd had to put it back on 4 occasions in the last ten minutes"


def test_a_port_that_is_dropped_is_named_once_for_all_peers():
    more = [PEER, replace(PEER, id="y", subnets=["10.244.3.0/24"], public=["192.168.0.3"])]
    ways = {"192.168.0.2": ETH0, "192.168.0.3": ETH0}
    dropped = at_input(field("udp", "dport", 8472), DROP)
    [finding] = find(rules=dropped, ways=ways, **state(peers=more))
    assert finding.problem.where == "receiving udp 192.168.0.2 to 192.168.0.1:8472"
    assert not find(rules=at_input(field("udp", "dport", 8285), DROP))
    assert not find(rules=dropped, ways={})
    assert not find(rules=dropped, **state(peers=[replace(PEER, public=[])]))


def test_other_back_ends_have_other_ports():
    tun = LinkInfo(index=VXLAN, name="flannel0", kind="tun", mtu=1472, up=True)
    network = replace(STATE.network or NetworkState, devices=["flannel0"])  # type: ignore[type-var]
    udp = replace(WELL, links=(LINKS[0], tun, *LINKS[2:]), vxlans=(), daemon=replace(STATE, network=network))
    assert not codes(udp, rules=at_input(field("udp", "dport", 8285), DROP))  # which port it has is not told
    narrow = find(udp, probes=(probed("overlay", answered=False), probed("underlay")))[0]
    assert narrow.problem.hint.startswith("Something between drops the packets between the nodes:")


def test_what_is_known_without_weftd():
    assert (FLANNELD.mtu, Sight().mtu) == (1450, 0)
    assert FLANNELD.subnets == (ip_network("10.244.1.0/24"),)
    lease = LeaseState(id="x", subnets=["10.244.7.0/24"], public=[], confirmed=True)
    assert replace(WELL, daemon=replace(STATE, lease=lease)).subnets == (ip_network("10.244.7.0/24"),)
    assert seen.within(ip_network("fd00::/64"), ip_network("fd00::/48"))


def test_peers_of_flanneld_are_seen_by_routes():
    assert seen.peers(FLANNELD) == [
        Peer(
            subnet=ip_network("10.244.2.0/24"),
            inner=ip_address("10.244.2.0"),
            public=ip_address("192.168.0.2"),
            hop=ip_address("192.168.0.2"),
        )
    ]
    host_gw = replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0)
    [peer] = seen.peers(replace(FLANNELD, routes=(host_gw,)))
    assert (peer.inner, peer.public) == (None, IPv4Address("192.168.0.2"))
    [unknown] = seen.peers(replace(FLANNELD, neighbours=()))
    assert unknown.public is None
    asked = replace(ROUTES[2], dst=ip_network("10.244.0.2/32"))  # of a mesh: no pods are there
    assert seen.peers(replace(FLANNELD, routes=(*ROUTES, asked))) == seen.peers(FLANNELD)


def test_entries_of_flanneld_are_looked_at():
    [lost] = find(FLANNELD, neighbours=())
    assert lost.problem.seen == "its gateway has no neighbour entry"
    [lost] = find(FLANNELD, fdb=())
    assert lost.problem.seen == "no FDB entry says behind which node 0e:00:00:00:00:02 is"


def test_a_route_of_flanneld_that_went_with_a_link_is_missed():
    [lost] = find(FLANNELD, routes=ROUTES[:2])
    assert lost.problem.code == "ROUTE-001"
    assert lost.problem.where == "the peer behind 10.244.2.0"


def test_a_bridge_that_no_network_names_any_more_is_still_pods():
    assert not codes(networks=(), rules=rules(policy="drop"))


def test_an_answer_that_the_own_firewall_drops_is_not_missed():
    own = AddressInfo(index=VXLAN, ip=ip_address("10.244.1.0"), prefixlen=32)
    silent = {"probes": (probed("overlay", answered=False), probed("underlay")), "addresses": (*ADDRESSES, own)}
    assert codes(**silent) == ["REACH-001"]
    assert not codes(**silent, rules=at_input(meta("iifname", "flannel.1"), DROP))
    assert codes(**silent, rules=at_input(meta("cpu", 0), DROP)) == ["REACH-001"]


def test_peers_are_named_up_to_ten():
    inner = [replace(probed("overlay", answered=False), peer=f"10.244.{n}.0/24") for n in range(12)]
    outer = [replace(probed("underlay"), peer=each.peer) for each in inner]
    assert not find(probes=tuple(inner))  # whether their public IPs answer is not known
    [finding] = find(probes=(*inner, *outer))
    assert finding.problem.where.startswith("12 peers (10.244.0.0/24, 10.244.1.0/24, ")
    assert finding.problem.where.endswith(" 10.244.9.0/24 and 2 more)")
    [finding] = find(probes=(inner[0], outer[0]))
    assert finding.problem.where == "peer 10.244.0.0/24"


def test_forwarding_is_asked_where_there_are_pods_and_peers():
    assert not codes(rules=rules(policy="drop"), networks=())
    assert not codes(rules=rules(policy="drop"), **state(peers=[]))
    host_gw = replace(STATE.network or NetworkState, devices=[])  # type: ignore[type-var]
    routes = (*ROUTES[:2], replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0))
    plain = replace(WELL, links=(LINKS[0], *LINKS[2:]), daemon=replace(STATE, network=host_gw), routes=routes)
    assert codes(plain, rules=rules(policy="drop")) == ["FW-002"]
    [out] = find(plain, rules=rules([meta("oifname", "eth0"), DROP]))
    assert out.problem.where == "forwarding tcp 10.244.1.2 to 10.244.2.2:80"


def test_what_network_policies_refuse_is_no_firewalls_fault():
    def refusing(table: str) -> Ruleset:
        place = ("inet", table, "forward")
        return Ruleset(chains={place: Chain(place=place, hook="forward", kind="filter", policy="drop")})

    assert codes(rules=refusing("somebody")) == ["FW-002"]
    assert not codes(rules=refusing("weft-policy"))


def test_what_is_of_no_pod_network_is_let_be():
    bridges = {"links": (*LINKS, replace(LINKS[2], index=9, name="other"))}
    assert not codes(**bridges, networks=(FLANNEL, Configured(file="20", name="b", plugins=(), bridges=("other",))))
    left = {"links": (*LINKS, LinkInfo(index=9, name="cali1"))}
    assert not codes(**left, subnet_env=None, networks=(), daemon=None, programs=frozenset(("flanneld",)))
    canal = replace(FLANNEL, plugins=("calico", "portmap"), hairpin=False)
    assert not codes(**left, networks=(canal,), plugins=frozenset(("calico", "portmap")))


def test_a_dead_node_without_an_overlay():
    dead = replace(probed("underlay", answered=False), peer="10.244.2.0/24")
    assert codes(probes=(dead,)) == ["LEASE-005"]


def test_routes_that_take_nothing_from_pods():
    for text, kind, found in (("0.0.0.0/1", 1, []), ("10.0.0.0/8", 6, []), ("10.0.0.0/8", 1, ["ADDR-001"])):
        route = RouteInfo(dst=ip_network(text), index=ETH0, kind=kind)
        assert codes(routes=(*ROUTES, route)) == found
        assert ask(CHECKS, replace(WELL, routes=(*ROUTES, route))).is_well


def test_what_rules_do_not_tell_is_said():
    doubted = ask(CHECKS, replace(WELL, rules=rules([meta("cpu", 0), DROP])))
    unseen = {answer.check: answer.unseen for answer in doubted.answers if answer.unseen}
    assert unseen == {"forward-rules": "tcp 10.244.1.2 to 10.244.2.2:80: rule of inet t f (handle 0)"}
    doubted = ask(CHECKS, replace(WELL, rules=at_input(meta("cpu", 0), DROP), legacy_tables=("filter",)))
    unseen = {answer.check: answer.unseen for answer in doubted.answers if answer.unseen}
    assert unseen["forward-rules"] == "the rules of iptables-legacy in filter are not read"
    assert unseen["port-rules"] == "udp 192.168.0.2 to 192.168.0.1:8472: rule of inet t f (handle 0)"


def test_a_check_that_meets_what_it_does_not_know_ends_no_other():
    broken = replace(WELL, rules=rules([{"match": {}}]), settings={"net/ipv4/ip_forward": "0"})
    diagnosis = ask(CHECKS, broken)
    assert [finding.problem.code for finding in diagnosis.findings] == ["KERN-002"]
    [answer] = [each for each in diagnosis.answers if each.unseen]
    assert answer.unseen.startswith("this check failed by itself: KeyError")


def test_flanneld_with_ipip():
    tunnel = LinkInfo(index=VXLAN, name="flannel.ipip", kind="ipip", mtu=1480, up=True)
    route = replace(ROUTES[2], via=ip_address("192.168.0.2"))
    node = replace(FLANNELD, links=(LINKS[0], tunnel, *LINKS[2:]), routes=(*ROUTES[:2], route), vxlans=())
    assert seen.peers(node) == [
        Peer(
            subnet=ip_network("10.244.2.0/24"),
            inner=ip_address("10.244.2.0"),
            public=ip_address("192.168.0.2"),
            hop=ip_address("192.168.0.2"),
        )
    ]


def test_a_bridge_of_another_subnet_has_two_causes():
    [found] = find(addresses=(ADDRESSES[0], replace(ADDRESSES[1], ip=ip_address("10.9.0.1"))))
    assert "lease has changed" in found.problem.hint
    assert "another network uses this bridge" in found.problem.hint
    assert "'ip link delete cni0'" in found.problem.hint
    assert not found.fix


def test_a_table_that_was_full_once_was_so_1_time():
    [found] = find(counters={"Neighbours4.table_fulls": 1})
    assert "was full 1 time since the boot" in found.problem.seen


def test_a_dead_port_says_once_where_its_rule_leads():
    stray = Stray(family=4, protocol="tcp", port=80, host=None, pod=ip_address("10.4.0.2"), chain="CNI-DN-x")
    [found] = find(dead_ports=(DeadPort(port="80/tcp", address=stray.pod, rule=stray.place),))
    assert str(found.problem).count("lead") == 1
    assert found.problem.seen.startswith("chain CNI-DN-x of iptables table nat leads to 10.4.0.2,")


def test_ipv6_pods_need_links_that_carry_ipv6():
    six = PluginEnv(
        networks=(ip_network("fd00::/48"),), subnets=(ip_network("fd00:0:0:1::/64"),), mtu=1280, ip_masq=True
    )
    [found] = [each for each in find(subnet_env=six, **links("flannel.1", mtu=1270)) if each.problem.code == "V6-001"]
    assert "Backend" in found.problem.hint


def test_a_check_without_its_part_of_the_sight_finds_nothing_and_says_so():
    diagnosis = ask(CHECKS, replace(WELL, rules=rules(policy="drop"), unseen={"rules": "nft: not found"}))
    assert not diagnosis.findings
    assert diagnosis.is_well
    unseen = {answer.check: answer.unseen for answer in diagnosis.answers if answer.unseen}
    assert unseen["forward-rules"] == "rules: nft: not found"
    assert "daemon" not in unseen


def test_every_check_has_a_name_of_its_own():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert {need for check in CHECKS for need in check.needs} <= set(Sight.__struct_fields__)


def test_links_that_a_manager_takes_are_named_and_given_back():
    [finding] = find(managers={"veth1": "NetworkManager", "cni0": "NetworkManager"})
    assert finding.problem.seen == "it manages cni0, veth1"
    assert list(map(str, finding.fix)) == [f"nmcli device set {name} managed no" for name in ("cni0", "veth1")]
    for number, more in ((5, ""), (7, " and 2 more")):
        many = tuple(replace(LINKS[3], index=9 + each, name=f"v{each}") for each in range(number))
        [finding] = find(links=(*LINKS, *many), managers={link.name: "systemd-networkd" for link in many})
        assert finding.problem.seen == f"it manages v0, v1, v2, v3, v4{more}"
        assert not finding.fix  # it has no command for that


def test_the_clock_counts_where_a_store_refuses_a_certificate():
    loose = Clock(unix=2e9, synchronised=False)
    refused = Problem(code="STORE-002", where="etcd", seen="its certificate is not valid yet")
    assert codes(clock=loose, **state(store=refused)) == ["STORE-002", "HOST-003"]
    assert codes(clock=loose, **state(store=replace(refused, seen="away"))) == ["STORE-002"]
    assert codes(clock=replace(loose, synchronised=True), **state(store=refused)) == ["STORE-002"]
    assert not codes(clock=loose)


WORDS: Any = ("silent", "refused", "rejected")


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)), max_size=3), st.booleans(), st.booleans())
def test_a_port_is_eaten_only_if_nothing_else_explains_its_silence(
    rounds: list[tuple[Any, Any]], outside: bool, others: bool
):
    """Whatever errors a node spares: advice that changes a cluster needs two words of the port beside, and no other."""
    probes = (probed("overlay", answered=False), probed("underlay", answered=outside))
    probes += (replace(probed("overlay"), peer="10.244.9.0/24"),) if others else ()
    found = find(probes=probes, knocks=(Knocked(peer="10.244.2.0/24", rounds=tuple(rounds)),))
    device, beside = [each for each, _ in rounds], [each for _, each in rounds]
    [one] = found
    if "refused" in device:
        assert one.problem.code == "VTEP-004"
    elif "rejected" in device:
        assert one.problem.code == "REACH-001"
    elif not outside:  # it drops echo requests, or is not there
        expected = ("REACH-001", "warning") if "refused" in beside else ("LEASE-005", "fault")
        assert (one.problem.code, one.weight) == expected
    elif beside.count("refused") < 2:
        assert (one.problem.code, one.weight) == ("REACH-001", "fault")
    else:
        assert one.problem.code == "REACH-002"
    proved = one.problem.code == "REACH-002" and not others
    assert ("for all nodes" in one.problem.hint) == proved
    if proved:
        assert one.problem.hint.index("tcpdump") < one.problem.hint.index("Only if that cannot be changed")


def test_a_mac_that_somebody_has_set_is_named_before_the_node_is_called_gone():
    fixed = NeighbourInfo(index=ETH0, ip=ip_address("192.168.0.254"), mac=MAC, state=0x80)
    [found] = find(probes=MUTE, neighbours=(*WELL.neighbours, fixed))
    assert found.problem.code == "NEIGH-002"
    assert f"192.168.0.254 has a permanent neighbour entry on eth0, {MAC}" in found.problem.seen


BLACKHOLE = RouteInfo(dst=ip_network("192.168.0.2/32"), kind=6)
PROHIBITED = RuleInfo(family=4, priority=9, action=8, dst=ip_network("192.168.0.2/32"))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"routes": (*ROUTES, BLACKHOLE)}, "by route blackhole 192.168.0.2/32"),
        ({"policies": (MAIN_RULE, PROHIBITED)}, "by rule '9: from all to 192.168.0.2/32 action 8'"),
        ({"routes": ROUTES[1:]}, "no route leads there"),
    ],
)
def test_a_node_that_the_kernel_has_no_way_to(changes: dict[str, Any], said: str):
    [found] = find(probes=MUTE, ways={}, **changes)
    assert (found.problem.code, found.problem.where) == ("ROUTE-003", "packets to 192.168.0.2")
    assert said in found.problem.seen


@pytest.mark.parametrize(
    "changes",
    [
        {"policies": (MAIN_RULE, RuleInfo(family=4, priority=9, action=6, src=ip_network("10.244.1.7/32")))},
        {"policies": (MAIN_RULE, RuleInfo(family=4, priority=9, action=6, dst=ip_network("10.244.2.7/32")))},
        {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.244.2.64/26"), kind=6))},
    ],
)
def test_what_leads_packets_of_some_pods_alone_astray(changes: dict[str, Any]):
    assert codes(**changes) == ["ROUTE-002"]


def test_where_other_peers_answer_by_the_port_no_other_is_advised():
    other = replace(probed("overlay"), peer="10.244.9.0/24")
    knocks = (knocked("silent refused", "silent refused"),)
    for probes, advised in ((CUT, True), ((*CUT, other), False)):
        [found] = find(probes=probes, knocks=knocks)
        assert ("for all nodes" in found.problem.hint) == advised


def test_of_a_peer_to_which_no_link_leads_no_silence_is_told():
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    [found] = find(probes=gone, ways={}, addresses=ADDRESSES[1:])
    assert found.problem.seen.endswith("not even from the public IP")


@pytest.mark.parametrize("state, said", [(0x01, True), (0x20, True), (0x02, False), (0x04, False)])
@pytest.mark.parametrize("gateway", [False, True])
def test_a_peer_that_does_not_answer_arp_is_said_to(state: int, said: bool, gateway: bool):
    asked = ip_address("192.168.0.254" if gateway else "192.168.0.2")
    here = RouteInfo(dst=ip_network("192.168.0.0/24"), via=asked if gateway else None, index=ETH0)
    neighbours = (*WELL.neighbours, NeighbourInfo(index=ETH0, ip=asked, mac=None, state=state))
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    [found] = find(probes=gone, neighbours=neighbours, routes=(*ROUTES, here))
    assert found.problem.code == "LEASE-005"
    assert (f"{asked} does not answer ARP on eth0" in found.problem.seen) == said
    assert ("drop echo requests" in found.problem.hint) != said  # who does not even answer ARP drops more than those


def led_by(*routes: RouteInfo, **changes: Any) -> dict[str, Any]:
    rule = RuleInfo(family=4, priority=5270, table=52)
    return {"policies": (rule, MAIN_RULE), "other_routes": routes, "probes": CUT} | changes


def test_rules_that_lead_packets_for_peers_elsewhere_are_named_with_their_table():
    vpn = RouteInfo(dst=ip_network("10.244.0.0/16"), via=ip_address("192.168.0.9"), index=ETH0, table=52)
    [found] = find(**led_by(vpn))
    assert (found.problem.code, found.weight) == ("ROUTE-002", "fault")
    assert "rule '5270: from all lookup 52' and route 10.244.0.0/16 via 192.168.0.9 dev eth0 table 52" in str(
        found.problem
    )
    assert found.problem.hint.endswith("ip -4 route delete 10.244.0.0/16 via 192.168.0.9 dev eth0 table 52")
    # A rule that drops them, a route that does, and a longer route of the main table.
    rule = RuleInfo(family=4, priority=9, action=8, src=ip_network("10.244.1.0/24"))
    [found] = find(**led_by(policies=(rule, MAIN_RULE)))
    assert found.problem.hint.endswith(
        "To remove the rule until that program makes it again: ip -4 rule delete priority 9"
    )
    [found] = find(**led_by(replace(vpn, via=None, index=0, kind=6)))
    assert found.problem.hint.endswith("ip -4 route delete blackhole 10.244.0.0/16 table 52")
    longer = replace(vpn, dst=ip_network("10.244.2.0/25"), table=254)
    assert codes(probes=CUT, routes=(*ROUTES, longer)) == ["ROUTE-002"]
    # They arrive all the same; or it is the peer's own address, or not told, or nobody's lease.
    [found] = find(**led_by(vpn, probes=WELL.probes))
    assert found.weight == "warning"
    assert codes(**led_by(replace(vpn, via=ip_address("192.168.0.2")))) == ["REACH-001"]
    unsure = RuleInfo(family=4, priority=9, table=52, more=True)
    assert codes(**led_by(vpn, policies=(unsure, MAIN_RULE))) == ["REACH-001"]
    assert codes(**led_by(vpn, routes=(*ROUTES[:2], ROUTES[3]))) == ["REACH-001"]
    # A copy of the lease's own route, in the table of a rule.
    assert codes(**led_by(replace(ROUTES[2], table=52))) == ["REACH-001"]
    # No rule has any table: then nothing can be removed.
    [found] = find(**led_by(policies=(replace(unsure, more=False, table=9),)))
    assert found.problem.seen == "no route takes them, although the peer's lease has one"
    assert found.problem.hint.startswith("'ip rule' shows which tables are asked")
    # Of a node whose subnet is not known nothing can be asked.
    assert "ROUTE-002" not in codes(**led_by(vpn), subnet_env=None)


PLAIN = Configured(file="/etc/cni/net.d/20-br.conflist", name="plain", plugins=("bridge", "portmap"), bridges=("br0",))
BRIDGED: Any = {
    "links": (*LINKS, LinkInfo(index=8, name="br0", kind="bridge", mtu=1500, up=True)),
    "addresses": (*ADDRESSES, AddressInfo(index=8, ip=ip_address("10.4.0.1"), prefixlen=24)),
}


@pytest.mark.parametrize(
    "plugins, seen, expected",
    [
        (("bridge", "portmap"), False, ["what its pods send", "what comes to its published ports"]),
        (("bridge",), False, ["what its pods send"]),
        (("bridge", "portmap", "firewall"), False, []),  # its rules are for pods, of which none was seen
        (("bridge", "portmap", "firewall"), True, ["what comes to its published ports"]),
        (("flannel", "portmap"), False, []),
    ],
)
def test_a_policy_that_drops_what_a_bridge_needs_is_warned_of(
    plugins: tuple[str, ...], seen: bool, expected: list[str]
):
    accepted = [field("ip", "saddr", "10.4.0.7"), {"accept": None}]
    there = NeighbourInfo(index=8, ip=ip_address("10.4.0.7"), mac=MAC, state=2)
    found = [
        each
        for each in find(
            networks=(FLANNEL, replace(PLAIN, plugins=plugins)),
            rules=rules(accepted, policy="drop"),
            neighbours=(*WELL.neighbours, *((there,) if seen else ())),
            plugins=frozenset((*plugins, "flannel", "portmap")),
            **BRIDGED,
        )
        if each.problem.where == "network plain, bridge br0"
    ]
    assert [each.problem.seen.partition(" is dropped by ")[0] for each in found] == expected
    assert {(each.problem.code, each.weight) for each in found} <= {("FW-002", "warning")}
    for each in found:
        means = (
            "ctstate DNAT" if "ports" in each.problem.seen else '{"type": "firewall"} after the plugin bridge in /etc'
        )
        assert means in each.problem.hint
    assert not find(networks=(FLANNEL, PLAIN), plugins=frozenset(("bridge", *WELL.plugins)), **BRIDGED)


def test_what_comes_to_published_ports_comes_by_the_uplink():
    accepted = [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, {"accept": None}]
    found = find(networks=(FLANNEL, PLAIN), rules=rules(accepted, policy="drop"), plugins=WELL.plugins, **BRIDGED)
    said = [each.problem.seen for each in found if each.problem.where == "network plain, bridge br0"]
    assert [text.partition(" is dropped by ")[0] for text in said] == ["what its pods send"]


def test_a_bridge_of_our_plugin_that_no_configuration_names_is_looked_at():
    ours = replace(BRIDGED["links"][-1], alias="weft:bridge")
    tables = {("inet", "weft-hostport", "m"): []}
    drops = rules(policy="drop")

    def warned(alias: str = "weft:bridge", **changes: Any) -> int:
        given = BRIDGED | {"links": (*LINKS, replace(ours, alias=alias)), "rules": drops} | changes
        return sum(each.problem.where == "a network without a configuration here, bridge br0" for each in find(**given))

    assert warned() == 1
    assert warned(rules=replace(drops, sets=tables)) == 2
    assert warned(alias="somebody's") == 0
    assert warned(networks=(FLANNEL, PLAIN)) == 0  # it has its own name there
    assert warned(rules=Ruleset()) == 0


@pytest.mark.parametrize("program", ["", "dhcpcd", "NetworkManager", "connmand"])
@pytest.mark.parametrize("address", ["192.168.7.9", "169.254.3.4", "fd00:7::9"])
def test_an_address_that_is_not_ours_on_a_device_is_named_with_who_may_have_given_it(program: str, address: str):
    given = AddressInfo(index=VXLAN, ip=ip_address(address), prefixlen=24)
    running = frozenset((program,) if program else ())
    [found] = find(addresses=(*ADDRESSES, given), link_programs=running)
    assert (found.problem.code, found.weight) == ("HOST-001", "warning")
    assert f"it has the address {address}/24, which weft did not set" in found.problem.seen
    assert program in found.problem.seen
    assert found.problem.hint.endswith(f"ip address delete {address}/24 dev flannel.1")
    own = [AddressInfo(index=VXLAN, ip=ip_address(ip), prefixlen=32) for ip in ("10.244.1.0", "fe80::9")]
    assert not find(addresses=(*ADDRESSES, *own), link_programs=running)


@pytest.mark.parametrize(
    "host, pod, said",
    [
        (1450, 1500, "1 pod has MTU 1500 (host end: veth1)"),
        (1500, 1450, ""),
        (1500, None, "1 pod has MTU 1500 (host end: veth1)"),
        (1450, 1400, ""),
    ],
)
def test_the_mtu_of_a_pod_is_that_of_its_own_end(host: int, pod: int | None, said: str):
    own = {} if pod is None else {"veth1": replace(END, link=replace(END.link, mtu=pod))}
    found = find(**links("veth1", mtu=host), pods=own)
    assert [each.problem.seen for each in found] == ([said] if said else [])


def test_several_pods_with_larger_mtus_are_counted():
    more = tuple(
        replace(LINKS[3], index=20 + number, name=f"veth{number}", mtu=1460 + number) for number in range(2, 7)
    )
    [found] = find(links=(*LINKS, *more))
    assert found.problem.seen == "5 pods have MTU 1462 to 1466 (host ends: veth2, veth3, veth4 …)"


def test_a_port_of_the_own_firewall_is_not_eaten():
    eaten: Any = {"probes": CUT, "knocks": (knocked("silent refused", "silent refused"),)}
    for hook in ("prerouting", "input", "output", "postrouting"):
        assert codes(**eaten, rules=at_input(field("udp", "dport", 8472), DROP, hook=hook)) == ["REACH-001"] * 2
    assert codes(**eaten, ways={}) == ["REACH-001"]
    [other] = find(
        probes=tuple(replace(each, peer="10.244.9.0/24") for each in CUT),
        knocks=(replace(eaten["knocks"][0], peer="10.244.9.0/24"),),
    )
    assert other.problem.code == "REACH-001"  # it is no peer any more


def test_a_filter_that_takes_any_way_back_drops_nothing():
    for strict, all_links, found in (("1", "0", True), ("1", "2", False), ("0", "1", True), ("2", "1", False)):
        names = {"net/ipv4/conf/eth0/rp_filter": strict, "net/ipv4/conf/all/rp_filter": all_links}
        seen_codes = codes(settings={**WELL.settings, **names}, ways={"192.168.0.2": CNI0})
        assert ("KERN-003" in seen_codes) == found
        assert not codes(settings={**WELL.settings, **names})
        if found:
            [problem] = [
                each.problem
                for each in find(settings={**WELL.settings, **names}, ways={"192.168.0.2": CNI0})
                if each.problem.code == "KERN-003"
            ]
            which, expected = (
                ("eth0", "2 or 0") if strict == "1" else ("all", "0, or 2 at net/ipv4/conf/eth0/rp_filter")
            )
            assert (problem.where, problem.expected) == (f"sysctl net/ipv4/conf/{which}/rp_filter", expected)
            assert problem.hint.endswith("run: sysctl -w net.ipv4.conf.eth0.rp_filter=2")
    both = {"net/ipv4/conf/eth0/rp_filter": "1", "net/ipv4/conf/all/rp_filter": "1"}
    found_both = find(settings={**WELL.settings, **both}, ways={"192.168.0.2": CNI0})
    [problem] = [each.problem for each in found_both if each.problem.code == "KERN-003"]
    assert problem.expected == "2, or 0 here and at net/ipv4/conf/all/rp_filter"
    six = [replace(PEER, public=["fd00::2"])]
    assert codes(settings={"net/ipv4/conf/all/rp_filter": "1"}, ways={"fd00::2": CNI0}, **state(peers=six)) == [
        "IFACE-001"
    ]


def test_a_network_without_anybody_is_not_asked_to_be_uninstalled_while_it_may_start():
    gone = {"daemon": None, "programs": frozenset(), "subnet_env": None}
    [finding] = find(**gone, links=(LINKS[0],), vxlans=())
    assert finding.problem.hint.endswith("if this network is not used any more: rm 10-flannel.conflist")
    assert "see its log" in next(each for each in find(**gone) if each.problem.code == "LEASE-001").problem.hint


def test_what_a_device_wraps_is_known_of_few_kinds():
    tun = LinkInfo(index=VXLAN, name="flannel.1", kind="tun", mtu=1450, up=True)
    assert not codes(links=(replace(LINKS[0], mtu=1400), tun, *LINKS[2:]), vxlans=())
    assert not codes(**links("eth0", mtu=1400), **state(network=None), subnet_env=None, networks=())


def test_forwarding_that_is_off_at_one_link():
    [finding] = find(settings={**WELL.settings, "net/ipv4/conf/cni0/forwarding": "0"})
    assert finding.problem.where == "sysctl net/ipv4/conf/cni0/forwarding"
    assert list(map(str, finding.fix)) == ["sysctl -w net.ipv4.conf.cni0.forwarding=1"]


def test_ipv6_that_is_off_at_a_link_of_ipv6_pods():
    six = replace(STATE, lease=LeaseState(id="x", subnets=["fd00:1::/64"], public=[], confirmed=True))
    [finding] = find(daemon=six, settings={**WELL.settings, "net/ipv6/conf/cni0/disable_ipv6": "1"})
    assert finding.problem.code == "V6-001"
    assert list(map(str, finding.fix)) == ["sysctl -w net.ipv6.conf.cni0.disable_ipv6=0"]
    assert not codes(settings={**WELL.settings, "net/ipv6/conf/cni0/disable_ipv6": "1"})


def test_subnets_of_both_families_are_counted_apart():
    both = replace(NETWORK, networks=["10.244.0.0/16", "fd00::/62"])
    lease = LeaseState(id="x", subnets=["10.244.1.0/24", "fd00:0:0:1::/64"], public=[], confirmed=True)
    more = [replace(PEER, subnets=["10.244.2.0/24", f"fd00:0:0:{n}::/64"], id=str(n)) for n in (2, 3)]
    assert codes(**state(network=both, lease=lease, peers=more[:1])) == []
    refused = [RefusedState(id="y", trouble=TROUBLE, subnets=["fd00::/64"])]
    found = find(**state(network=both, lease=lease, peers=more, refused=refused))
    assert [each.problem.where for each in found if each.problem.code == "LEASE-003"] == ["network fd00::/62"]


def test_a_command_names_a_link_with_dots_by_a_path():
    command = setting("net/ipv4/conf/eth0.100/rp_filter", "2", "x")
    assert str(command) == "sysctl -w net/ipv4/conf/eth0.100/rp_filter=2"


def test_each_part_is_a_field_of_a_sight_and_some_check_needs_it():
    parts = set(get_args(seen.Part))
    assert parts <= set(Sight.__struct_fields__)
    assert {need for check in CHECKS for need in check.needs} == parts


RING = "4f2a91c3" * 4
MESH = MeshState(
    id="node1-a", key="a", ring=MeshRing(id=RING, network="", blocks=3, unknown=0), usable=True, agreed=True
)


def in_a_mesh(*ways: str, **changes: Any) -> list[Finding]:
    """What is found on a node with so many peers."""
    reached = [replace(PEER, id=f"node{number}", way=way) for number, way in enumerate(ways, 2)]
    daemon = replace(STATE, peers=reached, mesh=replace(MESH, **changes))
    return ask(CHECKS, replace(WELL, daemon=daemon)).findings


def test_the_best_ways_are_well():
    assert not in_a_mesh("vxlan", "vxlan")


def test_a_detour_is_named_with_its_reason():
    one, several, unknown = in_a_mesh(
        "via node9-c (vxlan): port-filtered", "direct: one-way", "vxlan", "direct: one-way", "vxlan: odd"
    )
    assert {(each.problem.code, each.weight) for each in (one, several, unknown)} == {("MESH-008", "warning")}
    assert (one.problem.where, one.problem.seen) == (
        "peer node2",
        "packets go via node9-c (vxlan): no echo comes back by a better way (port-filtered)",
    )
    assert several.problem.where == "2 peers (node3, node5)"
    assert several.problem.seen.startswith("packets go by direct: the other node says")
    assert unknown.problem.seen == "packets go by vxlan: the daemon knows no better way (odd)"


def test_of_many_detours_ten_are_named():
    [found] = in_a_mesh(*["direct: mtu"] * 12)
    assert found.problem.where.startswith("12 peers (node2, ")
    assert found.problem.where.endswith(", node11 and more)")


def test_another_ring_is_a_fault_and_peers_that_are_in_none_are_not():
    [found] = in_a_mesh(strangers={"": ["node7"], RING: ["node8"], "00" * 16: ["node2-b", "node3-c"]})
    assert (found.problem.code, found.weight) == ("MESH-003", "fault")
    assert found.problem.seen == "node2-b, node3-c are in ring 00000000"
    assert not in_a_mesh(strangers={"00" * 16: ["node2-b"]}, ring=None)


def test_another_password_is_a_fault_of_a_node_that_has_no_link():
    refusing = Problem(code="MESH-002", where="mesh", seen="192.0.2.1:51820: it has another password")
    unreached = {"192.0.2.1:51820": refusing, "192.0.2.2:51820": replace(refusing, code="MESH-001")}
    [found] = in_a_mesh(unreached=unreached)
    assert (found.problem, found.weight) == (refusing, "fault")
    linked = MeshPeer(id="node2-b", name="node2", key="b", us=False, linked=True)
    assert [each.weight for each in in_a_mesh(unreached=unreached, peers=(linked,))] == ["warning"]


def test_what_the_mesh_has_complained_of_lately_is_said_once_each():
    old = Problem(code="MESH-009", where="the ring", seen="ours is another's")
    again = replace(TROUBLE, code="MESH-004", where="mesh.json")
    said = (
        MeshSaid(seconds=4000.0, text="", problem=old),
        MeshSaid(seconds=300.0, text="", problem=replace(again, seen="before")),
        MeshSaid(seconds=120.0, text="", problem=again),
        MeshSaid(seconds=60.0, text="", problem=replace(old, code="MESH-003")),
        MeshSaid(seconds=9.0, text="a grant"),
    )
    [found] = in_a_mesh(said=said)
    assert (found.problem.code, found.problem.seen, found.weight) == (
        "MESH-004",
        "2 min 0 s ago: it is outside",
        "warning",
    )


def test_the_address_at_which_a_mesh_asks_a_path_is_no_strangers():
    asked = (*WELL.addresses, AddressInfo(index=VXLAN, ip=ip_address("10.244.250.7"), prefixlen=32))
    assert [each.problem.code for each in ask(CHECKS, replace(WELL, addresses=asked)).findings] == ["HOST-001"]
    assert not ask(CHECKS, replace(WELL, addresses=asked, daemon=replace(STATE, mesh=MESH))).findings


def test_what_blocks_a_better_way_alone_is_a_warning():
    daemon = replace(STATE, mesh=MESH, peers=[replace(PEER, way="via node3-c (vxlan): port-filtered")])
    found = ask(CHECKS, replace(WELL, daemon=daemon, rules=at_input(field("udp", "dport", 8472), DROP))).findings
    assert [(each.problem.code, each.weight) for each in found] == [("REACH-001", "warning"), ("MESH-008", "warning")]
    assert found[0].problem.hint.startswith("Packets between pods go another way now. Have the program")


def test_who_is_gone_from_a_mesh_goes_by_a_command():
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    [found] = ask(CHECKS, replace(WELL, probes=gone, daemon=replace(STATE, mesh=MESH))).findings
    assert found.problem.code == "LEASE-005"
    assert "stays until you type 'weft mesh rmpeer'" in found.problem.hint


def test_what_a_mesh_has_measured_is_no_loss():
    probes = (probed("overlay"), probed("large", answered=False), probed("underlay"))
    assert [each.problem.code for each in ask(CHECKS, replace(WELL, probes=probes)).findings] == ["MTU-001"]
    measured = (*ROUTES[:2], replace(ROUTES[2], mtu=1380), *ROUTES[3:])
    assert not ask(CHECKS, replace(WELL, probes=probes, routes=measured)).findings


def lost(cause: Problem | None, *, peer: str = "10.244.2.0/24", target: str = "10.244.2.0", **changes: Any) -> Lost:
    return Lost(source=POD_IP, target=ip_address(target), peer=peer, cause=cause, **changes)


def proved(*found: Lost, tried: int = 4, pods: int = 1) -> dict[str, Any]:
    return {"proof": Proof(tried=tried, arrived=tried - len(found), pods=pods, peers=1, lost=found)}


XFRM = Problem(code="XFRM-001", where="node1", seen="a policy of IPsec drops them")
UNKNOWN = Problem(code="REACH-001", where="node1 to node2", seen="eth0 sent 3, nothing came back")


def test_what_a_trace_has_seen_stands_in_place_of_what_silence_suggests():
    [found] = find(probes=MUTE, **proved(lost(XFRM)))
    assert (found.problem, found.weight) == (XFRM, "fault")
    # Of another peer that answers nobody either it says nothing, of one beside answering ones it does.
    far = tuple(replace(each, peer="10.244.9.0/24") for each in MUTE)
    assert codes(probes=(*MUTE, *far), **proved(lost(XFRM))) == ["XFRM-001"]
    near = replace(probed("overlay"), peer="10.244.8.0/24")
    assert codes(probes=(*MUTE, *far, near), **proved(lost(XFRM))) == ["LEASE-005", "XFRM-001"]


def test_where_a_trace_has_not_seen_why_the_silent_peer_is_judged_as_before():
    assert codes(probes=MUTE, **proved(lost(UNKNOWN))) == ["LEASE-005"]
    assert codes(**proved(lost(UNKNOWN))) == ["REACH-001"]  # it answers the node, and not its pods


def test_what_is_lost_among_pods_is_told_once():
    wall = Problem(code="FW-002", where="forward", seen="dropped by a rule")
    beside = [lost(wall, peer="", target=f"10.244.1.{number}") for number in (3, 4)]
    [found] = find(**proved(*beside, pods=2))
    assert (found.problem, found.weight) == (wall, "fault")
    # Where others arrive the rule may be a policy's of another program.
    [found] = find(**proved(*beside, pods=3))
    assert found.weight == "warning"
    assert not find(**proved(lost(wall, peer="", forbidden=True)))


def test_what_was_not_traced_is_counted():
    [found] = find(**proved(lost(None)))
    assert (found.problem.code, found.problem.seen) == ("LOST-001", "1 packet of 4 did not arrive")
    assert codes(**proved(lost(None), lost(XFRM))) == ["XFRM-001"]
    assert codes(probes=MUTE, **proved(lost(None))) == ["LEASE-005"]


def test_what_a_check_has_said_no_packet_says_again():
    cause = Problem(code="VTEP-003", where="link flannel.1", seen="it is down")
    [found] = find(**links("flannel.1", up=False), **proved(lost(cause)))
    assert found.problem.hint != cause.hint


@pytest.mark.parametrize("proof", [None, Proof(tried=0, arrived=0, pods=0, peers=0)])
def test_without_packets_nothing_is_proved(proof: Proof | None):
    [answer] = [each for each in ask(CHECKS, replace(WELL, proof=proof)).answers if each.unseen]
    assert (answer.check, answer.findings) == ("packets", ())
