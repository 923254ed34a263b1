"""Addresses, routes, neighbours, forwarding entries and rules, against other tools, both ways."""

import errno
import socket
import time
from ipaddress import ip_address, ip_network

import pytest

from tests.support.netns import SECONDS, Netns
from tests.support.weftd import eventually
from weft.kernel.rtnetlink import neigh, route
from weft.kernel.rtnetlink.neigh import learn_fdb
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import IPV6_ADDRESSES
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.reported import NextHop, RuleInfo
from weft.model.net import Mac
from weft.model.value import replace

MAC = Mac.parse("02:00:00:00:01:07")


def test_addresses(netns: Netns, eth0: int, pyroute2) -> None:
    netns.rtnl.add_address(eth0, ip_address("10.9.0.1"), 24, broadcast=ip_address("10.9.0.255"))
    netns.rtnl.add_address(eth0, ip_address("fd09::1"), 64)
    [link] = netns.json("ip -j addr show eth0")
    seen = {(each["local"], each["prefixlen"]): each for each in link["addr_info"]}
    assert seen["10.9.0.1", 24]["broadcast"] == "10.9.0.255"
    assert seen["fd09::1", 64]["scope"] == "global"
    assert "broadcast" not in seen["10.0.0.1", 24]
    assert {each.get_attr("IFA_ADDRESS") for each in pyroute2(lambda oracle: oracle.get_addr(index=eth0))} >= {
        "10.9.0.1",
        "fd09::1",
    }
    ours = {(str(each.ip), each.prefixlen): each for each in netns.rtnl.addresses(eth0)}
    assert seen.keys() == ours.keys()
    for family in (4, 6):
        of_one = {(str(each.ip), each.prefixlen) for each in netns.rtnl.addresses(eth0, family=family)}
        assert of_one == {key for key in ours if (":" in key[0]) == (family == 6)} != set()
    assert all(each.permanent and not each.tentative for each in ours.values() if each.scope == 0)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.add_address(eth0, ip_address("10.9.0.1"), 24)
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.add_address(eth0, ip_address("10.9.0.1"), 24, replace=True)
    netns.rtnl.delete_address(eth0, ip_address("10.9.0.1"), 24)
    netns.rtnl.delete_address(eth0, ip_address("fd09::1"), 64)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.delete_address(eth0, ip_address("fd09::1"), 64)
    assert refused.value.errno == errno.EADDRNOTAVAIL


def test_waiting_for_an_address_to_change(netns: Netns) -> None:
    lo = 1
    with netns.rtnl.notices(IPV6_ADDRESSES) as wait:
        started = time.monotonic()
        wait(0.05)
        assert time.monotonic() - started >= 0.05  # nobody changed anything
        netns.run("ip addr add fd09::1/64 dev lo nodad")
        wait(SECONDS)
        assert ip_address("fd09::1") in {each.ip for each in netns.rtnl.addresses(lo)}
        netns.run("ip addr add fd09::2/64 dev lo nodad")
        assert netns.rtnl.link(lo) is not None  # a notice that waits is not taken for an answer
    netns.run("ip addr add fd09::3/64 dev lo nodad")
    assert netns.rtnl.addresses(lo)


def test_addresses_that_others_make(netns: Netns, eth0: int) -> None:
    netns.run(
        "ip addr add 10.7.0.1 peer 10.7.0.2/32 dev eth0\n"
        "ip addr add 10.7.1.1/24 brd + dev eth0 label eth0:x scope link valid_lft 1000 preferred_lft 500\n"
        "ip addr add 10.0.0.2/24 dev eth0\n"
        "ip addr add fd07::1/64 dev eth0 preferred_lft 0\n"
        "ip addr add fd07::2 peer fd07::3/128 dev eth0"
    )
    found = {str(each.ip): each for each in netns.rtnl.addresses() if each.index == eth0}
    assert (found["10.7.0.1"].peer, found["10.7.0.1"].prefixlen) == (ip_address("10.7.0.2"), 32)
    labelled = found["10.7.1.1"]
    assert (labelled.label, labelled.scope, labelled.permanent) == ("eth0:x", 253, False)
    assert labelled.broadcast == ip_address("10.7.1.255")
    assert found["10.0.0.2"].secondary
    assert found["fd07::1"].deprecated
    assert found["fd07::2"].peer == ip_address("fd07::3")


