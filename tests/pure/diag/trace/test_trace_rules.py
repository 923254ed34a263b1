"""Rules and routes that choose a packet's way, or end it."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    CNI0,
    ETH0,
    FLANNELD,
    ROUTES,
    VXLAN,
    WELL,
)
from tests.pure.diag.rules.test_policed import table
from tests.pure.diag.rules.test_verdict import DROP, field, meta, rules
from tests.pure.diag.trace.walking import IN, NODE, PEER, code, packet, way
from weft.diag.rules.ruleset import Chain, Ruleset
from weft.diag.trace.hops import Way
from weft.model.kernel.reported import NeighbourInfo, NextHop, RouteInfo, RuleInfo
from weft.model.value import replace

MAIN = RuleInfo(family=4, priority=32766, table=254)


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
    assert code(way(policies=(MAIN, rule(action=7, table=0, oif="eth0")))) == "ROUTE-003"
    assert code(way(policies=(MAIN, rule(iif="lo")), other_routes=(replace(AWAY, kind=6),))) == "ROUTE-003"


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
    assert code(found) == "ROUTE-003"
    assert found.problem is not None
    assert found.problem.hint == "ip -4 route delete blackhole 192.168.0.2/32"


def test_a_wide_route_of_a_peer_makes_no_pod_of_this_node_suspect():
    wide = replace(ROUTES[2], dst=ip_network("10.244.0.0/15"))
    sight = replace(FLANNELD, routes=(*ROUTES, wide), subnet_env=replace(FLANNELD.subnet_env, networks=(wide.dst,)))  # type: ignore[type-var]
    found = way(PEER, sight, of=IN)
    assert found.end == "delivered"


def at(hook: str, *statements: Any) -> dict[str, Any]:
    found = rules(list(statements))
    return {"rules": replace(found, chains={n: replace(c, hook=hook) for n, c in found.chains.items()})}


def test_what_network_policies_refuse_is_said_to_be_theirs():
    place = ("inet", "weft-policy", "forward")
    chain = Chain(place=place, hook="forward", kind="filter", policy="drop")
    problem = way(rules=Ruleset(chains={place: chain})).problem
    assert problem is not None
    assert problem.code == "FW-002"
    assert problem.hint.startswith("'weft policy explain A B' says why")


def test_other_hooks_are_asked_and_said_where_they_matter():
    assert code(way(**at("prerouting", meta("iifname", "cni0"), DROP))) == "FW-002"
    assert code(way(**at("postrouting", meta("oifname", "flannel.1"), DROP))) == "FW-002"
    assert code(way(**at("output", field("udp", "dport", 8472), DROP))) == "REACH-001"
    assert code(way(PEER, of=IN, **at("prerouting", field("udp", "dport", 8472), DROP))) == "REACH-001"
    assert (
        code(way(NODE, of=packet("192.168.0.1", "192.168.0.1"), **at("input", meta("iifname", "lo"), DROP))) == "FW-002"
    )


def test_policies_have_a_hop_of_their_own_for_each_direction():
    found = way(rules=table())
    assert [hop.seen for hop in found.hops if hop.what == "policies"] == [
        "egress allowed: no policy refuses it",
        "ingress allowed: ingress[0].from[0] of shop/db allows it",
    ]
    refused = way(of=replace(packet(), target_port=22), rules=table())
    assert code(refused) == "FW-002"
    assert "ingress refused: ingress[0] of no-ssh denies it, by rule" in refused.hops[-1].seen
