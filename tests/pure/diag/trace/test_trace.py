"""A packet's way through a node, predicted from a sight."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    ADDRESSES,
    CNI0,
    ETH0,
    FLANNELD,
    LINKS,
    NETWORK,
    ROUTES,
    STATE,
    VXLAN,
    WELL,
    at_input,
    links,
)
from tests.pure.diag.rules.test_verdict import DROP, field, meta, rules
from weft.diag.rules.matching import Packet
from weft.diag.rules.ruleset import Chain, Ruleset
from weft.diag.sight.node import PodEnd, Sight
from weft.diag.trace.hops import Way
from weft.diag.trace.predict import Entry, follow
from weft.model.kernel.reported import AddressInfo, LinkInfo, NeighbourInfo, NextHop, RouteInfo, RuleInfo
from weft.model.value import replace

MAIN = RuleInfo(family=4, priority=32766, table=254)
POD, NODE = Entry(kind="pod"), Entry(kind="node")
PEER = Entry(kind="remote", remote=ip_address("192.168.0.2"))
OUTSIDE = Entry(kind="remote")
ON = {"net/bridge/bridge-nf-call-iptables": "1", "net/ipv4/ip_forward": "1"}


def packet(source: str = "10.244.1.2", target: str = "10.244.2.3") -> Packet:
    return Packet(
        source=ip_address(source), target=ip_address(target), protocol="tcp", source_port=40000, target_port=80
    )


def way(
    entry: Entry = POD, sight: Sight = WELL, *, of: Packet | None = None, original: Packet | None = None, **changes: Any
) -> Way:
    return follow(replace(sight, **changes), of or packet(), entry, original=original)


def steps(found: Way) -> list[str]:
    return [hop.what for hop in found.hops]


def code(found: Way) -> str:
    assert found.problem is not None
    assert found.end == "dropped"
    assert found.hops[-1].passes is False
    return found.problem.code


IN = packet("10.244.2.3", "10.244.1.2")


def test_out_of_a_pod_to_another_node():
    found = way()
    assert (found.end, found.to, found.carried) == ("sent", "192.168.0.2", "VXLAN 1, UDP port 8472")
    assert steps(found) == [
        *("from the pod by", "route", "rules at forward", "out by", "neighbour", "FDB", "outer packet by", "sent")
    ]
    assert (
        found.hops[1].seen == "10.244.2.0/24 via 10.244.2.0 dev flannel.1, made by weft from the lease of 192.168.0.2"
    )


def test_into_a_pod_from_another_node():
    found = way(PEER, of=IN)
    assert found.end == "delivered"
    assert steps(found) == [
        *("received by", "rules at input", "unwrapped by", "route", "rules at forward", "out by", "delivered"),
    ]


def test_of_two_devices_a_packet_comes_by_that_which_leads_back():
    other = LinkInfo(index=9, name="flannel-wg", kind="wireguard", mtu=1420, up=True)
    both = replace(STATE, network=replace(NETWORK, devices=["flannel-wg", "flannel.1"]))
    own = (AddressInfo(index=index, ip=ip_address("10.244.1.0"), prefixlen=32) for index in (9, VXLAN))
    sight = replace(WELL, daemon=both, links=(other, *LINKS), addresses=(*ADDRESSES, *own))
    seen = [hop.seen for hop in way(PEER, sight, of=IN).hops if hop.what == "unwrapped by"]
    assert seen == ["flannel.1, MTU 1450"]
    elsewhere = replace(ROUTES[2], via=None, index=9)
    seen = [hop.seen for hop in way(PEER, sight, of=IN, routes=(*ROUTES[:2], elsewhere)).hops]
    assert "flannel-wg, MTU 1420" in seen


def test_from_and_to_the_node_itself():
    assert steps(way(NODE, of=packet("192.168.0.1")))[:2] == ["route", "rules at output"]
    found = way(OUTSIDE, of=packet("192.168.0.9", "192.168.0.1"))
    assert (found.end, steps(found)) == ("delivered", ["rules at input", "delivered"])


def test_a_node_asks_itself():
    own = packet("192.168.0.1", "10.244.1.1")
    dropped = at_input(field("ip", "daddr", "10.244.1.1"), DROP, hook="output")
    assert code(way(NODE, of=own, rules=dropped)) == "FW-002"
    assert way(NODE, of=own, rules=dropped).hops[-1].what == "rules at output"
    assert way(NODE, of=own).end == "delivered"
    assert way(OUTSIDE, of=own, rules=dropped).end == "delivered"


def test_from_outside_to_a_pod():
    found = way(OUTSIDE, of=packet("9.9.9.9", "10.244.1.2"), rules=rules([meta("iifname", "eth0"), DROP]))
    assert code(found) == "FW-002"
    assert way(OUTSIDE, of=packet("9.9.9.9", "10.244.1.2"), routes=ROUTES[1:]).end == "delivered"


def test_between_pods_of_a_node():
    local = packet("10.244.1.2", "10.244.1.3")
    assert steps(way(of=local, rules=rules(policy="drop"))) == ["from the pod by", "delivered"]
    assert code(way(of=local, rules=rules(policy="drop"), settings=ON)) == "FW-002"
    assert way(of=packet("10.244.1.2", "10.244.1.1")).hops[-1].seen == "10.244.1.1 is this node's own"


def test_to_a_pod_without_a_bridge():
    assert way(of=packet("10.244.1.2", "10.244.1.9")).hops[-1].seen == "to 10.244.1.9 behind veth1"


def test_without_an_overlay():
    gateway = replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0)
    plain = replace(FLANNELD, links=(LINKS[0], *LINKS[2:]), routes=(*ROUTES[:2], gateway))
    assert (way(sight=plain).end, way(sight=plain).to) == ("sent", "192.168.0.2")
    assert way(PEER, plain, of=IN).end == "delivered"
    assert way(PEER, plain, of=IN, ways={}).end == "delivered"


def test_unwrapped_from_a_peer():
    unwrapped = Entry(kind="remote", remote=ip_address("192.168.0.2"), wrapped=False)
    assert steps(way(unwrapped, of=IN))[:2] == ["received by", "route"]
    assert code(way(unwrapped, of=IN, rules=rules([meta("iifname", "eth0"), DROP]))) == "FW-002"


def test_with_another_kind_of_device():
    tun = LinkInfo(index=VXLAN, name="flannel0", kind="tun", mtu=1472, up=True)
    network = replace(STATE.network, devices=["flannel0"])  # type: ignore[type-var]
    route = RouteInfo(dst=ip_network("10.244.0.0/16"), index=VXLAN)
    udp = replace(
        WELL,
        links=(LINKS[0], tun, *LINKS[2:]),
        vxlans=(),
        routes=(ROUTES[1], route),
        daemon=replace(STATE, network=network),
    )
    assert way(sight=udp).carried == "tun"
    assert way(PEER, udp, of=IN).end == "delivered"
    assert code(way(sight=udp, of=packet(target="10.244.9.9"))) == "FDB-001"


@pytest.mark.parametrize(
    "expected, entry, of, changes",
    [
        ("CHECK-001", POD, packet("10.99.0.1"), {}),
        ("CHECK-001", POD, packet(), {"routes": ROUTES[2:], "addresses": ADDRESSES[:1]}),
        ("BRIDGE-006", POD, packet(), {**links("cni0", up=False), "routes": ROUTES[2:]}),
        ("KERN-002", POD, packet(), {"settings": {"net/ipv4/ip_forward": "0"}}),
        ("ROUTE-001", POD, packet(), {"routes": ROUTES[1:2]}),
        ("ROUTE-001", POD, packet(), {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.244.2.3/32"), kind=6))}),
        ("FW-002", POD, packet(), {"rules": rules(policy="drop")}),
        ("VTEP-003", POD, packet(), links("flannel.1", up=False)),
        ("VTEP-003", PEER, IN, links("flannel.1", up=False)),
        ("FDB-001", POD, packet(), {"neighbours": ()}),
        ("FDB-001", POD, packet(), {"neighbours": (replace(WELL.neighbours[0], state=4),)}),
        ("FDB-001", POD, packet(), {"fdb": ()}),
        ("REACH-001", POD, packet(), {"ways": {}, "addresses": ADDRESSES[1:]}),
        ("IFACE-002", POD, packet(), links("eth0", up=False)),
        ("REACH-001", PEER, IN, {"rules": at_input(field("udp", "dport", 8472), DROP)}),
        ("BRIDGE-006", PEER, IN, links("cni0", up=False)),
        ("IFACE-002", PEER, IN, links("eth0", up=False)),
        ("IFACE-002", PEER, IN, {**links("eth0", up=False), "ways": {}}),
        ("ROUTE-002", PEER, IN, {"routes": (*ROUTES, RouteInfo(dst=ip_network("10.244.1.2/32"), index=ETH0))}),
    ],
)
def test_a_packet_that_is_dropped(expected: str, entry: Entry, of: Packet, changes: dict[str, Any]):
    assert code(way(entry, of=of, **changes)) == expected


UPLINK = tuple(replace(link, kind="veth") if link.name == "eth0" else link for link in LINKS)  # as in a lab


@pytest.mark.parametrize("kind, index", [(1, ETH0), (6, 0)])
def test_a_pods_packet_comes_in_where_the_pod_is_whatever_its_route_says(kind: int, index: int):
    """A bridge that is down loses its routes; what other routes say of a pod counts for packets to it alone."""
    local = packet("10.244.1.2", "10.244.1.3")
    for pod in ("10.244.1.2/32", "10.244.1.3/32"):
        astray = RouteInfo(dst=ip_network(pod), kind=kind, index=index)
        for uplink in (LINKS, UPLINK):
            sight = replace(WELL, links=uplink, routes=(*ROUTES, astray))
            assert way(sight=sight).hops[0].seen == "cni0, MTU 1450"
            assert steps(way(sight=sight, of=local)) == ["from the pod by", "delivered"]
            down = tuple(replace(link, up=link.name != "cni0") for link in uplink)
            assert code(way(sight=sight, links=down, routes=(*ROUTES[2:], astray))) == "BRIDGE-006"


def test_a_pod_on_a_link_of_its_own_comes_in_there():
    gateway = AddressInfo(index=LINKS[3].index, ip=ip_address("10.244.1.1"), prefixlen=32)
    for addresses in (ADDRESSES, (*ADDRESSES, gateway)):
        assert way(of=packet("10.244.1.9"), addresses=addresses).hops[0].seen == "veth1, MTU 1450"


def test_what_can_not_be_told():
    found = way(rules=rules([meta("cpu", 0), DROP]))
    assert found.end == "undecided"
    assert found.hops[2].seen.startswith("tcp 10.244.1.2 to 10.244.2.3:80: undecided: rule of inet t f")
    hidden = way(unseen={"rules": "no nft"})
    assert (hidden.end, hidden.hops[2].seen) == ("undecided", "not seen: no nft")
    assert code(way(unseen={"rules": "no nft"}, fdb=())) == "FDB-001"


def test_an_outer_packet_whose_way_is_not_known_is_taken_to_arrive():
    assert steps(way(PEER, of=IN, ways={}, addresses=ADDRESSES[1:]))[0] == "unwrapped by"
    six = AddressInfo(index=ETH0, ip=ip_address("fd00::1"), prefixlen=64)
    assert steps(way(PEER, of=IN, addresses=(six, *ADDRESSES[1:])))[:2] == ["received by", "unwrapped by"]


def test_routes_by_several_ways_and_rules_that_choose_tables_are_not_decided():
    hops = (NextHop(index=VXLAN, via=ip_address("10.244.2.0")), NextHop(index=ETH0))
    found = way(routes=(*ROUTES[:2], replace(ROUTES[2], via=None, index=0, hops=hops)))
    assert (found.end, found.to) == ("undecided", "192.168.0.2")
    rule = RuleInfo(family=4, priority=9, table=7, more=True)
    assert way(policies=(rule, MAIN)).end == "undecided"


def rule(priority: int = 9, **fields: Any) -> RuleInfo:
    return RuleInfo(family=4, priority=priority, **{"table": 7} | fields)


AWAY = RouteInfo(dst=ip_network("0.0.0.0/0"), table=7, index=ETH0, via=ip_address("192.168.0.9"))


@pytest.mark.parametrize(
    "fields, seen",
    [
        ({}, "from all lookup 7"),
        ({"src": ip_network("10.244.1.0/24")}, "from 10.244.1.0/24 lookup 7"),
        ({"src": ip_network("10.244.9.0/24")}, ""),
        ({"src": ip_network("10.244.9.0/24"), "invert": True}, "not from 10.244.9.0/24 lookup 7"),
        ({"dst": ip_network("10.244.2.0/24"), "iif": "cni0"}, "from all to 10.244.2.0/24 iif cni0 lookup 7"),
        ({"mark": 1, "mask": 1}, ""),
        ({"mark": 0, "mask": 1}, "from all fwmark 0x0/0x1 lookup 7"),
        ({"table": 8}, ""),
        ({"table": 255}, ""),
        ({"family": 6}, ""),
        ({"action": 3}, "?"),
        ({"more": True}, "?"),
        ({"more": True, "invert": True}, "?"),
        ({"mark": 1, "mask": 1, "unknown": True}, "?"),
    ],
)
def test_rules_choose_tables(fields: dict[str, Any], seen: str):
    of = replace(packet(), mark=None if fields.pop("unknown", False) else 0)
    chosen = replace(rule(), **fields)
    throw = RouteInfo(dst=ip_network("10.244.0.0/16"), table=8, kind=9)
    found = way(of=of, policies=(MAIN, chosen), other_routes=(AWAY, throw))
    said = [hop.seen for hop in found.hops if hop.what == "policy"]
    if seen == "?":
        assert (found.end, found.to) == ("undecided", "192.168.0.2")
        assert said[0].startswith("undecided: the rule '9: ")
    else:
        assert said == ([f"rule 9: {seen}"] if seen else [])
        # It may arrive by that way, too; if it does not, this is what is to be suspected.
        assert (found.end, found.to) == (("undecided", "192.168.0.9") if seen else ("sent", "192.168.0.2"))
        suspects = [hop.suspect for hop in found.hops if hop.suspect is not None]
        assert [each.code for each in suspects] == (["ROUTE-002"] if seen else [])
        assert all("dev eth0 table 7" in each.hint for each in suspects)


def test_rules_that_lead_nowhere():
    found = way(policies=(MAIN, rule(action=8, table=0)))
    assert code(found) == "ROUTE-001"
    assert found.hops[-1].seen == "rule 9: from all action 8"
    assert code(way(policies=(rule(src=ip_network("10.0.0.0/7")),))) == "ROUTE-001"  # and none has a route
    # What a device wraps is bound to the uplink.
    assert code(way(policies=(MAIN, rule(action=7, table=0, oif="eth0")))) == "REACH-001"
    assert code(way(policies=(MAIN, rule(iif="lo")), other_routes=(replace(AWAY, kind=6),))) == "REACH-001"


@pytest.mark.parametrize("state, silent", [(0x01, True), (0x20, True), (0x02, False), (0x04, False), (0x40, False)])
def test_who_does_not_say_its_mac_is_suspected(state: int, silent: bool):
    def entry(index: int, ip: str) -> dict[str, Any]:
        return {
            "neighbours": (*WELL.neighbours, NeighbourInfo(index=index, ip=ip_address(ip), mac=None, state=state)),
            "routes": (*ROUTES, RouteInfo(dst=ip_network("192.168.0.0/24"), index=ETH0)),
        }

    def suspects(found: Way) -> list[str]:
        assert (found.end == "undecided") == silent
        return [f"{hop.suspect.code} {hop.suspect.seen}" for hop in found.hops if hop.suspect is not None]

    node = way(**entry(ETH0, "192.168.0.2"))
    assert suspects(node) == (["REACH-001 192.168.0.2 does not answer ARP on eth0"] if silent else [])
    pod = way(PEER, of=IN, **entry(CNI0, "10.244.1.2"))
    assert suspects(pod) == (["CHECK-001 10.244.1.2 does not answer ARP on cni0"] if silent else [])
    # The outer packet goes by a gateway of its own.
    by = RouteInfo(dst=ip_network("192.168.0.2/32"), via=ip_address("192.168.0.7"), index=ETH0)
    assert suspects(way(**entry(ETH0, "192.168.0.7") | {"routes": (*ROUTES, by)})) == (
        ["REACH-001 192.168.0.7 does not answer ARP on eth0"] if silent else []
    )


def test_an_outer_packet_that_its_own_route_drops():
    found = way(routes=(*ROUTES, RouteInfo(dst=ip_network("192.168.0.2/32"), kind=6)))
    assert code(found) == "REACH-001"
    assert found.problem is not None
    assert found.problem.hint == "ip -4 route delete blackhole 192.168.0.2/32"


def test_a_wide_route_of_a_peer_makes_no_pod_of_this_node_suspect():
    wide = replace(ROUTES[2], dst=ip_network("10.244.0.0/15"))
    sight = replace(FLANNELD, routes=(*ROUTES, wide), subnet_env=replace(FLANNELD.subnet_env, networks=(wide.dst,)))  # type: ignore[type-var]
    found = way(PEER, sight, of=IN)
    assert found.end == "delivered"


def test_a_pod_asks_itself():
    found = way(of=packet("10.244.1.2", "10.244.1.2"))
    assert (found.end, steps(found)) == ("delivered", ["loopback"])


def test_a_link_between_nodes_without_a_carrier():
    assert code(way(**links("eth0", operstate=2))) == "IFACE-002"
    assert code(way(PEER, of=IN, **links("eth0", operstate=3))) == "IFACE-002"
    assert way(**links("cni0", operstate=2)).end == "sent"


def at(hook: str, *statements: Any) -> dict[str, Any]:
    found = rules(list(statements))
    return {"rules": replace(found, chains={n: replace(c, hook=hook) for n, c in found.chains.items()})}


def test_what_network_policies_refuse_is_said_to_be_theirs():
    place = ("inet", "weft-policy", "forward")
    chain = Chain(place=place, hook="forward", kind="filter", policy="drop")
    problem = way(rules=Ruleset(chains={place: chain})).problem
    assert problem is not None
    assert problem.code == "FW-002"
    assert problem.hint.startswith("'weft policy explain A B --from FILES' says which policy refuses it")


def test_other_hooks_are_asked_and_said_where_they_matter():
    assert code(way(**at("prerouting", meta("iifname", "cni0"), DROP))) == "FW-002"
    assert code(way(**at("postrouting", meta("oifname", "flannel.1"), DROP))) == "FW-002"
    assert code(way(**at("output", field("udp", "dport", 8472), DROP))) == "REACH-001"
    assert code(way(PEER, of=IN, **at("prerouting", field("udp", "dport", 8472), DROP))) == "FW-002"
    assert (
        code(way(NODE, of=packet("192.168.0.1", "192.168.0.1"), **at("input", meta("iifname", "lo"), DROP))) == "FW-002"
    )


def test_each_family_comes_by_its_own_device():
    other = LinkInfo(index=9, name="flannel-v6.1", kind="vxlan", mtu=1430, up=True)
    network = replace(STATE.network, devices=["flannel-v6.1", "flannel.1"])  # type: ignore[type-var]
    own = AddressInfo(index=VXLAN, ip=ip_address("10.244.1.0"), prefixlen=32)
    found = way(
        PEER,
        of=IN,
        links=(other, *LINKS),
        addresses=(*ADDRESSES, own),
        daemon=replace(STATE, network=network),
    )
    assert found.hops[2].seen == "flannel.1, MTU 1450"
    # Each device has an IPv6 address of its own link.
    links_own = [AddressInfo(index=index, ip=ip_address("fe80::2"), prefixlen=64, scope=253) for index in (VXLAN, 9)]
    v6 = AddressInfo(index=9, ip=ip_address("fd00:1::"), prefixlen=128)
    found = way(
        PEER,
        of=replace(IN, source=ip_address("fd00:2::3"), target=ip_address("fd00:1::2")),
        links=(*LINKS, other),
        addresses=(*ADDRESSES, own, *links_own, v6),
        routes=(*ROUTES, RouteInfo(dst=ip_network("fd00:1::/64"), index=CNI0)),
        daemon=replace(STATE, network=network),
    )
    assert [hop.seen for hop in found.hops if hop.what == "unwrapped by"] == ["flannel-v6.1, MTU 1430"]


def test_flanneld_with_devices_that_know_peers_themselves():
    tunnel = LinkInfo(index=VXLAN, name="flannel.ipip", kind="ipip", mtu=1480, up=True)
    route = replace(ROUTES[2], via=ip_address("192.168.0.2"))
    ipip = replace(FLANNELD, links=(LINKS[0], tunnel, *LINKS[2:]), routes=(*ROUTES[:2], route), vxlans=())
    assert (way(sight=ipip).end, way(sight=ipip).to) == ("sent", "192.168.0.2")
    assert way(
        sight=ipip, of=packet(target="10.244.3.1"), routes=(ROUTES[1], replace(route, dst=ip_network("10.244.0.0/16")))
    ).to
    wg = LinkInfo(index=VXLAN, name="flannel-wg", kind="wireguard", mtu=1420, up=True)
    whole = RouteInfo(dst=ip_network("10.244.0.0/16"), index=VXLAN)
    found = way(sight=replace(ipip, links=(LINKS[0], wg, *LINKS[2:]), routes=(ROUTES[1], whole)))
    assert (found.end, found.hops[-1].seen) == ("undecided", "flannel-wg knows to which node")


def test_the_smaller_metric_counts():
    other = replace(ROUTES[1], index=VXLAN, priority=5)
    assert way(PEER, of=IN, routes=(other, *ROUTES)).hops[-1].seen == "to 10.244.1.2 behind cni0"


def large(size: int = 1450, **fields: Any) -> Packet:
    return replace(packet(**fields), protocol="icmp", size=size)


def six(size: int = 1450) -> Packet:
    return replace(large(size), source=ip_address("fd00:1::2"), target=ip_address("fd00:2::3"))


@pytest.mark.parametrize(
    "of, changes, where",
    [
        (large(1400), links("flannel.1", mtu=1400), ""),
        (large(1401), links("flannel.1", mtu=1400), "flannel.1"),
        (packet(), links("flannel.1", mtu=68), ""),  # that has no size
        (large(1301), {"routes": (*ROUTES[:2], replace(ROUTES[2], mtu=1300))}, f"route {ROUTES[2].dst}"),
        (large(1300), {"routes": (*ROUTES[:2], replace(ROUTES[2], mtu=1300))}, ""),
    ],
)
def test_what_is_larger_than_a_link_or_route_takes_is_dropped_before_rules(
    of: Packet, changes: dict[str, Any], where: str
):
    found = way(of=of, **changes, rules=rules(policy="drop"))
    if where:
        assert code(found) == "MTU-001"
        assert found.hops[-1].what == "size"
        assert found.problem.where == where
    else:
        assert code(found) == "FW-002"


def test_a_route_says_nothing_of_the_size_by_ipv6_or_of_what_the_node_itself_sends():
    narrow = {"routes": (*ROUTES[:2], replace(ROUTES[2], mtu=1300))}
    assert way(NODE, of=large(source="192.168.0.1"), **narrow).end == "sent"
    gateway = RouteInfo(dst=ip_network("fd00:2::/64"), via=ip_address("fe80::9"), index=ETH0, mtu=1300)
    pods = RouteInfo(dst=ip_network("fd00:1::/64"), index=CNI0)
    assert way(of=six(), routes=(*ROUTES, pods, gateway)).end == "sent"


@pytest.mark.parametrize(
    "link, pod, hint",
    [
        ("flannel.1", 1450, "ip link set flannel.1 mtu 1450"),
        ("flannel.1", 1500, "Pods here have MTU 1500, from before: recreate them"),
        ("cni0", 1500, ""),
    ],
)
def test_what_mends_a_link_that_is_too_narrow(link: str, pod: int, hint: str):
    entry, of = (PEER, large(source="10.244.2.3", target="10.244.1.2")) if link == "cni0" else (POD, large())
    found = way(
        entry, of=of, pods={"veth1": PodEnd(link=LinkInfo(index=2, name="eth0", mtu=pod))}, **links(link, mtu=1400)
    )
    assert (code(found), found.problem.hint) == ("MTU-001", hint)


def test_an_outer_packet_that_is_larger_than_the_uplink_takes():
    assert way(of=large(1450), **links("eth0", mtu=1500)).end == "sent"
    found = way(of=large(1450), **links("eth0", mtu=1499))
    assert found.end == "undecided"
    [doubt] = [hop.suspect for hop in found.hops if hop.suspect is not None]
    assert (doubt.code, doubt.where) == ("MTU-001", "link eth0")
    assert doubt.seen == "outer packets of 1500 bytes are too large for eth0, MTU 1499: sent in fragments"


def test_a_rule_that_drops_large_packets_alone():
    long = meta("length", 1400, ">")
    dropping = rules([long, DROP])
    found = way(of=large(1401), rules=dropping)
    assert code(found) == "MTU-001"
    assert found.problem.seen.endswith("which lets small ones pass")
    assert way(of=large(1400), rules=dropping).end == "sent"
    assert way(rules=dropping).end == "undecided"
    # What drops small ones, too, is no matter of the size. Of an outer packet the outer size counts.
    assert code(way(of=large(1401), rules=rules([DROP]))) == "FW-002"
    outer = at_input(long, DROP)
    assert code(way(PEER, of=large(1351, source="10.244.2.3", target="10.244.1.2"), rules=outer)) == "MTU-001"
    assert way(PEER, of=large(1350, source="10.244.2.3", target="10.244.1.2"), rules=outer).end == "delivered"


FAR = packet(target="198.51.100.7")
MASQUERADE, RETURN, ACCEPT = {"masquerade": None}, {"return": None}, {"accept": None}


def leaving(*statements: Any, target: str = "198.51.100.7", **changes: Any) -> Way:
    """A packet of a pod that goes outside, with one rule for NAT, or with an empty chain."""
    found = rules(*([list(statements)] if statements else []))
    chains = {name: replace(each, hook="postrouting", kind="nat") for name, each in found.chains.items()}
    return way(sight=FLANNELD, of=packet(target=target), **({"rules": replace(found, chains=chains)} | changes))


def test_a_pod_to_the_outside_is_masqueraded():
    found = leaving(MASQUERADE)
    assert (found.end, found.to) == ("sent", "192.168.0.254")
    assert found.packet is not None
    assert found.packet.source == "192.168.0.1"
    assert steps(found) == ["from the pod by", "route", "rules at forward", "SNAT", "out by", "sent"]


TO_IT = field("ip", "daddr", "198.51.100.7")


@pytest.mark.parametrize(
    "statements, daemons, seen, hint",
    [
        ((), True, "no rule translates it", "weftd's masquerade rules are gone"),
        ((), False, "no rule translates it", "without --ip-masq"),
        ((TO_IT, RETURN), True, "spares its target", "it can't answer them"),
        ((TO_IT, ACCEPT), True, "spares its target", "it can't answer them"),
        ((meta("mark", 0), RETURN), True, "no rule translates it", "are gone"),  # as kube-proxy's first one
        ((field("ip", "daddr", "9.9.9.9"), MASQUERADE), True, "no rule translates it", "are gone"),
    ],
)
def test_a_pod_that_leaves_with_its_own_address(statements: Any, daemons: bool, seen: str, hint: str):
    found = leaving(*statements, subnet_env=replace(FLANNELD.subnet_env, ip_masq=daemons))  # type: ignore[type-var]
    assert found.packet is not None
    assert (found.end, found.packet.source) == ("sent", "10.244.1.2")
    [hop] = [hop for hop in found.hops if hop.what == "NAT at postrouting"]
    assert hop.seen.startswith("10.244.1.2 stays as it is: ")
    assert hop.seen.endswith(seen)
    assert hop.suspect is not None
    assert hop.suspect.code == "NFT-002"
    assert hint in hop.suspect.hint


def test_who_knows_the_way_to_pods_is_asked_with_their_addresses():
    def kept(found: Way) -> list[bool]:
        return [hop.suspect is None for hop in found.hops if " stays as it is" in hop.seen]

    assert kept(leaving()) == [False]
    assert kept(leaving(target="192.168.0.2")) == [True]  # a node
    assert kept(leaving(target="10.244.2.3")) == kept(leaving(target="10.244.1.3")) == []
    assert kept(leaving(target="224.0.0.9")) == []
    assert kept(way(NODE, of=replace(FAR, source=ip_address("192.168.0.1")))) == []
    # What can't be told is not said; of a node without a network whatever leaves goes outside.
    assert kept(leaving(meta("cpu", 0), MASQUERADE)) == []
    assert kept(way(of=FAR, unseen={"rules": "no nft"})) == []
    assert kept(leaving(subnet_env=None)) == [False]


def test_without_a_way_to_the_outside():
    def hint(found: Way) -> str:
        assert (code(found), found.problem is not None) == ("ROUTE-001", True)
        return "" if found.problem is None else found.problem.hint

    assert hint(way(of=FAR, routes=ROUTES[1:])) == "This node has no default route either"
    blocked = (*ROUTES, RouteInfo(dst=ip_network("198.51.100.0/24"), kind=7))
    assert hint(way(of=FAR, routes=blocked)) == "ip -4 route delete unreachable 198.51.100.0/24"
    assert "No lease is served" in hint(way(of=packet(), routes=ROUTES[1:2]))