@pytest.mark.parametrize(
    "prefix, gateway",
    [("10.1.0.0/24", "10.0.0.9"), ("fd01::/64", "fd00::9")],
)
def test_routes(netns: Netns, eth0: int, pyroute2, prefix: str, gateway: str) -> None:
    dst, via = ip_network(prefix), ip_address(gateway)
    default = 0 if dst.version == 4 else 1024
    family = f"-{dst.version}"
    netns.rtnl.request(route.add_route(dst, via=via, index=eth0))
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert (seen["gateway"], seen["dev"], seen["protocol"]) == (gateway, "eth0", str(PROTOCOL))
    [ours] = netns.rtnl.routes(family=dst.version, protocol=PROTOCOL)
    assert (ours.dst, ours.via, ours.index, ours.priority) == (dst, via, eth0, default)
    number = socket.AF_INET if dst.version == 4 else socket.AF_INET6
    theirs = [each for each in pyroute2(lambda oracle: oracle.get_routes(family=number)) if each["proto"] == PROTOCOL]
    assert [(each.get_attr("RTA_DST"), each.get_attr("RTA_GATEWAY")) for each in theirs] == [
        (prefix.partition("/")[0], gateway)
    ]
    netns.rtnl.request(route.add_route(dst, via=via + 1, index=eth0, mtu=1300, advmss=1200))
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert seen["gateway"] == str(via + 1)
    assert seen["metrics"] == [{"mtu": 1300, "advmss": 1200}]
    [ours] = netns.rtnl.routes(family=dst.version, protocol=PROTOCOL)
    assert (ours.mtu, ours.advmss) == (1300, 1200)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(route.add_route(dst, via=via, index=eth0, mode="create"))
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.request(route.add_route(dst, via=via, index=eth0, priority=77, table=1000))
    assert [route.priority for route in netns.rtnl.routes(1000)] == [77]
    assert len(netns.json(f"ip {family} -j route show table 1000")) == 1
    assert netns.rtnl.routes(4711) == []
    netns.rtnl.request(route.delete_route(dst))
    netns.rtnl.request(route.delete_route(dst, table=1000))
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(route.delete_route(dst))
    assert refused.value.errno == errno.ESRCH
    assert netns.rtnl.routes(0, protocol=PROTOCOL) == []


@pytest.mark.parametrize(
    "prefix, gateway", [("10.1.0.0/24", "10.1.0.0"), ("fd01::/64", "fd01::"), ("10.2.0.0/24", "fd01::")]
)
def test_onlink_routes(netns: Netns, vtep: int, prefix: str, gateway: str) -> None:
    netns.rtnl.request(route.add_route(ip_network(prefix), via=ip_address(gateway), index=vtep, onlink=True))
    family = f"-{ip_network(prefix).version}"
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert "onlink" in seen["flags"]
    assert gateway == seen.get("gateway", seen.get("via", {}).get("host"))
    [ours] = netns.rtnl.routes(index=vtep, protocol=PROTOCOL)
    assert (ours.via, ours.onlink) == (ip_address(gateway), True)


@pytest.mark.parametrize("prefix", ["10.1.0.0/24", "fd01::/64"])
def test_blackhole_routes(netns: Netns, prefix: str) -> None:
    netns.rtnl.request(route.add_route(ip_network(prefix), kind=route.RTN_BLACKHOLE, priority=9))
    [seen] = netns.json(f"ip -{ip_network(prefix).version} -j route show {prefix}")
    assert (seen["type"], seen["metric"]) == ("blackhole", 9)
    assert [route.kind for route in netns.rtnl.routes(protocol=PROTOCOL)] == [6]


