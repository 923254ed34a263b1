"""rtnetlink of our own against other tools, both ways: what we make they see, what they make we see."""

import errno
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from pyroute2 import IPRoute

from tests.support.netns import Netns, wire
from weft.kernel.link import create_bridge, delete_link
from weft.kernel.netlink import Message, NetlinkError, NetlinkSocket
from weft.kernel.route import RTM_GETROUTE, add_route
from weft.kernel.rtnl import Rtnl
from weft.model.net import Mac
from weft.model.objects import PROTOCOL
from weft.model.snapshot import NextHop, RuleInfo

MAC = Mac.parse("02:00:00:00:01:07")


@pytest.fixture
def pyroute2(netns: Netns) -> Callable[[Callable[[IPRoute], Any]], list[Any]]:
    """Asks pyroute2, which opens its sockets late, so that all of it happens inside."""

    def ask(question: Callable[[IPRoute], Any]) -> list[Any]:
        def inside() -> list[Any]:
            with IPRoute() as oracle:
                return list(question(oracle))

        return netns.call(inside)

    return ask


@pytest.fixture
def eth0(netns: Netns) -> int:
    return netns.bridge("eth0", "10.0.0.1/24", "fd00::1/64")


@pytest.fixture
def vtep(netns: Netns, eth0: int) -> int:
    made = netns.rtnl.add_vxlan("flannel.1", vni=1, local=ip_address("10.0.0.1"), parent=eth0, mac=MAC)
    netns.rtnl.set_link(made.index, up=True)
    return made.index


def ip_link(netns: Netns, name: str) -> dict:
    [link] = netns.json(f"ip -d -j link show {name}")
    return link


def test_a_bridge_that_we_make(netns: Netns) -> None:
    made = netns.rtnl.add_bridge("br0", mtu=1400, mac=MAC, alias="weft:pods", up=True)
    seen = ip_link(netns, "br0")
    assert (seen["ifindex"], seen["mtu"], seen["address"], seen["ifalias"]) == (made.index, 1400, str(MAC), "weft:pods")
    assert seen["linkinfo"]["info_kind"] == "bridge"
    assert "UP" in seen["flags"]
    assert (made.kind, made.mtu, made.mac, made.alias, made.up) == ("bridge", 1400, MAC, "weft:pods", True)


def test_a_veth_pair_that_we_make(netns: Netns) -> None:
    other_mac = Mac.parse("02:00:00:00:00:02")
    made = netns.rtnl.add_veth(
        "v0", peer="v1", mtu=1400, mac=MAC, peer_mac=other_mac, alias="weft:pod", peer_alias="weft:end"
    )
    one, other = ip_link(netns, "v0"), ip_link(netns, "v1")
    assert (one["address"], other["address"]) == (str(MAC), str(other_mac))
    assert (one["ifalias"], other["ifalias"]) == ("weft:pod", "weft:end")
    assert (one["link"], other["link"], made.link) == ("v1", "v0", other["ifindex"])
    # A length of 0 would stay when a shaper is added later, and let nothing through.
    assert (one["txqlen"], other["txqlen"], made.queue_length) == (1000, 1000, 1000)


def test_a_veth_pair_into_another_namespace(netns: Netns, make_netns) -> None:
    pod = make_netns()
    made = netns.rtnl.add_veth("veth0", peer="eth0", peer_netns_fd=pod.fd, alias="weft:pod")
    end = pod.rtnl.link("eth0")
    assert end is not None
    assert (end.index, end.link) == (made.link, made.index)
    assert made.peer_netns >= 0
    assert netns.rtnl.link("eth0") is None
    with pytest.raises(ValueError, match="another namespace"):
        netns.rtnl.add_veth("veth1", peer="eth1", peer_netns_fd=pod.fd, peer_alias="x")
    netns.rtnl.set_link(made.index, netns_fd=pod.fd, name="moved")
    assert pod.rtnl.link("moved") is not None


