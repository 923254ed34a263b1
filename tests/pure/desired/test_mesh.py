"""The back end of a mesh: what a lease and the way there ask for."""

import json
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, mesh, vxlan
from weft.desired.backends.mesh.sealed import Keys, Prepared
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of
from weft.desired.tunnels.vxlan import VxlanLink
from weft.desired.tunnels.wireguard import (
    Peer,
    Server,
    WireguardDevice,
    WireguardLink,
    WireguardPeer,
    WireguardRoute,
    WireguardTun,
)
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, FdbEntry, KernelState, Neighbour, Route, Sysctl
from weft.model.lease import Lease, Tunnel, Way
from weft.model.net import Endpoint
from weft.model.value import Secret, replace

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


# --- WireGuard

KEYS = Keys(private=Secret(builders.key(1)), psk=Secret(builders.key(9)))
TUNNEL = Tunnel(key=builders.key(102), endpoint=Endpoint(IPv4Address("198.51.100.7"), 51820))
WG = "flannel-wg"


def sealing(family: str = "4", *, password: bool = True, in_process: bool = False, **options) -> Inputs:
    keys = replace(KEYS, in_process=in_process)
    return replace(own(family, **options), prepared=Prepared(password=password, keys=keys))


def sealed_peer(*, family: str = "4", **of_way: object) -> Lease:
    """Node 2, which takes no vxlan, straight by WireGuard unless told otherwise."""
    way = {"kind": "direct", "tunnel": TUNNEL, "hop_key": TUNNEL.key, **of_way}
    lease = peer("198.51.100.7", "2001:db8::7", family=family, **way)
    return replace(lease, attrs=replace(lease.attrs, data={"Port": 51820}, data_v6={"Port": 51820}))


def test_with_a_password_there_is_wireguard_alone_and_what_has_no_way_is_dropped():
    state = mesh.shared(sealing("46"))
    assert state == {
        WireguardLink(name=WG, mtu=1420),
        WireguardDevice(dev=WG, private=KEYS.private, port=51820),
        *(Address(dev=WG, ip=ip, prefixlen=ip.max_prefixlen) for ip in BASES),
        Address(dev=WG, ip=IPv4Address("10.5.0.1"), prefixlen=32),
        Address(dev=WG, ip=IPv6Address("fc00::1"), prefixlen=128),
        Route(dst=builders.NETWORK_V4, blackhole=True),
        Route(dst=builders.NETWORK_V6, blackhole=True),
        Sysctl(name="net/ipv4/ip_forward", value="1"),
        Sysctl(name="net/ipv4/conf/all/send_redirects", value="0"),
        Sysctl(name=f"net/ipv4/conf/{WG}/rp_filter", value="2"),
        Sysctl(name=f"net/ipv4/conf/{WG}/send_redirects", value="0"),
    }
    assert mesh.devices(sealing("46")) == [(WG, WireguardLink, {4, 6}, True)]
    assert mesh.shared(replace(sealing(), v4=None)) == {Route(dst=builders.NETWORK_V4, blackhole=True)}


def test_without_one_wireguard_stands_beside_vxlan_and_nothing_waits_for_it():
    plain, both = mesh.shared(own()), mesh.shared(sealing(password=False, in_process=True))
    assert plain < both
    assert {thing for thing in both - plain if not isinstance(thing, Sysctl)} == {
        WireguardTun(name=WG, mtu=1420),
        Server(dev=WG),
        WireguardDevice(dev=WG, private=KEYS.private, port=51820),
        Address(dev=WG, ip=IPv4Address("10.5.0.1"), prefixlen=32),
    }
    vital = {device.name: device.vital for device in mesh.devices(sealing(password=False))}
    assert vital == {"flannel.1": True, WG: False}


@pytest.mark.parametrize(
    "trusted, family, clear",
    [
        ("192.168.0.0/24", "4", True),
        (["10.0.0.0/8", "192.168.0.0/24"], "4", True),
        ("192.168.0.0/24", "46", False),
        (["192.168.0.0/24", "fd00::/64"], "46", True),
        ("10.0.0.0/8", "4", False),
    ],
)
def test_with_a_password_a_node_takes_vxlan_inside_trusted_prefixes_alone(trusted: object, family: str, clear: bool):
    text = json.dumps({"Network": "10.5.0.0/16", "Backend": {"Type": "mesh", "Trusted": trusted}})
    options = parse_netconf(text, backends=BACKENDS, mesh=True).options
    assert isinstance(options, mesh.MeshOptions)
    inputs = sealing(family, trusted=options.trusted)
    assert mesh.takes_vxlan(inputs) == clear
    attrs = mesh.advertise(inputs)
    assert mesh.is_clear(attrs) == clear
    assert mesh.tunnels(attrs) == ("192.168.0.1:51820", "[fd00::1]:51820")[: len(family)]
    assert attrs.data == ({"VNI": 1, "VtepMAC": str(builders.mac(1))} if clear else {}) | {"Port": 51820}


def trusting(*prefixes: str) -> Inputs:
    return sealing(trusted=tuple(map(ip_network, prefixes)))