def test_routes_that_others_make(netns: Netns, eth0: int) -> None:
    netns.run(
        "ip route add default via 10.0.0.254 src 10.0.0.1 metric 100\n"
        "ip route add 10.9.0.0/24 nexthop via 10.0.0.2 nexthop via 10.0.0.3 weight 3 onlink dev eth0\n"
        "ip -6 route add fd09::/64 nexthop via fd00::2 nexthop via fd00::3\n"
        "ip route add 10.8.0.0/24 via inet6 fd00::8 dev eth0\n"
        "ip -6 route add default via fd00::254"
    )
    found = {str(route.dst): route for route in netns.rtnl.routes()}
    default = found["0.0.0.0/0"]
    assert (default.via, default.src, default.priority) == (ip_address("10.0.0.254"), ip_address("10.0.0.1"), 100)
    assert found["10.9.0.0/24"].hops == (
        NextHop(index=eth0, via=ip_address("10.0.0.2")),
        NextHop(index=eth0, via=ip_address("10.0.0.3"), weight=3, onlink=True),
    )
    assert [hop.via for hop in found["fd09::/64"].hops] == [ip_address("fd00::2"), ip_address("fd00::3")]
    assert found["10.8.0.0/24"].via == ip_address("fd00::8")
    assert found["::/0"].via == ip_address("fd00::254")
    assert found["10.0.0.0/24"].scope == 253
    for family in (4, 6):
        shown = netns.json(f"ip -{family} -j route show table main")
        assert len(shown) == len(netns.rtnl.routes(family=family))


def test_the_route_to_an_address(netns: Netns, eth0: int) -> None:
    netns.run("ip route add default via 10.0.0.254")
    way = netns.rtnl.route_to(ip_address("192.0.2.1"))
    assert (way.via, way.index, way.src) == (ip_address("10.0.0.254"), eth0, ip_address("10.0.0.1"))
    assert netns.rtnl.route_to(ip_address("fd00::77")).index == eth0
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.route_to(ip_address("2001:db8::1"))
    assert refused.value.errno == errno.ENETUNREACH


def test_one_neighbour_and_one_entry_of_a_bridge(netns: Netns) -> None:
    netns.run(
        """ip link add br0 type bridge; ip link set br0 up; ip link add one type veth peer name other
        ip link set one master br0 up; ip link set other up
        ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev br0
        bridge fdb add 02:00:00:00:00:08 dev one master static"""
    )
    bridge, port = (netns.rtnl.link(name).index for name in ("br0", "one"))  # type: ignore[union-attr]
    found = netns.rtnl.neighbour(bridge, ip_address("10.0.0.9"))
    assert found is not None
    assert str(found.mac) == "02:00:00:00:00:09"
    assert netns.rtnl.neighbour(bridge, ip_address("10.0.0.8")) is None
    entry = netns.rtnl.fdb_entry(bridge, Mac.parse("02:00:00:00:00:08"))
    assert entry is not None
    assert entry.index == port
    assert netns.rtnl.fdb_entry(bridge, MAC) is None
    eventually(lambda: not netns.rtnl.batch([learn_fdb(port, MAC)]))  # refused until the port forwards
    [seen] = [each for each in netns.json("bridge -j fdb show br br0") if each["mac"] == str(MAC)]
    assert (seen["ifname"], seen["flags"], seen["state"]) == ("one", [], "")


def test_neighbours(netns: Netns, vtep: int, pyroute2) -> None:
    for text in ("10.1.0.0", "fd01::"):
        netns.rtnl.request(neigh.add_neighbour(vtep, ip_address(text), mac=MAC))
        [seen] = netns.json(f"ip -{ip_address(text).version} -d -j neigh show {text} dev flannel.1")
        assert (seen["lladdr"], seen["state"], seen["protocol"]) == (str(MAC), ["PERMANENT"], str(PROTOCOL))
    found = [each for each in netns.rtnl.neighbours(vtep) if each.state == 0x80]
    assert {(str(each.ip), each.mac, each.protocol) for each in found} == {
        ("10.1.0.0", MAC, PROTOCOL),
        ("fd01::", MAC, PROTOCOL),
    }
    theirs = [each for each in pyroute2(lambda oracle: oracle.get_neighbours(ifindex=vtep)) if each["state"] == 0x80]
    assert {each.get_attr("NDA_DST") for each in theirs} == {"10.1.0.0", "fd01::"}
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(neigh.add_neighbour(vtep, ip_address("fd01::"), mac=MAC, replace=False))
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.request(neigh.delete_neighbour(vtep, ip_address("fd01::")))
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(neigh.delete_neighbour(vtep, ip_address("fd01::")))
    assert refused.value.errno == errno.ENOENT


