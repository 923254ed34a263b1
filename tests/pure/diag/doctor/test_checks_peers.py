"""What the doctor finds of peers: who does not answer, and why packets do not get there."""

from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network
from itertools import product
from typing import Any, Final

import pytest

from tests.pure.diag.doctor.sights import (
    ADDRESSES,
    CNI0,
    CUT,
    ETH0,
    FLANNELD,
    LINKS,
    MAC,
    MAIN_RULE,
    MUTE,
    PEER,
    ROUTES,
    STATE,
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
from tests.pure.diag.rules.test_verdict import DROP, field
from weft.cni.plugins.portmap.strangers import Stray
from weft.diag.sight import peers as seen
from weft.diag.sight.node import DeadPort, Knock, Lost, Proof
from weft.diag.sight.peers import Peer
from weft.model.errors import Problem
from weft.model.kernel.reported import LinkInfo, NeighbourInfo, RouteInfo, RuleInfo
from weft.model.node.nodestate import (
    NetworkState,
)
from weft.model.value import replace


def test_a_silent_peer_and_a_stranger_are_a_nat():
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    assert codes(probes=gone) == ["LEASE-005"]
    [found] = find(probes=gone, strangers=(ip_address("192.168.0.254"),))
    assert found.problem.code == "NAT-001"
    assert "UDP port 8472 receives datagrams from addresses that are no peer's: 192.168.0.254" in found.problem.seen
    # A stranger alone is none: all peers answer.
    assert not find(strangers=(ip_address("192.168.0.254"),))


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


def test_a_family_without_any_peer_is_missed_where_the_other_has_some():
    env = FLANNELD.subnet_env
    assert env is not None
    both = replace(env, subnets=(*env.subnets, IPv6Network("fd01:0:0:1::/64")))
    [lost] = find(FLANNELD, subnet_env=both)
    assert (lost.problem.code, lost.problem.where) == ("ROUTE-001", "pods of IPv6")
    assert not find(FLANNELD, subnet_env=both, routes=ROUTES[:2], neighbours=(), fdb=(), probes=())  # none at all yet


def test_without_weftd_the_links_towards_peers_are_uplinks():
    narrow = links("eth0", mtu=1480)
    assert [each.problem.code for each in find(FLANNELD, **narrow)] == ["MTU-001"]
    by_node = replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0)
    plain: Any = {"links": tuple(each for each in narrow["links"] if each.name != "flannel.1"), "vxlans": ()}
    plain |= {"routes": (*ROUTES[:2], by_node), "neighbours": (), "fdb": (), "probes": ()}
    assert not find(FLANNELD, **plain)  # it has room for pods' 1450 bytes as they are
    plain["links"] = tuple(replace(each, mtu=1400) if each.name == "eth0" else each for each in plain["links"])
    [found] = find(FLANNELD, **plain)
    assert found.problem.expected == "1450 at least: 1450 for packets of pods"


def traced(code: str, where: str) -> Proof:
    cause = Problem(code, where, "dropped by rule 4, as the kernel tells")
    ends = ip_address("10.244.1.0"), ip_address("10.244.2.0")
    lost = Lost(source=ends[0], target=ends[1], peer="10.244.2.0/24", cause=cause, here=True)
    return Proof(tried=1, arrived=0, pods=1, peers=1, lost=(lost,))


def test_of_a_peer_whose_packets_are_seen_to_end_here_nothing_else_is_said():
    silent: Any = {"probes": CUT, "knocks": (knocked("silent", "refused"),)}
    assert codes(**silent) == ["REACH-002"]
    [found] = find(**silent, proof=traced("FW-002", "node1"))
    assert (found.problem.code, found.problem.where) == ("FW-002", "node1")


def test_peers_are_named_up_to_ten():
    inner = [replace(probed("overlay", answered=False), peer=f"10.244.{n}.0/24") for n in range(12)]
    outer = [replace(probed("underlay"), peer=each.peer) for each in inner]
    assert not find(probes=tuple(inner))  # whether their public IPs answer is not known
    [finding] = find(probes=(*inner, *outer))
    assert finding.problem.where.startswith("12 peers (10.244.0.0/24, 10.244.1.0/24, ")
    assert finding.problem.where.endswith(" 10.244.9.0/24 and 2 more)")
    [finding] = find(probes=(inner[0], outer[0]))
    assert finding.problem.where == "peer 10.244.0.0/24"


def test_a_dead_node_without_an_overlay():
    dead = replace(probed("underlay", answered=False), peer="10.244.2.0/24")
    assert codes(probes=(dead,)) == ["LEASE-005"]


def test_a_dead_port_says_once_where_its_rule_leads():
    stray = Stray(family=4, protocol="tcp", port=80, host=None, pod=ip_address("10.4.0.2"), chain="CNI-DN-x")
    [found] = find(dead_ports=(DeadPort(port="80/tcp", address=stray.pod, rule=stray.place),))
    assert str(found.problem).count("lead") == 1
    assert found.problem.seen.startswith("chain CNI-DN-x of iptables table nat leads to 10.4.0.2,")


WORDS: Final[tuple[Knock, ...]] = ("silent", "refused", "rejected")


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("proof", [None, WELL.proof])
@pytest.mark.parametrize("device, beside", [*product(WORDS, WORDS)])
def test_a_port_is_eaten_only_if_nothing_else_explains_its_silence(
    device: Knock, beside: Knock, proof: Proof | None, outside: bool, others: bool
):
    """Advice that changes a cluster needs a word of the port beside, none of the port itself, and packets traced."""
    probes = (probed("overlay", answered=False), probed("underlay", answered=outside))
    probes += (replace(probed("overlay"), peer="10.244.9.0/24"),) if others else ()
    [one] = find(probes=probes, knocks=(knocked(device, beside),), proof=proof)
    if device == "refused":
        assert one.problem.code == "VTEP-004"
    elif device == "rejected":
        assert one.problem.code == "REACH-001"
    elif not outside:  # it drops echo requests, or is not there
        expected = ("REACH-001", "warning") if beside == "refused" else ("LEASE-005", "fault")
        assert (one.problem.code, one.weight) == expected
    elif beside == "refused" and proof is not None:
        assert one.problem.code == "REACH-002"
    else:
        assert (one.problem.code, one.weight) == ("REACH-001", "fault")
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
    knocks = (knocked("silent", "refused"),)
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


def test_what_a_device_wraps_is_known_of_few_kinds():
    tun = LinkInfo(index=VXLAN, name="flannel.1", kind="tun", mtu=1450, up=True)
    assert not codes(links=(replace(LINKS[0], mtu=1400), tun, *LINKS[2:]), vxlans=())
    assert not codes(**links("eth0", mtu=1400), **state(network=None), subnet_env=None, networks=())


def test_a_rule_that_leads_pods_astray_from_a_gateway_that_is_a_node():
    lease = replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0, protocol=3)
    dead = RouteInfo(dst=ip_network("0.0.0.0/0"), table=100, kind=6)
    rule = RuleInfo(family=4, priority=100, table=100, action=1, src=ip_network("10.244.1.0/24"))
    plain: Any = {"links": tuple(each for each in LINKS if each.name != "flannel.1"), "vxlans": (), "neighbours": ()}
    plain |= {"fdb": (), "probes": (), "routes": (*ROUTES[:2], lease)}
    assert not find(FLANNELD, **plain)
    assert codes(FLANNELD, **plain, policies=(rule, MAIN_RULE), other_routes=(dead,)) == ["ROUTE-002"]