@pytest.mark.parametrize("local", ["10.0.0.1", "fd00::1"])
@pytest.mark.spec("flannel.md §6.2/device")
def test_a_vtep_that_we_make(netns: Netns, eth0: int, local: str) -> None:
    made = netns.rtnl.add_vxlan(
        "flannel.1",
        vni=7,
        port=4789,
        local=ip_address(local),
        parent=eth0,
        mac=MAC,
        mtu=1400,
        gbp=True,
        alias="weft:vtep",
    )
    seen = ip_link(netns, "flannel.1")
    data = seen["linkinfo"]["info_data"]
    assert (data["id"], data["port"], data["link"], data["learning"], data["gbp"]) == (7, 4789, "eth0", False, True)
    assert data.get("local", data.get("local6")) == local
    assert (seen["address"], seen["mtu"], seen["txqlen"], seen["ifalias"]) == (str(MAC), 1400, 1000, "weft:vtep")
    assert made.vxlan is not None
    assert (made.vxlan.vni, made.vxlan.port, made.vxlan.local, made.vxlan.parent) == (7, 4789, ip_address(local), eth0)
    assert (made.vxlan.learning, made.vxlan.gbp) == (False, True)
    netns.rtnl.set_vxlan_learning(made.index, vni=7, learning=True)
    assert ip_link(netns, "flannel.1")["linkinfo"]["info_data"]["learning"] is True


def test_links_that_others_make(netns: Netns, eth0: int) -> None:
    netns.run(
        "ip link add vx type vxlan id 5 dstport 8472 local 10.0.0.1 dev eth0 nolearning gbp\n"
        "ip link add ext type vxlan external dstport 4790\n"
        "ip link add grp type vxlan id 6 remote 10.0.0.9 dev eth0 dstport 4791\n"
        "ip link add br9 type bridge vlan_default_pvid 0\n"
        "ip tuntap add tap0 mode tap multi_queue\n"
        "ip tuntap add tun0 mode tun\n"
        "ip link add p0 type veth peer name p1\n"
        "ip link set p0 master br9 promisc on alias 'ünï code'\n"
        "bridge link set dev p0 hairpin on isolated on"
    )
    links = {link.name: link for link in netns.rtnl.links()}
    assert links["vx"].vxlan is not None
    assert (links["vx"].vxlan.vni, links["vx"].vxlan.learning, links["vx"].vxlan.gbp) == (5, False, True)
    assert links["ext"].vxlan is not None
    assert links["ext"].vxlan.external
    assert links["grp"].vxlan is not None
    assert links["grp"].vxlan.remote == ip_address("10.0.0.9")
    assert (links["br9"].kind, links["br9"].mtu) == ("bridge", 1500)
    assert links["br9"].bridge is not None
    assert links["tap0"].tun is not None
    assert links["tun0"].tun is not None
    assert (links["tap0"].tun.tap, links["tap0"].tun.multi_queue, links["tap0"].tun.persist) == (True, True, True)
    assert (links["tun0"].tun.tap, links["tun0"].mac, links["tun0"].point_to_point) == (False, None, True)
    assert (links["p0"].master, links["p0"].promisc, links["p0"].alias) == (links["br9"].index, True, "ünï code")
    assert links["p0"].port is not None
    assert (links["p0"].port.hairpin, links["p0"].port.isolated) == (True, True)
    assert links["lo"].loopback
    for link in links.values():
        assert netns.rtnl.link(link.name) == netns.rtnl.link(link.index)
        assert (
            link.operstate
            == {"UNKNOWN": 0, "DOWN": 2, "LOWERLAYERDOWN": 3, "UP": 6}[ip_link(netns, link.name)["operstate"]]
        )


def test_a_link_that_we_change(netns: Netns) -> None:
    br0 = netns.rtnl.add_bridge("br0").index
    v0 = netns.rtnl.add_veth("v0", peer="v1").index
    netns.rtnl.set_link(v0, mtu=1300, master=br0, name="new0", mac=MAC, alias="weft:x", promisc=True, up=True)
    netns.rtnl.set_port(v0, hairpin=True, isolated=True)
    seen = ip_link(netns, "new0")
    assert (seen["mtu"], seen["master"], seen["address"], seen["ifalias"]) == (1300, "br0", str(MAC), "weft:x")
    assert {"UP", "PROMISC"} <= set(seen["flags"])
    assert seen["linkinfo"]["info_slave_data"]["hairpin"] is True
    assert seen["linkinfo"]["info_slave_data"]["isolated"] is True
    netns.rtnl.set_port(v0, hairpin=False)
    assert ip_link(netns, "new0")["linkinfo"]["info_slave_data"]["isolated"] is True
    netns.rtnl.set_link(v0, master=0, alias="", promisc=False, up=False)
    seen = ip_link(netns, "new0")
    assert "master" not in seen
    assert "ifalias" not in seen
    assert not {"UP", "PROMISC"} & set(seen["flags"])
    netns.rtnl.delete_link(v0)
    assert [link["ifname"] for link in netns.json("ip -j link")] == ["lo", "br0"]


