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
from tests.pure.diag.trace.walking import IN, NODE, PEER, POD, code, packet, steps, way
from weft.diag.rules.matching import Packet
from weft.diag.sight.node import PodEnd
from weft.diag.trace.bothways import alone, both_ways, entry_of
from weft.diag.trace.predict import Entry
from weft.model.kernel.reported import AddressInfo, LinkInfo, NeighbourInfo, RouteInfo
from weft.model.value import replace

OUTSIDE = Entry(kind="remote")


ON = {"net/bridge/bridge-nf-call-iptables": "1", "net/ipv4/ip_forward": "1"}


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
        ("ROUTE-003", POD, packet(), {"ways": {}, "addresses": ADDRESSES[1:]}),
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


def test_a_pod_asks_itself():
    found = way(of=packet("10.244.1.2", "10.244.1.2"))
    assert (found.end, steps(found)) == ("delivered", ["loopback"])


def test_a_link_between_nodes_without_a_carrier():
    assert code(way(**links("eth0", operstate=2))) == "IFACE-002"
    assert code(way(PEER, of=IN, **links("eth0", operstate=3))) == "IFACE-002"
    assert way(**links("cni0", operstate=2)).end == "sent"


def test_a_neighbour_that_somebody_has_set_is_suspected_behind_the_link():
    fixed = NeighbourInfo(index=ETH0, ip=ip_address("192.168.0.254"), mac="02:00:00:00:00:99", state=0x80)
    [hop] = [each for each in way(neighbours=(*WELL.neighbours, fixed)).hops if each.what == "fixed MAC"]
    assert hop.suspect is not None
    assert hop.suspect.code == "NEIGH-002"
    assert hop.seen == "192.168.0.254 has a permanent neighbour entry on eth0, 02:00:00:00:00:99"


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


def test_a_pods_link_that_is_off_its_bridge():
    off = tuple(replace(link, master=0) if link.name == "veth1" else link for link in WELL.links)
    for entry, of in ((POD, packet()), (PEER, IN)):
        found = way(entry, of=of, links=off)
        assert code(found) == "CHECK-001"
        assert "veth1, is no port of bridge cni0" in str(found.problem)
    other = PodEnd(link=WELL.pods["veth1"].link, addresses=(ip_address("10.244.1.9"),))
    assert way(links=off, pods={"veth1": other}).end == "sent"


def test_a_route_that_went_with_its_device():
    down = tuple(replace(link, up=False) if link.name == "flannel.1" else link for link in WELL.links)
    left = tuple(route for route in WELL.routes if route.index != 3)
    found = way(links=down, routes=left[1:])
    assert code(found) == "VTEP-003"
    assert code(way(routes=left[1:])) == "ROUTE-001"
    outside = way(of=packet(target="198.51.100.7"), links=down, routes=left[1:])
    assert code(outside) == "ROUTE-001"


def test_an_outer_packet_whose_uplink_has_no_ipv6():
    six = (replace(WELL.fdb[0], remote=ip_address("fd77::2")),)
    off = {**WELL.settings, "net/ipv6/conf/eth0/disable_ipv6": "1"}
    found = way(fdb=six, settings=off)
    assert code(found) == "V6-001"
    assert "sysctl -w net.ipv6.conf.eth0.disable_ipv6=0" in str(found.problem)
    assert code(way(fdb=six)) == "ROUTE-003"
    of_a_pod = {**WELL.settings, "net/ipv6/conf/veth1/disable_ipv6": "1"}
    assert code(way(fdb=six, settings=of_a_pod)) == "ROUTE-003"


@pytest.mark.parametrize(
    "entry, target, off",
    [(POD, "fd00:2::3", "cni0"), (NODE, "fd00:1::2", "cni0"), (NODE, "fd00:2::3", "flannel.1")],
)
def test_what_has_no_way_because_ipv6_of_a_link_is_off(entry: Entry, target: str, off: str):
    assert FLANNELD.subnet_env is not None
    both = replace(FLANNELD.subnet_env, networks=(ip_network("fd00::/12"),), subnets=(ip_network("fd00:1::/64"),))
    sight = replace(FLANNELD, subnet_env=both)
    of = replace(packet(), source=ip_address("fd00:1::2"), target=ip_address(target))
    found = way(entry, sight, of=of, settings={**WELL.settings, f"net/ipv6/conf/{off}/disable_ipv6": "1"})
    assert code(found) == "V6-001"
    assert f"/{off}/disable_ipv6: IPv6 is off" in str(found.problem)
    assert code(way(entry, sight, of=of)) != "V6-001"


@pytest.mark.parametrize(
    "source, kind", [("192.168.0.1", "node"), ("10.244.1.2", "pod"), ("10.244.2.3", "remote"), ("192.0.2.7", "remote")]
)
def test_where_a_packet_enters(source: str, kind: str):
    assert entry_of(WELL, packet(source)).kind == kind


def test_both_ways_are_followed_alone():
    ways = both_ways(WELL, packet())
    assert alone(ways) == {"there": ways["there"][1], "back": ways["back"][1]}
