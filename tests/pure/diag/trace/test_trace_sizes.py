"""Packets that are too large for a link, a route or a rule of their way."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    CNI0,
    ETH0,
    ROUTES,
    at_input,
    links,
)
from tests.pure.diag.rules.test_verdict import DROP, meta, rules
from tests.pure.diag.trace.walking import NODE, PEER, POD, code, large, packet, six, way
from weft.diag.rules.matching import Packet
from weft.diag.sight.node import PodEnd
from weft.model.kernel.reported import LinkInfo, RouteInfo
from weft.model.value import replace


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
