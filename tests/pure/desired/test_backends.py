"""What each backend wants in the kernel, as tables, and as a packet that walks through computed nodes."""

import itertools
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from tests.support import builders
from weft.desired.backends import BACKENDS, hostgw, vxlan
from weft.desired.tunnels.vxlan import VxlanLink
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Route, Sysctl
from weft.model.net import Mac
from weft.model.value import replace


@pytest.mark.spec("flannel.md §6.2/device", "flannel.md §6.2/device-address", "flannel.md §6.2/accept-ra")
def test_vxlan_needs_one_device_with_the_subnet_base():
    assert vxlan.shared(builders.inputs(1)) == {
        VxlanLink(
            name="flannel.1",
            vni=1,
            port=8472,
            local=IPv4Address("192.168.0.1"),
            parent=2,
            mac=builders.mac(1),
            mtu=1450,
        ),
        Address(dev="flannel.1", ip=IPv4Address("10.5.1.0"), prefixlen=32),
        Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0"),
    }


@pytest.mark.spec("flannel.md §6.2/VNI", "flannel.md §6.2/Port", "flannel.md §6.2/GBP", "flannel.md §6.2/Learning")
def test_vxlan_options_reach_the_device():
    [link] = [
        thing
        for thing in vxlan.shared(builders.inputs(1, vni=7, port=4789, gbp=True, learning=True))
        if isinstance(thing, VxlanLink)
    ]
    assert (link.name, link.vni, link.port, link.gbp, link.learning) == ("flannel.7", 7, 4789, True, True)


@pytest.mark.spec("flannel.md §6.2/local-address")
def test_vxlan_sends_from_the_interface_address_behind_nat():
    own = builders.inputs(1)
    own = replace(own, facts=replace(own.facts, public_v4=IPv4Address("203.0.113.9")))
    [link] = [thing for thing in vxlan.shared(own) if isinstance(thing, VxlanLink)]
    assert link.local == IPv4Address("192.168.0.1")
    assert vxlan.advertise(own).public_ip == IPv4Address("203.0.113.9")


@pytest.mark.spec("flannel.md §6.1/mtu-vxlan")
@pytest.mark.spec("flannel.md §6.2/MTU", cases="46-1400-*")
@pytest.mark.parametrize(
    "family,option,devices,pods",
    [
        ("4", 0, {"flannel.1": 1450}, 1450),
        ("6", 0, {"flannel-v6.1": 1430}, 1430),
        ("46", 0, {"flannel.1": 1450, "flannel-v6.1": 1430}, 1430),
        ("46", 1400, {"flannel.1": 1350, "flannel-v6.1": 1330}, 1330),
    ],
)
def test_vxlan_mtu_is_what_the_underlay_leaves(family: str, option: int, devices: dict[str, int], pods: int):
    own = builders.inputs(1, family=family, uplink_mtu=1500, mtu=option)
    assert {t.name: t.mtu for t in vxlan.shared(own) if isinstance(t, VxlanLink)} == devices
    assert vxlan.mtu(own) == pods


@pytest.mark.parametrize("family,mtu,ok", [("4", 118, True), ("4", 117, False), ("6", 1350, True), ("6", 1349, False)])
def test_vxlan_refuses_an_mtu_that_leaves_too_little(family: str, mtu: int, ok: bool):
    own = builders.inputs(1, family=family)
    own = replace(own, facts=replace(own.facts, uplink=replace(own.facts.uplink, mtu=mtu)))
    if ok:
        vxlan.check(own)
        return
    with pytest.raises(ConfigError, match="MTU-001 MTU of eth0"):
        vxlan.check(own)


def test_an_mtu_option_is_named_when_it_is_too_small():
    own = replace(builders.inputs(1), netconf=builders.netconf(mtu=100))
    with pytest.raises(ConfigError, match=r"Backend\.MTU"):
        vxlan.check(own)


@pytest.mark.parametrize("mtu", [1501, 1550, 9000])
def test_an_mtu_option_above_the_uplinks_is_refused(mtu: int):
    vxlan.check(builders.inputs(1, uplink_mtu=1500, mtu=1500))
    with pytest.raises(ConfigError, match=rf"MTU-001 Backend\.MTU: {mtu}, while eth0 carries 1500 bytes"):
        vxlan.check(builders.inputs(1, uplink_mtu=1500, mtu=mtu))


@pytest.mark.spec("flannel.md §6.2/lease-data")
def test_vxlan_advertises_vni_and_macs():
    attrs = vxlan.advertise(builders.inputs(1, family="46"))
    assert attrs.data == {"VNI": 1, "VtepMAC": "02:00:00:04:00:01"}
    assert attrs.data_v6 == {"VNI": 1, "VtepMAC": "02:00:00:06:00:01"}
    assert vxlan.advertise(builders.inputs(1)).data_v6 is None


