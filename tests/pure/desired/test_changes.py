"""What a change is in words."""

from ipaddress import ip_address, ip_network

import pytest

from tests.support import builders
from weft.desired import changes
from weft.desired.backends import vxlan
from weft.desired.inputs import Facts, Uplink
from weft.model.lease import Tunnel, Way
from weft.model.net import Endpoint
from weft.model.value import replace

LEASE = builders.lease(2, vxlan)
ATTRS = replace(LEASE.attrs, backend="vxlan", data={"VNI": 1, "VtepMAC": "a"}, public_ip=ip_address("172.31.0.2"))
BEFORE = replace(LEASE, attrs=replace(ATTRS, public_ipv6=None, data_v6=None))
UPLINK = Uplink(name="eth0", index=2, mtu=1500, v4=ip_address("172.31.0.1"))
FACTS = Facts(uplink=UPLINK, public_v4=UPLINK.v4, public_v6=None)


@pytest.mark.parametrize(
    "changed, was, now",
    [
        ({}, "", ""),
        ({"public_ip": ip_address("172.31.0.3")}, "public IP 172.31.0.2", "public IP 172.31.0.3"),
        ({"public_ipv6": ip_address("fd31::3")}, "public IPv6 none", "public IPv6 fd31::3"),
        (
            {"data": {"VNI": 1, "VtepMAC": "b", "New": [1]}},
            'VtepMAC "a", New none',
            'VtepMAC "b", New [1]',
        ),
        (
            {"backend": "", "data": None, "data_v6": "x"},
            'back end vxlan, VNI 1, VtepMAC "a", IPv6 data none',
            'back end none, VNI none, VtepMAC none, IPv6 data "x"',
        ),
    ],
)
def test_a_lease_that_says_something_else(changed, was, now):
    after = replace(BEFORE, attrs=replace(BEFORE.attrs, **changed))
    assert changes.of_lease(BEFORE, after) == (was, now)


def test_a_lease_made_anew_says_the_same():
    assert changes.of_lease(BEFORE, replace(BEFORE, created=99)) == ("", "")


def test_where_a_peer_s_wireguard_is_looked_for_is_told_to_nobody():
    found = [
        replace(BEFORE, way=replace(WAY, tunnel=Tunnel(key="k", endpoint=Endpoint(ip_address("192.0.2.1"), port))))
        for port in (1, 2)
    ]
    assert changes.is_alike(*found)
    assert changes.is_alike(BEFORE, BEFORE)
    assert not changes.is_alike(found[0], replace(found[1], way=RELAYED))
    assert not changes.is_alike(BEFORE, found[0])


WAY = Way(kind="vxlan", remotes=(ip_address("172.31.0.2"),))
RELAYED = Way(kind="direct", via="node2", reason="port-filtered")


@pytest.mark.parametrize(
    "before, after, was, now",
    [
        (WAY, WAY, "", ""),
        (
            WAY,
            RELAYED,
            "way vxlan, its address 172.31.0.2",
            "way via node2 (direct): port-filtered, its address none",
        ),
        (
            RELAYED,
            replace(RELAYED, via="node4", kind="vxlan"),
            "way via node2 (direct): port-filtered",
            "way via node4 (vxlan): port-filtered",
        ),
    ],
)
def test_another_way_to_a_peer(before: Way, after: Way, was: str, now: str):
    lease = replace(BEFORE, way=before)
    assert changes.of_lease(lease, replace(lease, way=after)) == (was, now)


def test_how_a_peer_is_reached_by_a_way():
    lease = replace(BEFORE, v6=None, way=RELAYED)
    assert changes.reached(lease).endswith("back end vxlan, way via node2 (direct): port-filtered")


def test_how_a_peer_is_reached():
    lease = replace(BEFORE, v6=None)
    assert changes.reached(lease) == f"subnets {lease.v4}, public IP 172.31.0.2, back end vxlan"


@pytest.mark.parametrize(
    "changed, was, now",
    [
        ({}, "", ""),
        ({"mtu": 1400}, "eth0, MTU 1500", "eth0, MTU 1400"),
        ({"v4": None, "index": 3}, "eth0, IPv4 172.31.0.1, index 2", "eth0, IPv4 none, index 3"),
        ({"name": "eth1"}, "link eth0", "link eth1"),
    ],
)
def test_an_uplink_that_is_another(changed, was, now):
    after = replace(FACTS, uplink=replace(FACTS.uplink, **changed))
    assert changes.of_uplink(FACTS, after) == (was, now)


def test_an_uplink_whose_networks_are_others():
    after = replace(FACTS, onlink=(ip_network("172.31.0.0/24"),))
    assert changes.of_uplink(FACTS, after) == ("eth0, networks none", "eth0, networks 172.31.0.0/24")