def test_a_link_that_is_not_there(netns: Netns) -> None:
    assert [netns.rtnl.link(which) for which in ("nope", "", "a-name-too-long-for-a-link", "a/b", 4711)] == [None] * 5
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.delete_link(4711)
    assert refused.value.errno == errno.ENODEV


def test_addresses(netns: Netns, eth0: int, pyroute2) -> None:
    netns.rtnl.add_address(eth0, ip_address("10.9.0.1"), 24, broadcast=ip_address("10.9.0.255"))
    netns.rtnl.add_address(eth0, ip_address("fd09::1"), 64, nodad=True)
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
    netns.rtnl.add_route(dst, via=via, index=eth0)
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert (seen["gateway"], seen["dev"], seen["protocol"]) == (gateway, "eth0", str(PROTOCOL))
    [ours] = netns.rtnl.routes(family=dst.version, protocol=PROTOCOL)
    assert (ours.dst, ours.via, ours.index, ours.priority) == (dst, via, eth0, default)
    number = socket.AF_INET if dst.version == 4 else socket.AF_INET6
    theirs = [each for each in pyroute2(lambda oracle: oracle.get_routes(family=number)) if each["proto"] == PROTOCOL]
    assert [(each.get_attr("RTA_DST"), each.get_attr("RTA_GATEWAY")) for each in theirs] == [
        (prefix.partition("/")[0], gateway)
    ]
    netns.rtnl.add_route(dst, via=via + 1, index=eth0, mtu=1300, advmss=1200)
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert seen["gateway"] == str(via + 1)
    assert seen["metrics"] == [{"mtu": 1300, "advmss": 1200}]
    [ours] = netns.rtnl.routes(family=dst.version, protocol=PROTOCOL)
    assert (ours.mtu, ours.advmss) == (1300, 1200)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.add_route(dst, via=via, index=eth0, mode="create")
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.add_route(dst, via=via, index=eth0, priority=77, table=1000)
    assert [route.priority for route in netns.rtnl.routes(1000)] == [77]
    assert len(netns.json(f"ip {family} -j route show table 1000")) == 1
    assert netns.rtnl.routes(4711) == []
    netns.rtnl.delete_route(dst)
    netns.rtnl.delete_route(dst, table=1000)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.delete_route(dst)
    assert refused.value.errno == errno.ESRCH
    assert netns.rtnl.routes(0, protocol=PROTOCOL) == []


@pytest.mark.parametrize(
    "prefix, gateway", [("10.1.0.0/24", "10.1.0.0"), ("fd01::/64", "fd01::"), ("10.2.0.0/24", "fd01::")]
)
def test_onlink_routes(netns: Netns, vtep: int, prefix: str, gateway: str) -> None:
    netns.rtnl.add_route(ip_network(prefix), via=ip_address(gateway), index=vtep, onlink=True)
    family = f"-{ip_network(prefix).version}"
    [seen] = netns.json(f"ip {family} -j route show {prefix}")
    assert "onlink" in seen["flags"]
    assert gateway == seen.get("gateway", seen.get("via", {}).get("host"))
    [ours] = netns.rtnl.routes(index=vtep, protocol=PROTOCOL)
    assert (ours.via, ours.onlink) == (ip_address(gateway), True)


@pytest.mark.parametrize("prefix", ["10.1.0.0/24", "fd01::/64"])
def test_blackhole_routes(netns: Netns, prefix: str) -> None:
    netns.rtnl.add_route(ip_network(prefix), blackhole=True, priority=9)
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


def test_neighbours(netns: Netns, vtep: int, pyroute2) -> None:
    for text in ("10.1.0.0", "fd01::"):
        netns.rtnl.add_neighbour(vtep, ip_address(text), mac=MAC)
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
        netns.rtnl.add_neighbour(vtep, ip_address("fd01::"), mac=MAC, replace=False)
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.delete_neighbour(vtep, ip_address("fd01::"))
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.delete_neighbour(vtep, ip_address("fd01::"))
    assert refused.value.errno == errno.ENOENT


