"""What a node wants as a whole: its back end's part, blackhole routes, and peers by name."""

from collections import Counter
from ipaddress import IPv4Network, ip_address

import pytest

from tests.support.builders import inputs, mac, subnet_v4, subnet_v6
from weft.desired.node import SHARED, Wanted, served, shared
from weft.model.errors import Problem
from weft.model.kernel.links import NodeLink
from weft.model.kernel.objects import Neighbour, Route, Snapshot, Sysctl
from weft.model.kernel.reported import AddressInfo, LinkInfo
from weft.model.node.status import Status
from weft.model.value import replace


@pytest.mark.spec("flannel.md §1.8/blackhole")
def test_a_blackhole_route_for_each_own_subnet_behind_every_other_route():
    node = replace(inputs(family="46", backend="host-gw"), blackhole_route=True)
    routes = shared(node)
    assert {route.dst for route in routes} == {subnet_v4(1), subnet_v6(1)}
    assert all(isinstance(route, Route) and route.blackhole and route.priority > 2**30 for route in routes)


def test_no_blackhole_route_before_the_subnet_is_known_or_when_not_asked_for():
    node = inputs(backend="host-gw")
    assert shared(node) == frozenset()
    assert shared(replace(node, blackhole_route=True, v4=None)) == frozenset()


def test_a_part_holds_exactly_what_it_was_set_to():
    wanted, one, other = Wanted(), Route(dst=subnet_v4(2), dev="eth0"), Route(dst=subnet_v4(3), dev="eth0")
    assert wanted.set("peer", frozenset({one})) == {one.key}
    assert wanted.set("peer", frozenset({other})) == {one.key, other.key}
    assert wanted.objects == {other.key: other}
    assert wanted.parts == {"peer"}
    assert wanted.set("peer", frozenset()) == {other.key}
    assert wanted.parts == frozenset()


def test_what_two_parts_want_is_the_last_ones_and_stays_when_the_other_goes():
    wanted, before, after = Wanted(), Route(dst=subnet_v4(2), dev="eth0"), Route(dst=subnet_v4(2), dev="eth0")
    wanted.set("old", frozenset({before}))
    wanted.set("new", frozenset({after}))
    assert wanted.set("old", frozenset()) == {after.key}
    assert wanted.objects == {after.key: after}
    assert wanted.set("new", frozenset()) == {after.key}
    assert wanted.objects == {}


def test_a_node_is_ready_when_it_waits_for_nothing():
    assert Status().ready
    assert not Status(waiting=Problem(code="LEASE-001", where="weftd", seen="starting")).ready


def test_a_part_can_be_asked_for():
    wanted, one = Wanted(), Route(dst=subnet_v4(2), dev="eth0")
    wanted.set("one", frozenset({one}))
    assert wanted.part("one") == (one,)
    assert wanted.part("other") == ()


def peer_route(number: int) -> Route:
    dst = IPv4Network((0x0B000000 + (number << 8), 24))
    return Route(dst=dst, via=dst[0], dev="flannel.1", onlink=True)


def scopes(wanted: Wanted) -> Counter[int]:
    return Counter(thing.scope for thing in wanted.objects.values() if isinstance(thing, Route))


def test_the_routes_of_a_thousand_peers_have_scope_global_and_those_of_more_are_spread():
    """Of 4,000 no scope has more than 21: the kernel walks a list of that length for each route."""
    wanted = Wanted()
    wanted.set(SHARED, frozenset({Route(dst=subnet_v4(1), blackhole=True)}))
    for number in range(5000):
        wanted.set(f"peer {number}", frozenset({peer_route(number)}))
        if number == 999:
            assert scopes(wanted) == {0: 1001}
    spread = scopes(wanted)
    assert spread.pop(0) == 1001
    assert max(spread.values()) <= 21
    assert max(spread) < 200


