"""The back end of a mesh: what a lease and the way there ask for."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

import pytest

from tests.support import builders
from weft.desired.backends import mesh, vxlan
from weft.desired.node import devices_of
from weft.desired.tunnels.vxlan import VxlanLink
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, FdbEntry, KernelState, Neighbour, Route, Sysctl
from weft.model.lease import Lease, Way
from weft.model.value import replace

BASES = (builders.subnet_v4(1).network_address, builders.subnet_v6(1).network_address)


# Block 2 of 256, asked from block 1.
ASKED = Route(
    dst=IPv4Network("10.5.1.2/32"),
    via=IPv4Address("10.5.2.0"),
    dev="flannel.1",
    onlink=True,
    source=IPv4Address("10.5.1.1"),
)


def own(family: str = "4", **options):
    return builders.inputs(1, family=family, backend="mesh", **options)


def peer(*remotes: str, family: str = "4", **of_way: object) -> Lease:
    """Node 2, which calls public what is public where it lives."""
    way = Way(kind="vxlan", remotes=tuple(map(ip_address, remotes)))
    return replace(builders.lease(2, mesh, family=family), way=replace(way, **of_way))


def pods_routes(state: KernelState) -> set[Route]:
    return {thing for thing in state if isinstance(thing, Route) and thing.dst.prefixlen in (24, 64)}


def test_each_node_has_an_address_at_which_its_path_is_asked():
    """In blocks that no node has: *network + N + n* of block n of N."""
    asked = {thing for thing in mesh.shared(own("46")) if isinstance(thing, Address) and thing.ip not in BASES}
    assert asked == {
        Address(dev="flannel.1", ip=IPv4Address("10.5.1.1"), prefixlen=32),
        Address(dev="flannel-v6.1", ip=IPv6Address("fc00::101"), prefixlen=128),
    }
    assert ASKED in mesh.peer(own(), peer("198.51.100.7"))
    assert ASKED in mesh.peer(own(), peer("198.51.100.7", via="node3"))
    assert ASKED not in mesh.peer(own(), peer(via="node3"))


def test_the_devices_are_those_of_vxlan_with_room_for_the_largest_way():
    links = {thing.name: thing for thing in mesh.shared(own("46", vni=7)) if isinstance(thing, VxlanLink)}
    assert {name: (link.mtu, link.port) for name, link in links.items()} == {
        "flannel.7": (1420, 8472),
        "flannel-v6.7": (1420, 8472),
    }
    settings = {thing.name: thing.value for thing in mesh.shared(own(vni=7)) if isinstance(thing, Sysctl)}
    assert settings == {
        "net/ipv4/ip_forward": "1",
        "net/ipv4/conf/all/send_redirects": "0",
        "net/ipv4/conf/flannel.7/rp_filter": "2",
        "net/ipv4/conf/flannel.7/send_redirects": "0",
        "net/ipv6/conf/flannel.7/accept_ra": "0",
    }
    assert mesh.shared(replace(own(), v4=None)) == frozenset()
    assert devices_of(own("46", vni=7)) == dict.fromkeys(links, VxlanLink)
    assert mesh.mtu(own("46")) == 1420
    assert mesh.mtu(own(mtu=1400)) == 1320


def test_a_node_publishes_what_vxlan_does_under_a_name_of_its_own():
    attrs = mesh.advertise(own("46"))
    assert attrs == replace(vxlan.advertise(builders.inputs(1, family="46")), backend="mesh")
    assert mesh.claims(attrs) == vxlan.claims(attrs)


def test_packets_go_where_the_way_says_and_come_from_the_base_of_our_block():
    assert mesh.peer(own(), peer("198.51.100.7")) == {
        Neighbour(dev="flannel.1", ip=IPv4Address("10.5.2.0"), mac=builders.mac(2)),
        FdbEntry(dev="flannel.1", mac=builders.mac(2), remote=IPv4Address("198.51.100.7")),
        Route(
            dst=builders.subnet_v4(2),
            via=IPv4Address("10.5.2.0"),
            dev="flannel.1",
            onlink=True,
            source=BASES[0],
        ),
        ASKED,
    }


def test_each_family_goes_to_its_own_address_and_one_without_is_left_out():
    state = mesh.peer(own("46"), peer("198.51.100.7", "2001:db8::7", family="46"))
    assert {thing.remote for thing in state if isinstance(thing, FdbEntry)} == {
        IPv4Address("198.51.100.7"),
        IPv6Address("2001:db8::7"),
    }
    assert {thing.source for thing in pods_routes(state)} == set(BASES)
    assert len(mesh.peer(own("46"), peer("2001:db8::7", family="46"))) == 4
    assert mesh.peer(own(), peer("2001:db8::7", family="46")) == frozenset()


def test_without_a_way_the_public_address_counts():
    [entry] = [thing for thing in mesh.peer(own(), builders.lease(2, mesh)) if isinstance(thing, FdbEntry)]
    assert entry.remote == builders.public_v4(2)


def test_a_peer_on_the_uplinks_segment_may_get_a_plain_route():
    [route] = pods_routes(mesh.peer(own(direct_routing=True), peer("192.168.0.2")))
    assert route == Route(dst=builders.subnet_v4(2), via=IPv4Address("192.168.0.2"), dev="eth0", source=BASES[0])
    asked = replace(ASKED, via=IPv4Address("192.168.0.2"), dev="eth0", onlink=False)
    assert asked in mesh.peer(own(direct_routing=True), peer("192.168.0.2")), "the path that pods' packets take"
    assert mesh.peer(own(direct_routing=True), peer("198.51.100.7")) == mesh.peer(own(), peer("198.51.100.7"))


def test_via_another_node_the_route_is_that_nodes_and_the_rest_stays():
    """So the peer itself can be tried; with DirectRouting, too."""
    bases = tuple(net.network_address for net in (builders.subnet_v4(3), builders.subnet_v6(3)))
    straight = peer("192.168.0.2", "fd00::2", family="46")
    relayed = replace(straight, way=replace(straight.way, via="node3", bases=bases))
    for options in ({}, {"direct_routing": True}):
        before, after = (mesh.peer(own("46", **options), lease) for lease in (straight, relayed))
        assert {(thing.dst, thing.via) for thing in pods_routes(after - before)} == {
            (builders.subnet_v4(2), bases[0]),
            (builders.subnet_v6(2), bases[1]),
        }
        assert before - pods_routes(before) <= after
    only = replace(relayed, way=replace(relayed.way, bases=bases[:1], remotes=()))
    [route] = mesh.peer(own("46"), only)
    assert (route.dst, route.via, route.onlink) == (builders.subnet_v4(2), bases[0], True)


def test_a_lease_of_another_back_end_is_refused():
    with pytest.raises(PeerError, match="mesh, as on this node"):
        mesh.peer(own(), builders.lease(2, vxlan))


@pytest.mark.parametrize(
    "family, mtu, fits", [("4", 148, True), ("4", 147, False), ("6", 1360, True), ("6", 1359, False)]
)
def test_an_uplink_that_leaves_too_little(family: str, mtu: int, fits: bool):
    inputs = own(family, uplink_mtu=mtu)
    if fits:
        mesh.check(inputs)
    else:
        with pytest.raises(ConfigError, match="MTU-001 MTU of eth0"):
            mesh.check(inputs)