def test_a_node_that_others_reach_outside_of_trusted_prefixes_takes_no_vxlan():
    inputs = trusting("192.168.0.0/24")
    assert mesh.takes_vxlan(inputs)
    assert not mesh.takes_vxlan(replace(inputs, facts=replace(inputs.facts, public_v4=IPv4Address("198.51.100.7"))))


def test_in_clear_packets_go_to_trusted_addresses_alone_whatever_the_peer_says():
    inside, outside = (mesh.peer(trusting("192.168.0.0/24"), peer(ip)) for ip in ("192.168.0.2", "198.51.100.7"))
    assert ASKED in inside
    assert outside == frozenset()


def test_what_has_no_way_is_dropped_inside_trusted_prefixes_too():
    """Peers outside of them are there as well, and a way goes with its device."""
    assert Route(dst=builders.NETWORK_V4, blackhole=True) in mesh.shared(trusting("192.168.0.0/24"))
    assert Route(dst=builders.NETWORK_V4, blackhole=True) not in mesh.shared(sealing(password=False))


@pytest.mark.parametrize("trusted", ["192.168.0.1/24", "home", ["10.0.0.0/8", 5], 7])
def test_what_is_no_prefix_is_not_trusted(trusted: object):
    text = json.dumps({"Network": "10.5.0.0/16", "Backend": {"Type": "mesh", "Trusted": trusted}})
    with pytest.raises(ConfigError, match=r"CONF-002.*Backend\.Trusted"):
        parse_netconf(text, backends=BACKENDS, mesh=True)


def test_a_node_without_wireguard_says_so():
    assert mesh.tunnels(mesh.advertise(own())) == ()
    assert mesh.is_clear(mesh.advertise(own()))


def test_a_peer_is_in_wireguard_with_its_own_address_and_its_blocks():
    assert mesh.peer(sealing("46"), sealed_peer(family="46", mtu=1380)) == {
        WireguardPeer(dev=WG, peer=Peer(key=TUNNEL.key, endpoint=TUNNEL.endpoint, psk=KEYS.psk)),
        *(WireguardRoute(dev=WG, net=ip_network(net), peer=TUNNEL.key) for net in ("10.5.0.2/32", "fc00::2/128")),
        *(WireguardRoute(dev=WG, net=net(2), peer=TUNNEL.key) for net in (builders.subnet_v4, builders.subnet_v6)),
        Route(dst=ip_network("10.5.0.2/32"), dev=WG, source=IPv4Address("10.5.0.1")),
        Route(dst=ip_network("fc00::2/128"), dev=WG, source=IPv6Address("fc00::1")),
        Route(dst=builders.subnet_v4(2), dev=WG, source=BASES[0], mtu=1380),
        Route(dst=builders.subnet_v6(2), dev=WG, source=BASES[1], mtu=1380),
    }


def test_behind_a_nat_the_peer_is_kept_alive_and_one_that_has_no_endpoint_begins_itself():
    tunnel = replace(TUNNEL, endpoint=None, keepalive=True)
    [entry] = [each for each in mesh.peer(sealing(), sealed_peer(tunnel=tunnel)) if isinstance(each, WireguardPeer)]
    assert (entry.peer.endpoint, entry.peer.keepalive) == (None, 25)


def test_the_peers_blocks_are_at_the_next_hop_whichever_kind_packets_take():
    """The other end may use another kind than we do."""
    relayed = {"via": "node3", "hop_key": builders.key(103), "bases": (builders.subnet_v4(3).network_address,)}
    for inputs in (sealing(), sealing(password=False)):
        for kind in ("vxlan", "direct"):
            state = mesh.peer(inputs, sealed_peer(kind=kind, **relayed))
            at = {str(each.net): each.peer for each in state if isinstance(each, WireguardRoute)}
            assert at == {"10.5.0.2/32": TUNNEL.key, "10.5.2.0/24": builders.key(103)}


def test_nothing_goes_in_clear_where_one_of_two_takes_no_vxlan():
    both = replace(sealed_peer(kind="vxlan"), attrs=mesh.advertise(builders.inputs(2, backend="mesh")))
    assert not {each.dev for each in mesh.peer(sealing(), both) if isinstance(each, Route)} - {WG}
    assert not pods_routes(mesh.peer(sealing(), both))
    theirs = mesh.peer(sealing(password=False), sealed_peer())
    assert not [each for each in theirs if isinstance(each, Neighbour | FdbEntry)]
    assert {each.dev for each in theirs if isinstance(each, Route)} == {WG}


def test_where_nothing_serves_wireguard_no_packet_goes_by_it():
    assert mesh.peer(own(), sealed_peer()) == frozenset()
    assert not pods_routes(mesh.peer(sealing(), sealed_peer(hop_key="")))
    assert not [each for each in mesh.peer(sealing(), sealed_peer(tunnel=None)) if isinstance(each, WireguardPeer)]
    assert len(mesh.peer(replace(sealing(), v4=None), sealed_peer())) == 1


def test_a_peer_at_another_site_may_have_our_address():
    ours = str(builders.public_v4(1))
    assert mesh.peer(own(), peer(ours)) == frozenset()
    only = mesh.peer(sealing(password=False), peer(ours, tunnel=TUNNEL, hop_key=TUNNEL.key))
    assert {each.dev for each in only if isinstance(each, Route)} == {WG}
