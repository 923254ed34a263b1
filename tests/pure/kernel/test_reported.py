"""What the kernel leaves out of a message is what a value has where nothing is given for it."""

import socket
from ipaddress import IPv4Network, ip_address
from struct import pack

from weft.kernel.rtnetlink import addr, link, neigh, route
from weft.kernel.rtnetlink.attributes import attribute, nest, u32
from weft.model.kernel.reported import (
    AddressInfo,
    FdbInfo,
    LinkInfo,
    NeighbourInfo,
    NextHop,
    PortInfo,
    RouteInfo,
    RuleInfo,
)
from weft.model.net import Mac

IP = ip_address("10.1.2.3")
MAC = Mac.parse("02:00:00:00:00:01")


def of_link(*attributes: bytes) -> LinkInfo:
    return link.parse_link(pack("=BxHiII", 0, 1, 7, 0, 0) + attribute(link.IFLA_IFNAME, b"x\0") + b"".join(attributes))


def test_a_bridges_port():
    port = nest(link.IFLA_LINKINFO, attribute(link.IFLA_INFO_SLAVE_KIND, b"bridge\0"))
    assert of_link(port) == LinkInfo(index=7, name="x", port=PortInfo(state=0))


def test_an_address():
    body = pack("=BBBBI", socket.AF_INET, 24, addr.IFA_F_PERMANENT, 0, 7) + attribute(addr.IFA_LOCAL, IP.packed)
    assert addr.parse_address(body) == AddressInfo(index=7, ip=IP, prefixlen=24)


def test_a_route_and_a_next_hop():
    head = route.RTMSG.pack(socket.AF_INET, 8, 0, 0, 254, 0, 0, 1, 0)
    dst = attribute(route.RTA_DST, bytes([10, 0, 0, 0]))
    assert route.parse_route(head + dst) == RouteInfo(dst=IPv4Network("10.0.0.0/8"))
    hops = b"".join(pack("=HBBi", 8, 0, 0, index) for index in (2, 3))
    assert route.parse_route(head + dst + attribute(route.RTA_MULTIPATH, hops)).hops == (
        NextHop(index=2),
        NextHop(index=3),
    )


def test_a_neighbour():
    body = neigh.NDMSG.pack(socket.AF_INET, 7, 0x80, 0, 0) + attribute(neigh.NDA_DST, IP.packed)
    assert neigh.parse_neighbour(body) == NeighbourInfo(index=7, ip=IP, mac=None, state=0x80)


def test_a_forwarding_entry():
    body = neigh.NDMSG.pack(socket.AF_BRIDGE, 7, 0x80, 0, 0) + attribute(neigh.NDA_LLADDR, bytes(MAC))
    assert neigh.parse_fdb(body) == FdbInfo(index=7, mac=MAC, remote=None, state=0x80)


def test_a_policy_rule():
    body = pack("=BBBBBxxBI", socket.AF_INET, 0, 0, 0, 0, 1, 0) + u32(route.FRA_PRIORITY, 100)
    assert route.parse_rule(body) == RuleInfo(family=4, priority=100)