@pytest.mark.spec("flannel.md §6.2/peer-v4")
def test_vxlan_peer_is_neighbour_fdb_entry_and_route():
    base = IPv4Address("10.5.2.0")
    assert vxlan.peer(builders.inputs(1), builders.lease(2, vxlan)) == {
        Neighbour(dev="flannel.1", ip=base, mac=builders.mac(2)),
        FdbEntry(dev="flannel.1", mac=builders.mac(2), remote=IPv4Address("192.168.0.2")),
        Route(dst=IPv4Network("10.5.2.0/24"), via=base, dev="flannel.1", onlink=True),
    }


@pytest.mark.spec("flannel.md §6.2/peer-v6")
def test_vxlan_peer_of_both_families_has_both_ways():
    base = IPv6Address("fc00:0:0:2::")
    state = vxlan.peer(builders.inputs(1, family="46"), builders.lease(2, vxlan, family="46"))
    assert len(state) == 6
    assert {
        Neighbour(dev="flannel-v6.1", ip=base, mac=builders.mac(2, 6)),
        FdbEntry(dev="flannel-v6.1", mac=builders.mac(2, 6), remote=IPv6Address("fd00::2")),
        Route(dst=IPv6Network("fc00:0:0:2::/64"), via=base, dev="flannel-v6.1", onlink=True),
    } <= state


def test_a_family_that_the_peer_lacks_is_left_out():
    assert len(vxlan.peer(builders.inputs(1, family="46"), builders.lease(2, vxlan, family="4"))) == 3


@pytest.mark.spec("flannel.md §6.2/DirectRouting")
@pytest.mark.spec("flannel.md §6.1/directly-reachable", cases=("*-True", "*-False"))
@pytest.mark.spec("flannel.md §6.2/peer-direct", cases="*-True")
@pytest.mark.parametrize("public,direct", [("192.168.0.2", True), ("192.168.1.2", False)])
def test_direct_routing_is_for_peers_on_the_uplink(public: str, direct: bool):
    peer = builders.lease(2, vxlan, public_ip=IPv4Address(public))
    state = vxlan.peer(builders.inputs(1, direct_routing=True), peer)
    plain = {Route(dst=IPv4Network("10.5.2.0/24"), via=IPv4Address("192.168.0.2"), dev="eth0")}
    assert (state == plain) is direct
    assert len(state) == (1 if direct else 3)


@pytest.mark.spec("flannel.md §6.2/undecodable-data")
@pytest.mark.parametrize(
    "changes",
    [
        {"data": None},
        {"data": "text"},
        {"data": {"VNI": 1}},
        {"data": {"VtepMAC": 5}},
        {"data": {"VtepMAC": "nonsense"}},
        {"data": {"VtepMAC": "00:00:00:00:00:00"}},
        {"data": {"VtepMAC": "01:00:5e:00:00:01"}},
        pytest.param({"backend": "host-gw"}, marks=pytest.mark.spec("flannel.md §6.1/other-backend-ignored")),
    ],
)
def test_vxlan_ignores_a_peer_it_cannot_use(changes: dict[str, object]):
    with pytest.raises(PeerError, match=r"ADDR-002 lease 10\.5\.2\.0-24"):
        vxlan.peer(builders.inputs(1), builders.lease(2, vxlan, **changes))


@pytest.mark.spec("flannel.md §6.2/peer-mac-notations")
@pytest.mark.parametrize(
    "text", ["02:00:00:04:00:02", "02-00-00-04-00-02", "0200.0004.0002", "02:00:00:04:00:02".upper()]
)
def test_a_mac_may_be_written_in_three_ways(text: str):
    assert Mac.parse(text) == builders.mac(2)


@pytest.mark.parametrize(
    "text", ["", "02:00:00:04:00", "02:00:00:04:00:0g", "0:0:0:0:0:0", "02 00 00 04 00 02", " 2: 0: 0: 4: 0: 2"]
)
def test_other_texts_are_no_mac(text: str):
    with pytest.raises(ValueError, match="not a MAC address"):
        Mac.parse(text)


@pytest.mark.spec("flannel.md 11.7/mac")
def test_a_made_mac_is_local_and_unicast():
    for first in range(256):
        made = Mac.local(bytes([first, 1, 2, 3, 4, 5]))
        assert (len(made), made[0] & 1, made[0] & 2) == (6, 0, 2)
        assert made.is_unicast
    with pytest.raises(ValueError, match="six bytes"):
        Mac.local(b"12345")
    assert repr(Mac.local(bytes(6))) == "Mac(02:00:00:00:00:00)"