def test_forwarding_entries(netns: Netns, vtep: int, pyroute2) -> None:
    netns.rtnl.request(neigh.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7")))
    [seen] = netns.json("bridge -j fdb show dev flannel.1")
    assert (seen["mac"], seen["dst"], seen["flags"], seen["state"]) == (str(MAC), "10.0.0.7", ["self"], "permanent")
    [theirs] = [each for each in pyroute2(lambda oracle: oracle.fdb("dump")) if each["ifindex"] == vtep]
    assert (theirs.get_attr("NDA_DST"), theirs["state"], theirs["flags"]) == ("10.0.0.7", 0x80, 0x02)
    netns.rtnl.request(neigh.add_fdb(vtep, MAC, remote=ip_address("10.0.0.8")))
    [found] = netns.rtnl.fdb(vtep)
    assert (found.mac, found.remote, found.port, found.vni, found.via) == (MAC, ip_address("10.0.0.8"), 0, 0, 0)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(neigh.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7"), replace=False))
    assert refused.value.errno == errno.EEXIST
    netns.run("bridge fdb replace 02:00:00:00:01:07 dev flannel.1 dst 10.0.0.9 port 99 vni 5 via eth0")
    [found] = netns.rtnl.fdb(vtep)
    eth0 = netns.rtnl.link("eth0")
    assert eth0 is not None
    assert (found.remote, found.port, found.vni, found.via) == (ip_address("10.0.0.9"), 99, 5, eth0.index)
    netns.rtnl.request(neigh.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7")))
    [found] = netns.rtnl.fdb(vtep)
    assert (found.remote, found.port, found.vni, found.via, found.state) == (ip_address("10.0.0.7"), 0, 0, 0, 0x80)
    netns.run("for i in 7 8; do bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 10.0.0.$i; done")
    netns.rtnl.request(neigh.delete_fdb(vtep, Mac(bytes(6)), remote=ip_address("10.0.0.7")))
    assert {each.remote for each in netns.rtnl.fdb(vtep)} == {ip_address("10.0.0.7"), ip_address("10.0.0.8")}
    netns.rtnl.request(neigh.delete_fdb(vtep, Mac(bytes(6))))
    netns.rtnl.request(neigh.delete_fdb(vtep, MAC))
    assert netns.rtnl.fdb(vtep) == []


def test_only_the_asked_devices_forwarding_entries_are_listed(netns: Netns, vtep: int) -> None:
    netns.run(
        "ip link add vx2 type vxlan id 2 dstport 8472\n"
        "for i in 1 2 3; do bridge fdb add 02:00:00:00:02:0$i dev vx2 dst 10.0.0.9; done"
    )
    netns.rtnl.request(neigh.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7")))
    assert [each.mac for each in netns.rtnl.fdb(vtep)] == [MAC]
    assert {each.index for each in netns.rtnl.neighbours(vtep)} <= {vtep}
    assert len([each for each in netns.rtnl.fdb() if each.remote]) == 4


@pytest.mark.parametrize("family, src", [(4, "10.1.0.0/16"), (6, "fd01::/48")])
def test_rules(netns: Netns, family: int, src: str) -> None:
    rule = RuleInfo(
        family=family, priority=500, table=1000, src=ip_network(src), mark=3, mask=0xFF, iif="lo", protocol=PROTOCOL
    )
    netns.rtnl.request(route.add_rule(rule))
    [seen] = [each for each in netns.json(f"ip -{family} -j rule") if each["priority"] == 500]
    assert (f"{seen['src']}/{seen['srclen']}", seen["table"], seen["iif"]) == (src, "1000", "lo")
    assert (seen["fwmark"], seen["fwmask"], seen["protocol"]) == ("0x3", "0xff", str(PROTOCOL))
    assert [each for each in netns.rtnl.rules(family=family) if each.priority == 500] == [rule]
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(route.add_rule(rule))
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.request(route.delete_rule(rule))
    assert all(each.priority != 500 for each in netns.rtnl.rules())
    netns.run(f"ip -{family} rule add not to {src} oif lo lookup 7 pref 600")
    [found] = [each for each in netns.rtnl.rules() if each.priority == 600]
    assert (found.invert, found.dst, found.oif, found.table) == (True, ip_network(src), "lo", 7)
    netns.rtnl.request(route.delete_rule(replace(found, protocol=0)))
