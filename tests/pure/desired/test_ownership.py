"""Two daemons on one node keep apart what bears the same mark."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.node import ownership as ownership_of
from weft.model.kernel.links import NodeLink
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Object, Route, Sysctl
from weft.model.value import replace

MAC = builders.mac(2)
OWN = builders.wanted(builders.inputs(1, family="46"), [builders.lease(2, vxlan, family="46")])
OTHER = builders.wanted(builders.inputs(1, vni=2), [builders.lease(2, vxlan)])


@pytest.mark.parametrize("thing", sorted(OWN.values(), key=str), ids=str)
def test_everything_that_a_daemon_wants_is_its_own(thing: Object):
    assert thing.is_within(ownership_of(builders.inputs(1, family="46")))


@pytest.mark.parametrize(
    "thing", [thing for thing in sorted(OTHER.values(), key=str) if not isinstance(thing, (Route, Sysctl))], ids=str
)
def test_another_daemons_device_and_what_sits_on_it_are_not(thing: Object):
    assert not thing.is_within(ownership_of(builders.inputs(1)))


@pytest.mark.spec("flannel.md §6.1/v4-address-helper", cases=("ip0-True", "ip1-False"))
@pytest.mark.spec("flannel.md §6.1/v6-address-helper", cases=("ip2-True", "ip3-False"))
@pytest.mark.parametrize(
    "ip,held",
    [
        (IPv4Address("10.5.9.9"), True),
        (IPv4Address("192.0.2.1"), False),
        (IPv6Address("2001:db8::1"), True),
        (IPv6Address("fe80::1"), False),
    ],
)
def test_foreign_addresses_on_our_device(ip: object, held: bool):
    ownership = ownership_of(builders.inputs(1, family="46"))
    assert Address(dev="flannel.1", ip=ip, prefixlen=32).is_within(ownership) is held
    assert not Address(dev="eth0", ip=ip, prefixlen=32).is_within(ownership)


def test_routes_belong_by_device_or_by_network():
    ownership = ownership_of(builders.inputs(1, backend="host-gw", family="46"))
    via = IPv4Address("192.168.0.2")
    assert Route(dst=IPv4Network("10.5.7.0/24"), via=via, dev="eth0").is_within(ownership)
    assert Route(dst=IPv6Network("fc00:0:0:7::/64"), dev="eth0").is_within(ownership)
    assert not Route(dst=IPv4Network("10.6.7.0/24"), via=via, dev="eth0").is_within(ownership)
    assert not Route(dst=IPv6Network("fd99::/64"), dev="eth0").is_within(ownership)
    assert Route(dst=IPv4Network("10.6.7.0/24"), dev="flannel.1").is_within(ownership_of(builders.inputs(1)))


@pytest.mark.parametrize("dev", ["flannel.1", "eth0"])
def test_a_route_in_another_table_is_an_administrators(dev: str):
    ownership = ownership_of(builders.inputs(1))
    route = Route(dst=IPv4Network("10.5.7.0/24"), dev=dev)
    assert route.is_within(ownership)
    assert not replace(route, table=100).is_within(ownership)


def test_routes_of_the_configuration_before_are_still_ours_to_remove():
    inputs = replace(builders.inputs(1, backend="host-gw"), former_networks=(IPv4Network("10.6.0.0/16"),))
    assert Route(dst=IPv4Network("10.6.7.0/24"), dev="eth0").is_within(ownership_of(inputs))


def test_neighbours_and_forwarding_entries_go_by_their_device():
    ownership = ownership_of(builders.inputs(1))
    for dev, held in (("flannel.1", True), ("cni0", False)):
        assert Neighbour(dev=dev, ip=IPv4Address("10.5.2.0"), mac=MAC).is_within(ownership) is held
        assert FdbEntry(dev=dev, mac=MAC, remote=IPv4Address("192.168.0.2")).is_within(ownership) is held


def test_a_link_that_pods_share_is_held_by_those_that_know_of_it():
    ownership = ownership_of(replace(builders.inputs(1), node_links=frozenset({"cni0"})))
    assert NodeLink(name="cni0", up=False).is_within(ownership)
    assert not NodeLink(name="cni1").is_within(ownership)