@pytest.mark.spec("flannel.md §6.3/peer-added", "flannel.md §6.3/no-options", "flannel.md §6.1/route-defaults")
def test_hostgw_peer_is_a_route_per_family():
    own = builders.inputs(1, family="46", backend="host-gw")
    assert hostgw.shared(own) == frozenset()
    assert hostgw.peer(own, builders.lease(2, hostgw, family="46")) == {
        Route(dst=IPv4Network("10.5.2.0/24"), via=IPv4Address("192.168.0.2"), dev="eth0"),
        Route(dst=IPv6Network("fc00:0:0:2::/64"), via=IPv6Address("fd00::2"), dev="eth0"),
    }
    assert hostgw.advertise(own).backend == "host-gw"
    assert hostgw.advertise(own).data is None


@pytest.mark.spec("flannel.md 11.8/host-gw-changed-via")
def test_a_changed_next_hop_is_the_same_route():
    own = builders.inputs(1, family="46", backend="host-gw")
    before = hostgw.peer(own, builders.lease(2, hostgw, family="46"))
    moved = builders.lease(2, hostgw, family="46", public_ip=builders.public_v4(9), public_ipv6=builders.public_v6(9))
    after = hostgw.peer(own, moved)
    assert {thing.key for thing in before} == {thing.key for thing in after}
    assert before.isdisjoint(after)


def test_hostgw_leaves_out_a_family_that_the_peer_lacks():
    own = builders.inputs(1, family="46", backend="host-gw")
    assert len(hostgw.peer(own, builders.lease(2, hostgw, family="4"))) == 1
    assert hostgw.peer(own, builders.lease(2, hostgw, public_ip=None)) == frozenset()
    assert hostgw.devices(own) == ()


def test_a_backend_takes_its_own_options_only():
    with pytest.raises(TypeError, match="vxlan got Value"):
        vxlan.mtu(builders.inputs(1, backend="host-gw"))


def test_hostgw_ignores_peers_it_cannot_reach_and_other_backends():
    own = builders.inputs(1, backend="host-gw")
    with pytest.raises(PeerError, match="not on a segment of eth0"):
        hostgw.peer(own, builders.lease(2, hostgw, public_ip=IPv4Address("192.168.7.2")))
    with pytest.raises(PeerError, match="vxlan"):
        hostgw.peer(own, builders.lease(2, vxlan))


@pytest.mark.spec("flannel.md §6.3/nat-refused")
@pytest.mark.parametrize(
    "field,other", [("public_v4", IPv4Address("203.0.113.9")), ("public_v6", IPv6Address("fd01::9"))]
)
def test_hostgw_refuses_nat(field: str, other: object):
    own = builders.inputs(1, family="46", backend="host-gw")
    hostgw.check(own)
    with pytest.raises(ConfigError, match="IFACE-001 --public-ip"):
        hostgw.check(replace(own, facts=replace(own.facts, **{field: other})))


@pytest.mark.spec("flannel.md §6.1/mtu-host-gw")
def test_hostgw_leaves_the_mtu_alone():
    assert hostgw.mtu(builders.inputs(1, backend="host-gw", uplink_mtu=9000)) == 9000


@pytest.mark.spec("flannel.md §6.1/inputs")
@pytest.mark.parametrize("name,family,options", [
    ("vxlan", "4", {}),
    ("vxlan", "6", {}),
    ("vxlan", "46", {"vni": 9}),
    ("vxlan", "46", {"direct_routing": True}),
    ("host-gw", "46", {}),
    ("ipip", "4", {}),
    ("ipip", "4", {"direct_routing": True}),
    ("mesh", "46", {}),
    ("mesh", "4", {"direct_routing": True}),
])  # fmt: skip
def test_a_packet_finds_the_node_that_holds_the_pod(name: str, family: str, options: dict[str, object]):
    backend, nodes = BACKENDS[name], range(1, 6)
    leases = {node: builders.lease(node, backend, family=family) for node in nodes}
    for a, b in itertools.permutations(nodes, 2):
        own = builders.inputs(a, family=family, backend=name, **options)
        objects = builders.wanted(own, [lease for node, lease in leases.items() if node != a]).values()
        for subnet, public in zip(leases[b].subnets, _publics(b, family), strict=True):
            assert _underlay_hop(objects, subnet.network_address + 7) == public


def _publics(node: int, family: str) -> list[object]:
    return [builders.public_v4(node)] * ("4" in family) + [builders.public_v6(node)] * ("6" in family)


def _underlay_hop(objects, pod):
    """Walk route → neighbour → FDB; the underlay address that the packet is sent to."""
    [route] = [thing for thing in objects if isinstance(thing, Route) and pod in thing.dst]
    if route.dev in ("eth0", "flannel.ipip"):
        return route.via
    [neighbour] = [t for t in objects if isinstance(t, Neighbour) and (t.dev, t.ip) == (route.dev, route.via)]
    [entry] = [t for t in objects if isinstance(t, FdbEntry) and (t.dev, t.mac) == (route.dev, neighbour.mac)]
    return entry.remote