def test_forwarding_entries(netns: Netns, vtep: int, pyroute2) -> None:
    netns.rtnl.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7"))
    [seen] = netns.json("bridge -j fdb show dev flannel.1")
    assert (seen["mac"], seen["dst"], seen["flags"], seen["state"]) == (str(MAC), "10.0.0.7", ["self"], "permanent")
    [theirs] = [each for each in pyroute2(lambda oracle: oracle.fdb("dump")) if each["ifindex"] == vtep]
    assert (theirs.get_attr("NDA_DST"), theirs["state"], theirs["flags"]) == ("10.0.0.7", 0x80, 0x02)
    netns.rtnl.add_fdb(vtep, MAC, remote=ip_address("10.0.0.8"))
    [found] = netns.rtnl.fdb(vtep)
    assert (found.mac, found.remote, found.port, found.vni, found.via) == (MAC, ip_address("10.0.0.8"), 0, 0, 0)
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7"), replace=False)
    assert refused.value.errno == errno.EEXIST
    netns.run("bridge fdb replace 02:00:00:00:01:07 dev flannel.1 dst 10.0.0.9 port 99 vni 5 via eth0")
    [found] = netns.rtnl.fdb(vtep)
    eth0 = netns.rtnl.link("eth0")
    assert eth0 is not None
    assert (found.remote, found.port, found.vni, found.via) == (ip_address("10.0.0.9"), 99, 5, eth0.index)
    netns.rtnl.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7"))
    [found] = netns.rtnl.fdb(vtep)
    assert (found.remote, found.port, found.vni, found.via, found.state) == (ip_address("10.0.0.7"), 0, 0, 0, 0x80)
    netns.run("for i in 7 8; do bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 10.0.0.$i; done")
    netns.rtnl.delete_fdb(vtep, Mac(bytes(6)), remote=ip_address("10.0.0.7"))
    assert {each.remote for each in netns.rtnl.fdb(vtep)} == {ip_address("10.0.0.7"), ip_address("10.0.0.8")}
    netns.rtnl.delete_fdb(vtep, Mac(bytes(6)))
    netns.rtnl.delete_fdb(vtep, MAC)
    assert netns.rtnl.fdb(vtep) == []


def test_only_the_asked_devices_forwarding_entries_are_listed(netns: Netns, vtep: int) -> None:
    netns.run(
        "ip link add vx2 type vxlan id 2 dstport 8472\n"
        "for i in 1 2 3; do bridge fdb add 02:00:00:00:02:0$i dev vx2 dst 10.0.0.9; done"
    )
    netns.rtnl.add_fdb(vtep, MAC, remote=ip_address("10.0.0.7"))
    assert [each.mac for each in netns.rtnl.fdb(vtep)] == [MAC]
    assert {each.index for each in netns.rtnl.neighbours(vtep)} <= {vtep}
    assert len([each for each in netns.rtnl.fdb() if each.remote]) == 4


@pytest.mark.parametrize("family, src", [(4, "10.1.0.0/16"), (6, "fd01::/48")])
def test_rules(netns: Netns, family: int, src: str) -> None:
    rule = RuleInfo(
        family=family, priority=500, table=1000, src=ip_network(src), mark=3, mask=0xFF, iif="lo", protocol=PROTOCOL
    )
    netns.rtnl.add_rule(rule)
    [seen] = [each for each in netns.json(f"ip -{family} -j rule") if each["priority"] == 500]
    assert (f"{seen['src']}/{seen['srclen']}", seen["table"], seen["iif"]) == (src, "1000", "lo")
    assert (seen["fwmark"], seen["fwmask"], seen["protocol"]) == ("0x3", "0xff", str(PROTOCOL))
    assert [each for each in netns.rtnl.rules(family=family) if each.priority == 500] == [rule]
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.add_rule(rule)
    assert refused.value.errno == errno.EEXIST
    netns.rtnl.delete_rule(rule)
    assert all(each.priority != 500 for each in netns.rtnl.rules())
    netns.run(f"ip -{family} rule add not to {src} oif lo lookup 7 pref 600")
    [found] = [each for each in netns.rtnl.rules() if each.priority == 600]
    assert (found.invert, found.dst, found.oif, found.table) == (True, ip_network(src), "lo", 7)
    netns.rtnl.delete_rule(replace(found, protocol=0))


def test_a_refusal_carries_the_kernels_own_words(netns: Netns) -> None:
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.add_route(ip_network("10.0.0.0/8"), via=ip_address("192.0.2.1"))
    assert refused.value.errno == errno.ENETUNREACH
    assert refused.value.extended == "Nexthop has invalid gateway"
    assert str(refused.value) == "[Errno 101] Network is unreachable: Nexthop has invalid gateway"


