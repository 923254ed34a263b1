"""Each check over a sight of a healthy node, in which one thing is wrong."""

from ipaddress import ip_address, ip_network
from typing import Any, get_args

import pytest

from tests.pure.diag.doctor.sights import (
    ADDRESSES,
    CNI0,
    CUT,
    END,
    ETH0,
    FLANNEL,
    FLANNELD,
    LINKS,
    MAC,
    MAIN_RULE,
    MUTE,
    NETWORK,
    PEER,
    ROUTES,
    STATE,
    TROUBLE,
    VXLAN,
    WELL,
    at_input,
    codes,
    find,
    knocked,
    links,
    probed,
    state,
)
from tests.pure.diag.rules.test_verdict import DROP, meta, rules
from weft.diag.checks import CHECKS
from weft.diag.finding import ask, setting
from weft.diag.rules.ruleset import Chain, Ruleset
from weft.diag.sight import peers as seen
from weft.diag.sight.node import Clock, Configured, DeadPort, Part, Reserved, Sight, Vxlan
from weft.diag.sight.peers import Peer
from weft.model.errors import Problem
from weft.model.kernel.reported import LinkInfo, NeighbourInfo, PortInfo, RouteInfo, RuleInfo
from weft.model.net import within
from weft.model.node.nodestate import (
    LeaseState,
    LoopState,
    RefusedState,
)
from weft.model.value import replace


@pytest.mark.parametrize("sight", [WELL, FLANNELD, Sight()], ids=["weft", "flanneld", "nothing"])
def test_nothing_is_wrong(sight: Sight):
    assert not find(sight)


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
        ("KERN-004", {"settings": {**WELL.settings, "net/ipv4/conf/cni0/arp_ignore": "8"}}),
        ("KERN-004", {"settings": {**WELL.settings, "net/ipv4/conf/all/arp_ignore": "8"}}),
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
        ("REACH-002", {"probes": CUT, "knocks": (knocked("silent", "refused"),)}),
        ("VTEP-004", {"probes": CUT, "knocks": (knocked("refused", "refused"),)}),
        ("REACH-001", {"probes": CUT, "knocks": (knocked("silent", "silent"),)}),
        ("REACH-001", {"probes": CUT, "knocks": (knocked("rejected", "silent"),)}),
        ("REACH-001", {"probes": MUTE, "knocks": (knocked("silent", "refused"),)}),
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


def test_what_is_put_back_again_and_again():
    def loops(**lately: int) -> dict[str, Any]:
        loop = LoopState(rounds=9, repairs={"ROUTE-001": 40}, unannounced=0, failing={}, lately=lately)
        return state(loops={"kernel": loop})

    assert not find(**loops(**{"ROUTE-001": 3}))
    [finding] = find(**loops(**{"ROUTE-001": 4, "VTEP-003": 1}))
    assert (finding.problem.code, finding.weight) == ("ROUTE-001", "warning")
    assert finding.problem.seen == "weftd had to put it back on 4 occasions in the last ten minutes"


def test_what_is_known_without_weftd():
    assert (FLANNELD.mtu, Sight().mtu) == (1450, 0)
    assert FLANNELD.subnets == (ip_network("10.244.1.0/24"),)
    lease = LeaseState(id="x", subnets=["10.244.7.0/24"], public=[], confirmed=True)
    assert replace(WELL, daemon=replace(STATE, lease=lease)).subnets == (ip_network("10.244.7.0/24"),)
    assert within(ip_network("fd00::/64"), ip_network("fd00::/48"))


def test_what_is_of_no_pod_network_is_let_be():
    bridges = {"links": (*LINKS, replace(LINKS[2], index=9, name="other"))}
    assert not codes(**bridges, networks=(FLANNEL, Configured(file="20", name="b", plugins=(), bridges=("other",))))
    left = {"links": (*LINKS, LinkInfo(index=9, name="cali1"))}
    assert not codes(**left, subnet_env=None, networks=(), daemon=None, programs=frozenset(("flanneld",)))
    canal = replace(FLANNEL, plugins=("calico", "portmap"), hairpin=False)
    assert not codes(**left, networks=(canal,), plugins=frozenset(("calico", "portmap")))


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


def test_a_table_that_was_full_once_was_so_1_time():
    [found] = find(counters={"Neighbours4.table_fulls": 1})
    assert "was full 1 time since the boot" in found.problem.seen


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


def test_a_network_without_anybody_is_not_asked_to_be_uninstalled_while_it_may_start():
    gone = {"daemon": None, "programs": frozenset(), "subnet_env": None}
    [finding] = find(**gone, links=(LINKS[0],), vxlans=())
    assert finding.problem.hint.endswith("if this network is not used any more: rm 10-flannel.conflist")
    assert "see its log" in next(each for each in find(**gone) if each.problem.code == "LEASE-001").problem.hint


def test_a_command_names_a_link_with_dots_by_a_path():
    command = setting("net/ipv4/conf/eth0.100/rp_filter", "2", "x")
    assert str(command) == "sysctl -w net/ipv4/conf/eth0.100/rp_filter=2"


def test_each_part_is_a_field_of_a_sight_and_some_check_needs_it():
    parts = set(get_args(Part))
    assert parts <= set(Sight.__struct_fields__)
    assert {need for check in CHECKS for need in check.needs} == parts