def test_a_peer_that_leaves_gives_its_place_among_the_first_thousand_to_the_next_that_comes():
    wanted = Wanted()
    for number in range(1001):
        wanted.set(f"peer {number}", frozenset({peer_route(number)}))
    wanted.set("peer 7", frozenset({peer_route(8000)}))
    assert scopes(wanted)[0] == 1000, "it stays the same peer"
    wanted.set("peer 7", frozenset())
    assert scopes(wanted)[0] == 999
    wanted.set("peer 1001", frozenset({peer_route(1001)}))
    assert scopes(wanted)[0] == 1000


def test_only_ipv4_routes_with_a_gateway_are_spread():
    wanted = Wanted()
    for number in range(1000):
        wanted.set(f"peer {number}", frozenset({peer_route(number)}))
    state = {
        Route(dst=subnet_v6(2), via=subnet_v6(2)[0], dev="flannel-v6.1"),
        Route(dst=subnet_v4(2), dev="flannel.1"),
        Neighbour(dev="flannel.1", ip=subnet_v4(2)[0], mac=mac(2)),
    }
    wanted.set("peer", frozenset(state))
    assert set(wanted.part("peer")) == state


def test_forwarding_is_wanted_in_the_families_of_pods_in_which_it_was_seen():
    seen = frozenset({4, 6})
    wanted = Sysctl(name="net/ipv4/ip_forward", value="1")
    assert shared(replace(inputs(backend="host-gw"), forwarding=seen)) == {wanted}
    both = shared(replace(inputs(family="46", backend="host-gw"), forwarding=seen))
    assert both == {wanted, Sysctl(name="net/ipv6/conf/all/forwarding", value="1")}
    assert shared(inputs(backend="host-gw")) == frozenset()


def test_with_policies_bridged_packets_pass_the_packet_filter():
    wanted = Sysctl(name="net/bridge/bridge-nf-call-iptables", value="1")
    assert shared(replace(inputs(backend="host-gw"), policies="enforce")) == {wanted}
    assert wanted.reason() == "--network-policy"
    both = shared(replace(inputs(family="46", backend="host-gw"), policies="enforce"))
    assert both == {wanted, Sysctl(name="net/bridge/bridge-nf-call-ip6tables", value="1")}


def test_links_that_pods_share_are_wanted_up():
    seen = replace(inputs(backend="host-gw"), node_links=frozenset({"cni0", "cni0.7"}))
    assert shared(seen) == {NodeLink(name="cni0"), NodeLink(name="cni0.7")}


@pytest.mark.parametrize(
    "alias, ips, families",
    [
        ("weft:bridge", ["10.5.1.1", "fc00:0:0:1::1"], {4, 6}),
        ("weft:gateway", ["fc00:0:0:1::1"], {6}),
        ("weft:pod:0123", ["10.5.1.1", "192.0.2.1"], {4}),
        ("weft:bridge", ["192.0.2.1", "10.5.2.1"], set()),
        ("weft:vtep", ["10.5.1.0"], set()),
        ("", ["10.5.1.1"], set()),
    ],
)
def test_pods_are_served_in_the_families_of_their_gateways(alias: str, ips: list[str], families: set[int]):
    links = (LinkInfo(index=1, name="lo"), LinkInfo(index=7, name="cni0", alias=alias))
    addresses = tuple(AddressInfo(index=7, ip=ip_address(ip), prefixlen=24) for ip in ips)
    elsewhere = AddressInfo(index=1, ip=ip_address("10.5.1.9"), prefixlen=32)
    node = inputs(family="46", backend="host-gw")
    assert served(Snapshot(links=links, addresses=(*addresses, elsewhere)), node) == families
    assert served(Snapshot(links=links, addresses=addresses), replace(node, v4=None, v6=None)) == frozenset()


def test_a_node_publishes_whether_it_enforces_policies_beside_what_its_back_end_says():
    given = inputs(backend="host-gw")
    assert given.attrs == given.backend.advertise(given)
    assert replace(given, policies="audit").attrs == replace(given.attrs, policies="audit")