def test_a_bad_message_in_the_middle_stops_no_other(netns: Netns, eth0: int) -> None:
    def to(prefix: str, gateway: str) -> Message:
        via = ip_address(gateway)
        return add_route(ip_network(prefix), via=via, index=eth0, table=254, protocol=PROTOCOL, mode="create")

    refused = netns.rtnl.batch(
        [to("10.1.0.0/24", "10.0.0.9"), to("10.2.0.0/24", "192.0.2.1"), to("10.3.0.0/24", "10.0.0.9")]
    )
    assert {position: error.errno for position, error in refused.items()} == {1: errno.ENETUNREACH}
    assert refused[1].extended == "Nexthop has invalid gateway"
    found = {str(route.dst) for route in netns.rtnl.routes(protocol=PROTOCOL)}
    assert found == {"10.1.0.0/24", "10.3.0.0/24"}
    # The last may be the bad one as well, and the socket is in step afterwards.
    assert netns.rtnl.batch([to("10.4.0.0/24", "10.0.0.9"), delete_link(4711)])[1].errno == errno.ENODEV
    assert netns.rtnl.batch([]) == {}
    assert netns.rtnl.link("lo") is not None


def test_all_of_a_long_batch_may_fail(netns: Netns) -> None:
    refused = netns.rtnl.batch([delete_link(4711 + number) for number in range(64)])
    assert sorted(refused) == list(range(64))


def test_answers_that_do_not_fit_are_reported_and_the_socket_lives_on(netns: Netns) -> None:
    sock = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with Rtnl(sock) as small:
        with pytest.raises(NetlinkError) as lost:
            small.batch([delete_link(4711 + number) for number in range(64)])
        assert lost.value.errno == errno.ENOBUFS
        assert small.link("lo") is not None


def test_a_socket_of_another_namespace_acts_there(netns: Netns) -> None:
    received: list[Rtnl] = []
    one, other = socket.socketpair()
    with one, other:
        inside = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        socket.send_fds(one, [b"x"], [inside.fileno()])
        inside.close()
        _, [fd], _, _ = socket.recv_fds(other, 1, 1)
        received.append(Rtnl(socket.socket(fileno=fd)))
    with received[0] as rtnl:
        rtnl.add_bridge("there0")
    assert netns.rtnl.link("there0") is not None
    with Rtnl.open() as own:
        assert own.link("there0") is None


def test_two_sockets_have_ports_of_their_own(netns: Netns) -> None:
    with netns.call(Rtnl.open) as another:
        assert another.port not in (0, netns.rtnl.port)


def test_lists_are_whole_while_links_come_and_go(netns: Netns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that changes while it is read is torn (NLM_F_DUMP_INTR), and is read again."""
    names = {f"b{number}" for number in range(100)}
    netns.rtnl.batch([create_bridge(name, mtu=0, mac=None, vlan_filtering=False, up=False) for name in sorted(names)])
    torn = 0
    read = NetlinkSocket._dump_once

    def counted(self: NetlinkSocket, kind: int, body: bytes) -> list[bytes] | None:
        nonlocal torn
        bodies = read(self, kind, body)
        torn += bodies is None
        return bodies

    monkeypatch.setattr(NetlinkSocket, "_dump_once", counted)
    stop = threading.Event()

    def churn() -> None:
        with netns.call(Rtnl.open) as other:
            while not stop.is_set():
                other.delete_link(other.add_bridge("churn").index)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        end = time.monotonic() + 20
        while torn < 3:
            assert time.monotonic() < end, "no list was ever torn"
            assert {link.name for link in netns.rtnl.links()} - {"churn"} == {"lo", *names}
    finally:
        stop.set()
        thread.join()


def test_wire_joins_two_namespaces(netns: Netns, make_netns) -> None:
    other = make_netns()
    one_end, other_end = wire(netns, other)
    for there, index, ip in ((netns, one_end, "10.0.0.1"), (other, other_end, "10.0.0.2")):
        there.rtnl.add_address(index, ip_address(ip), 24)
        link = there.rtnl.link(index)
        assert link is not None
        assert link.running


def test_an_unknown_request_is_refused(netns: Netns) -> None:
    with pytest.raises(NetlinkError):
        netns.rtnl.dump(RTM_GETROUTE, b"\xff" * 12)
