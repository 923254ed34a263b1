"""The monitor: what someone else does arrives in the model's terms; what is lost is said to be lost."""

import asyncio
import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from ipaddress import IPv4Address, ip_address, ip_network
from typing import NoReturn

import pytest

from tests.support.netns import MANY_NAMES, Netns
from tests.support.waiting import HANGS
from tests.support.weftd import eventually
from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.rtnetlink import codec, events, link, route
from weft.kernel.rtnetlink.apply import apply
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.codec import VTEP_ALIAS
from weft.kernel.rtnetlink.events import Monitor
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.notices import AddressMoved, Lost, Notice, ObjectChanged, PodCut, Resync, UplinkChanged
from weft.kernel.rtnetlink.observe import observe
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.links import NodeLink
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Object, Route, Sysctl
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.model.value import replace
from weft.plan.diff import Put

MAC = Mac.parse("02:00:00:00:01:07")
OTHER_MAC = Mac.parse("02:00:00:00:02:07")
VTEP = VxlanLink(name="flannel.1", vni=1, port=8472, local=ip_address("10.0.0.1"), parent=2, mac=OTHER_MAC, mtu=1450)
ADDRESSES = [
    Address(dev="flannel.1", ip=ip_address("10.1.1.0"), prefixlen=32),
    Address(dev="flannel.1", ip=ip_address("fd01:1::"), prefixlen=128),
]
PEER: list[Object] = [
    Neighbour(dev="flannel.1", ip=ip_address("10.1.2.0"), mac=MAC),
    Neighbour(dev="flannel.1", ip=ip_address("fd01:2::"), mac=MAC),
    FdbEntry(dev="flannel.1", mac=MAC, remote=ip_address("10.0.0.7")),
    Route(dst=ip_network("10.1.2.0/24"), via=ip_address("10.1.2.0"), dev="flannel.1", onlink=True),
    Route(dst=ip_network("fd01:2::/64"), via=ip_address("fd01:2::"), dev="flannel.1", onlink=True),
]
SO_RCVBUFFORCE = 33
NEW_LINK_WITHOUT_A_BODY = struct.pack("=IHHII", 16, link.RTM_NEWLINK, 0, 0, 0)
CUT_SHORT = struct.pack("=IHHII", 20, link.RTM_NEWLINK, 0, 0, 0) + bytes(4)
DEVICES = {"flannel.1": VxlanLink}


def are_resyncs(notices: list[Notice], count: int) -> bool:
    return [type(each) for each in notices] == [Resync] * count


def portless(notices: list[Notice]) -> list[Notice]:
    """The same, whoever asked for it."""
    return [replace(each, port=0) if isinstance(each, ObjectChanged) else each for each in notices]


class Watched:
    """A namespace with a VTEP and a peer, and a monitor on it."""

    def __init__(self, netns: Netns) -> None:
        self.netns = netns
        netns.bridge("eth0", "10.0.0.1/24", "fd00::1/64")
        self.put(VTEP, *ADDRESSES, *PEER)
        self.ports = {netns.rtnl.port}
        self.uplinks = {"eth0"}
        self.monitor = netns.call(lambda: Monitor(netns.rtnl, devices=DEVICES, uplinks=self.uplinks, ports=self.ports))
        link = netns.rtnl.link("flannel.1")
        assert link is not None
        self.index = link.index

    def put(self, *things: Object) -> None:
        assert apply(self.netns.rtnl, [Put(thing) for thing in things]) == []

    def after(self, command: str) -> list[Notice]:
        """The notices that a command causes; rtnetlink has sent them by the time it ends."""
        self.read()
        self.netns.run(command)
        return self.read()

    def read(self) -> list[Notice]:
        return portless(self.monitor.read())


@pytest.fixture
def watched(netns: Netns) -> Iterator[Watched]:
    made = Watched(netns)
    # A busy kernel finishes an IPv6 address some time after it was added, and says so once more.
    eventually(lambda: not netns.run("ip -6 address show tentative"), seconds=20)
    time.sleep(0.1)
    while made.read():
        time.sleep(0.1)
    yield made
    made.monitor.close()


@pytest.mark.parametrize(
    "command, thing",
    [
        ("ip route del 10.1.2.0/24", PEER[3]),
        ("ip -6 route del fd01:2::/64", PEER[4]),
        ("ip route replace 10.1.2.0/24 via 10.0.0.9", PEER[3]),
        ("ip -6 route replace fd01:2::/64 via fd00::9", PEER[4]),
        ("ip neigh del 10.1.2.0 dev flannel.1", PEER[0]),
        ("ip -6 neigh del fd01:2:: dev flannel.1", PEER[1]),
        ("ip neigh change 10.1.2.0 dev flannel.1 nud reachable lladdr 02:00:00:00:01:07", PEER[0]),
        ("bridge fdb del 02:00:00:00:01:07 dev flannel.1", PEER[2]),
        ("bridge fdb replace 02:00:00:00:01:07 dev flannel.1 dst 10.0.0.7 self dynamic", PEER[2]),
        ("ip -6 addr del fd01:1::/128 dev flannel.1", ADDRESSES[1]),
    ],
)
def test_what_is_taken_from_us(watched: Watched, command: str, thing: Object) -> None:
    assert ObjectChanged(thing.key, None) in watched.after(command)


@pytest.mark.parametrize(
    "command, thing",
    [
        (
            f"ip route replace 10.1.2.0/24 via 10.0.0.9 proto {PROTOCOL}",
            Route(dst=ip_network("10.1.2.0/24"), via=ip_address("10.0.0.9"), dev="eth0"),
        ),
        (f"ip route add blackhole 10.9.0.0/24 proto {PROTOCOL}", Route(dst=ip_network("10.9.0.0/24"), blackhole=True)),
        (
            "ip neigh replace 10.1.2.0 dev flannel.1 lladdr 02:00:00:00:02:07 nud permanent",
            Neighbour(dev="flannel.1", ip=ip_address("10.1.2.0"), mac=OTHER_MAC),
        ),
        (
            "bridge fdb replace 02:00:00:00:01:07 dev flannel.1 dst 10.0.0.8 self permanent port 99",
            FdbEntry(dev="flannel.1", mac=MAC, remote=IPv4Address(0)),
        ),
        ("ip addr add 10.7.7.7/32 dev flannel.1", Address(dev="flannel.1", ip=ip_address("10.7.7.7"), prefixlen=32)),
    ],
)
def test_what_is_changed(watched: Watched, command: str, thing: Object) -> None:
    assert ObjectChanged(thing.key, thing) in watched.after(command)


def test_a_new_mac_drops_all_neighbours(watched: Watched) -> None:
    notices = watched.after(f"ip link set flannel.1 address {MAC}")
    links = [notice.thing for notice in notices if isinstance(notice, ObjectChanged) and notice.key[0] == "link"]
    assert [link.mac for link in links if isinstance(link, VxlanLink)] == [MAC]
    assert {ObjectChanged(PEER[0].key, None), ObjectChanged(PEER[1].key, None)} <= set(notices)


def test_a_link_set_down_takes_ipv4_routes_without_a_notice(watched: Watched) -> None:
    notices = watched.after("ip link set flannel.1 down")
    assert Lost("flannel.1", watched.index) in notices
    # The reason for Lost: IPv6 routes and all neighbours are announced, IPv4 routes are not.
    assert ObjectChanged(PEER[4].key, None) in notices
    assert ObjectChanged(PEER[3].key, None) not in notices
    assert watched.netns.rtnl.routes(protocol=PROTOCOL) == []
    seen = [notice.thing for notice in notices if isinstance(notice, ObjectChanged) and notice.key == VTEP.key]
    assert VTEP not in seen


def test_the_last_address_removed_takes_ipv4_routes_without_a_notice(watched: Watched) -> None:
    notices = watched.after("ip addr del 10.1.1.0/32 dev flannel.1")
    assert Lost("flannel.1", watched.index) in notices
    assert ObjectChanged(ADDRESSES[0].key, None) in notices
    assert ObjectChanged(PEER[3].key, None) not in notices
    assert [route.dst.version for route in watched.netns.rtnl.routes(protocol=PROTOCOL)] == [6]


@pytest.mark.parametrize("source", ADDRESSES, ids=["IPv4", "IPv6"])
def test_an_address_removed_changes_the_routes_from_it(watched: Watched, source: Address) -> None:
    """Also on other links: an IPv4 route goes, an IPv6 one stays without the address, which nothing announces."""
    via, dst = ("10.0.0.9", "10.2.0.0/24") if source.ip.version == 4 else ("fd00::9", "fd02::/64")
    thing = Route(dst=ip_network(dst), via=ip_address(via), dev="eth0", source=source.ip)
    watched.put(Address(dev="flannel.1", ip=ip_address("10.7.7.7"), prefixlen=32), thing)
    notices = watched.after(f"ip addr del {source.ip}/{source.prefixlen} dev flannel.1")
    assert Lost("flannel.1", watched.index) in notices
    left = {each.dst: each.src for each in watched.netns.rtnl.routes(family=source.ip.version, protocol=PROTOCOL)}
    assert left.get(thing.dst, "gone") == ("gone" if source.ip.version == 4 else None)
    announced = [notice.key for notice in notices if isinstance(notice, ObjectChanged)]
    assert source.ip.version == 4 or thing.key not in announced


def test_a_link_deleted_or_renamed(watched: Watched) -> None:
    notices = watched.after("ip link set flannel.1 name other0")
    assert notices[:2] == [Lost("flannel.1", watched.index), ObjectChanged(VTEP.key, None)]
    assert ("link", "other0") in [notice.key for notice in notices if isinstance(notice, ObjectChanged)]
    notices = watched.after("ip link del other0")
    assert Lost("other0", watched.index) in notices
    assert ObjectChanged(("link", "other0"), None) in notices


def test_our_own_changes_are_not_news(watched: Watched) -> None:
    watched.read()
    watched.put(*PEER)
    rtnl = watched.netns.rtnl
    rtnl.request(route.delete_route(ip_network("10.1.2.0/24")))
    watched.put(*PEER)
    assert set(watched.read()) <= {ObjectChanged(thing.key, thing) for thing in PEER}
    # Beside it may stand what the kernel has to say of IPv6 addresses by then.
    assert ObjectChanged(PEER[3].key, None) in watched.after("ip route del 10.1.2.0/24")


def test_other_links_are_none_of_our_business(watched: Watched) -> None:
    assert (
        watched.after(
            "ip link add v0 type veth peer name v1\n"
            "ip link set v0 up; ip link set v1 up\n"
            "ip neigh add 10.5.0.9 lladdr 02:00:00:00:00:01 dev v0\n"
            "ip link add type vxlan id 77 dstport 4789\n"
            "ip link set v0 down; ip link del v0"
        )
        == []
    )


@pytest.mark.parametrize("alias", ["weft:bridge", "weft:gateway"])
def test_links_that_pods_share_come_change_and_go(watched: Watched, alias: str) -> None:
    up, down = NodeLink(name="cni0"), NodeLink(name="cni0", up=False)
    watched.netns.run(f"ip link add cni0 type bridge; ip link set cni0 alias {alias}")
    assert ObjectChanged(up.key, up) in watched.after("ip link set cni0 up"), "an alias alone is not announced"
    assert ObjectChanged(down.key, down) in watched.after("ip link set cni0 down")
    ports = "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 master cni0 up"
    assert not [notice for notice in watched.after(f"{ports}; ip link del v0") if isinstance(notice, ObjectChanged)]
    other = NodeLink(name="cni1", up=False)
    assert watched.after("ip link set cni0 name cni1") == [
        ObjectChanged(down.key, None),
        ObjectChanged(other.key, other),
    ]
    assert watched.after("ip link del cni1") == [ObjectChanged(other.key, None)]
    watched.netns.run(f"ip link add cni0 type bridge; ip link set cni0 alias {alias}; ip link set cni0 up")
    watched.read()
    assert ObjectChanged(up.key, None) in watched.after("ip link set cni0 alias nobody; ip link set cni0 mtu 1400")


def test_links_that_pods_share_are_told_of_before_and_after_notices_are_lost(watched: Watched, netns: Netns) -> None:
    netns.run("for i in 0 1 2; do ip link add cni$i type bridge; ip link set cni$i alias weft:bridge; done")
    sock = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    monitor = Monitor(netns.rtnl, sock, devices=DEVICES, uplinks={"eth0"}, ports=watched.ports)
    things = [NodeLink(name=f"cni{number}", up=False) for number in range(4)]
    try:
        assert monitor.known == [ObjectChanged(thing.key, thing) for thing in things[:3]]
        netns.run("for i in $(seq 50); do echo route add 10.8.$i.0/24 via 10.0.0.9; done | ip -batch -")
        netns.run(
            "ip link del cni0; ip link set cni1 up; ip link add cni3 type bridge; ip link set cni3 alias weft:bridge"
        )
        up = NodeLink(name="cni1")
        told = monitor.read()
        assert any(isinstance(each, Resync) for each in told)
        assert {
            ObjectChanged(things[0].key, None),
            ObjectChanged(up.key, up),
            ObjectChanged(things[3].key, things[3]),
        } <= set(portless(told))
        assert not any(isinstance(notice, ObjectChanged) and notice.key == things[2].key for notice in told)
    finally:
        monitor.close()


def test_a_pod_is_cut_when_its_host_end_goes_and_not_by_del(watched: Watched) -> None:
    key = "0123456789abcdef" * 2
    made = "for i in 1 2; do ip link add v$i type veth peer name w$i; ip link set v$i alias weft:pod:" + key + "; done"
    assert watched.after(made) == []
    assert watched.after("ip link set v2 alias weft:retired; ip link del v2") == []
    assert watched.after("ip link del w1") == [PodCut(key)]


def test_a_pod_is_cut_when_its_host_end_leaves_its_bridge_and_not_by_del(watched: Watched) -> None:
    keys = [str(number) * 32 for number in range(4)]
    watched.netns.run(
        "ip link add cni0 type bridge; ip link set cni0 up alias weft:bridge; ip link add br1 type bridge"
    )
    for number, key in enumerate(keys):
        # As an ADD and a DEL do it: what comes last is done to one that others call theirs.
        made = f"ip link add v{number} type veth peer name w{number}; ip link set v{number} alias weft:pod:{key}"
        assert watched.after(f"{made}; ip link set v{number} master cni0; ip link set v{number} up") == []
    assert watched.after("ip link set v0 alias weft:retired; ip link set v0 nomaster; ip link del v0") == []
    assert watched.after("ip link set v1 down; ip link set v1 up; ip link set v1 mtu 1400") == []
    assert set(watched.after("ip link set v1 nomaster")) == {PodCut(keys[1], "cni0")}
    assert watched.after("ip link set v1 down; ip link set v1 up") == [], "it is said once"
    assert watched.after("ip link set v1 master br1") == []
    told = watched.after("ip link del cni0")
    assert {notice for notice in told if isinstance(notice, PodCut)} == {PodCut(key, "cni0") for key in keys[2:]}
    assert set(watched.after("ip link del br1")) == {PodCut(keys[1], "br1")}, "whoever made the bridge"


def test_addresses_of_other_links_are_said_but_for_link_local_ones(watched: Watched) -> None:
    ips = ip_address("10.9.0.1"), ip_address("fd09::1")
    commands = {
        False: "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up"
        "; ip addr add 10.9.0.1/24 dev v0; ip addr add fd09::1/64 dev v0 nodad",
        True: "ip link del v0",
    }
    for gone, command in commands.items():
        moved = {notice for notice in watched.after(command) if isinstance(notice, AddressMoved)}
        wanted = {AddressMoved(ip, gone=gone) for ip in ips}
        # Of an IPv6 address the kernel says something when it has finished it, beside the command.
        assert eventually(lambda moved=moved, wanted=wanted: moved.update(watched.read()) or moved >= wanted)
        assert {notice for notice in moved if isinstance(notice, AddressMoved)} == wanted


def test_a_vtep_is_ours_by_its_alias_as_well(watched: Watched) -> None:
    notices = watched.after(
        f"ip link add old.2 type vxlan id 2 dstport 8472; ip link set old.2 alias {VTEP_ALIAS}; ip link del old.2"
    )
    assert ObjectChanged(("link", "old.2"), None) in notices


@pytest.mark.parametrize(
    "command",
    [
        "ip link set eth0 mtu 1400",
        "ip link set eth0 down",
        "ip addr add 10.0.0.3/24 dev eth0",
        "ip addr del 10.0.0.1/24 dev eth0",
        "ip -6 addr add fd00::3/64 dev eth0",
        "ip route add default via 10.0.0.254",
        "ip route add 10.77.0.0/16 dev eth0",
        "ip link del eth0",
    ],
)
def test_the_uplink_changes(watched: Watched, command: str) -> None:
    assert UplinkChanged("eth0") in watched.after(command)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_link_that_came_later_becomes_the_uplink(watched: Watched, late: bool) -> None:
    """Before it is one, no more is kept of it than what the kernel said last."""
    assert UplinkChanged("v0") not in watched.after("ip link add v0 type veth peer name v1; ip link set v0 mtu 1400")
    if late:
        watched.after("ip link set v0 up; ip link set v1 up")
    watched.uplinks.clear()
    watched.uplinks.add("v0")
    assert UplinkChanged("v0") in watched.after("ip addr add 10.0.9.3/24 dev v0")
    assert UplinkChanged("v0") in watched.after("ip link set v0 mtu 1300")
    assert UplinkChanged("v0") not in watched.after("ip link set v0 alias whatever")
    assert any(isinstance(notice, Lost) for notice in watched.after("ip link del v0"))


def test_a_link_that_takes_the_uplinks_name(watched: Watched) -> None:
    watched.after("ip link add v0 type veth peer name v1 && ip link set eth0 down && ip link set eth0 name old")
    assert UplinkChanged("eth0") in watched.after("ip link set v0 name eth0")


def test_a_notice_larger_than_64_kib_is_a_reason_to_look_and_what_follows_is_heard(watched: Watched) -> None:
    watched.netns.run(MANY_NAMES.format(dev="eth0"))
    while watched.read():
        pass  # so many that the kernel drops some
    assert are_resyncs(watched.after("ip link set eth0 mtu 1400"), 1)
    assert UplinkChanged("eth0") in watched.after("ip link set eth0 mtu 1300")


def test_routes_lost_with_the_uplink(watched: Watched) -> None:
    """A route of ours on the uplink (host-gw) goes the same silent way."""
    watched.put(Route(dst=ip_network("10.1.3.0/24"), via=ip_address("10.0.0.9"), dev="eth0"))
    eth0 = watched.netns.rtnl.link("eth0")
    assert eth0 is not None
    assert Lost("eth0", eth0.index) in watched.after("ip link set eth0 down")


def test_the_carrier_of_the_uplink_takes_no_routes_along(netns: Netns) -> None:
    netns.run("ip link add eth0 type veth peer name far0; ip link set far0 up; ip link set eth0 up")
    netns.run("ip addr add 10.0.0.1/24 dev eth0")
    routes = [Route(dst=ip_network(f"10.1.{number}.0/24"), via=ip_address("10.0.0.9"), dev="eth0") for number in (3, 4)]
    assert apply(netns.rtnl, [Put(routes[0])]) == []
    made = netns.call(lambda: Monitor(netns.rtnl, devices={}, uplinks={"eth0"}, ports={netns.rtnl.port}))
    with closing(made) as monitor:
        netns.run("ip link set far0 down")
        eventually(lambda: "linkdown" in netns.run("ip route"))  # the kernel says so some time later
        assert apply(netns.rtnl, [Put(routes[1])]) == []
        assert [info.dst for info in netns.rtnl.routes(protocol=PROTOCOL)] == [route.dst for route in routes]
        assert {type(notice) for notice in monitor.read()} <= {UplinkChanged}


def test_an_uplink_that_is_renamed_is_still_heard_by_its_index_and_nothing_is_lost(watched: Watched) -> None:
    eth0 = watched.netns.rtnl.link("eth0")
    assert eth0 is not None
    watched.uplinks.add(eth0.index)
    renamed = watched.after("ip link set eth0 name wan0")
    assert UplinkChanged("wan0") in renamed
    assert not any(isinstance(notice, Lost | ObjectChanged) for notice in renamed)
    assert UplinkChanged("wan0") in watched.after("ip addr add 10.0.9.3/24 dev wan0")
    assert UplinkChanged("wan0") in watched.after("ip route add 10.9.0.0/16 via 10.0.0.9 dev wan0")
    assert {Lost("wan0", eth0.index), UplinkChanged("wan0")} <= set(watched.after("ip link set wan0 down"))


def test_an_overflow_is_said_and_survived(watched: Watched, netns: Netns) -> None:
    sock = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    monitor = Monitor(netns.rtnl, sock, devices=DEVICES, uplinks={"eth0"}, ports=watched.ports)
    try:
        netns.run("for i in $(seq 50); do echo route add 10.8.$i.0/24 via 10.0.0.9; done | ip -batch -")
        netns.run("ip link set flannel.1 name gone0; ip link add flannel.1 type vxlan id 9 dstport 8472")
        assert are_resyncs(monitor.read(), 1)
        assert monitor.read() == []
        # It learnt the names anew, and goes on. (The small buffer holds one notice.)
        netns.run("ip addr add 10.7.7.7/32 dev gone0")
        thing = Address(dev="gone0", ip=ip_address("10.7.7.7"), prefixlen=32)
        assert ObjectChanged(thing.key, thing) in portless(monitor.read())
    finally:
        monitor.close()


async def test_what_concerns_nobody_is_left_to_gather(
    watched: Watched, make_later: Callable[[str], None], monkeypatch
) -> None:
    monkeypatch.setattr(watched.monitor, "_rest", 0.5)
    reads: list[list[Notice]] = []
    read = watched.monitor.read
    monkeypatch.setattr(watched.monitor, "read", lambda: reads.append(read()) or reads[-1])
    make_later("for i in $(seq 10); do ip link add pod$i type veth peer name peer$i; done; ip route del 10.1.2.0/24")
    async with asyncio.timeout(HANGS):
        async for notices in watched.monitor:
            assert portless(notices) == [ObjectChanged(PEER[3].key, None)]
            break
    assert len(reads) <= 3, "not one for each link"


@pytest.mark.parametrize("refusal", [NetlinkError(errno.EINTR, "kept changing"), Malformed("planted")])
async def test_links_that_cannot_be_listed_after_an_overflow_end_nothing(
    watched: Watched, make_later: Callable[[str], None], monkeypatch, caplog, refusal: Exception
) -> None:
    monkeypatch.setattr(events, "_RETRY_SECONDS", 0.02)
    refusals = iter([refusal] * 3)
    rtnl = watched.netns.rtnl
    monkeypatch.setattr(watched.monitor, "_rtnl", Listing(rtnl, refusals))
    watched.monitor._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1)
    watched.netns.run("for i in $(seq 50); do echo route add 10.8.$i.0/24 via 10.0.0.9; done | ip -batch -")
    watched.netns.run("ip link set flannel.1 name gone0")
    seen: list[Notice] = []
    async with asyncio.timeout(HANGS):
        async for notices in watched.monitor:
            seen += portless(notices)
            if next(refusals, None) is None and are_resyncs(seen, 2):
                make_later("ip addr add 10.7.7.7/32 dev gone0")
            if len(seen) > 2:
                break
    # Looked at at once and again when the names are known; then it goes on.
    thing = Address(dev="gone0", ip=ip_address("10.7.7.7"), prefixlen=32)
    assert are_resyncs(seen[:2], 2)
    assert ObjectChanged(thing.key, thing) in seen
    assert caplog.text.count("cannot be followed") == 1


class Listing:
    """Lists links when it has no more refusals."""

    def __init__(self, rtnl: Rtnl, refusals: Iterator[Exception]) -> None:
        self._rtnl = rtnl
        self._refusals = refusals

    def links(self) -> list[LinkInfo]:
        for refusal in self._refusals:
            raise refusal
        return self._rtnl.links()


@pytest.mark.parametrize("datagram", [b"\x10", b"\xff\xff\0\0" + bytes(12), NEW_LINK_WITHOUT_A_BODY, CUT_SHORT])
def test_a_datagram_that_cannot_be_read_is_survived(watched: Watched, datagram: bytes) -> None:
    watched.read()
    watched.monitor._socket = Planted(watched.monitor._socket, [datagram])
    assert are_resyncs(watched.read(), 1)
    assert ObjectChanged(PEER[3].key, None) in watched.after("ip route del 10.1.2.0/24")


class Planted:
    """A socket that first has `datagrams`, as if the kernel had sent them."""

    def __init__(self, sock: socket.socket, datagrams: list[bytes]) -> None:
        self._sock = sock
        self._datagrams = datagrams

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

    def recvfrom_into(self, buffer: bytearray, size: int, flags: int) -> tuple[int, tuple[int, int]]:
        if not self._datagrams:
            return self._sock.recvfrom_into(buffer, size, flags)
        datagram = self._datagrams.pop()
        buffer[: len(datagram)] = datagram
        return len(datagram), (0, 0)


@pytest.mark.parametrize("name", ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"], ids=["IPv4", "IPv6"])
def test_forwarding_is_heard_of_for_all_links_together(watched: Watched, name: str) -> None:
    watched.netns.run(f"echo 0 >/proc/sys/{name}")
    watched.read()
    assert ObjectChanged(("sysctl", name), Sysctl(name=name, value="1")) in watched.after(f"echo 1 >/proc/sys/{name}")
    assert ObjectChanged(("sysctl", name), Sysctl(name=name, value="0")) in watched.after(f"echo 0 >/proc/sys/{name}")


def test_settings_of_single_links_wake_nobody(watched: Watched) -> None:
    """Each pod brings some."""
    watched.netns.run("ip link add b0 type bridge")
    for family in (4, 6):
        watched.netns.run(f"echo 0 >/proc/sys/net/ipv{family}/conf/b0/forwarding")
    watched.read()
    for family in (4, 6):
        watched.netns.run(f"echo 1 >/proc/sys/net/ipv{family}/conf/b0/forwarding")
    with pytest.raises(BlockingIOError):
        watched.monitor._socket.recv(1)


def test_a_notice_that_another_program_forges_is_not_believed(watched: Watched) -> None:
    """Netlink's sender has port 0 when it is the kernel; a program may send to any port."""
    watched.read()
    removal = replace_kind(codec.encode(PEER[3], watched.index), route.RTM_DELROUTE)
    to = watched.monitor._socket.getsockname()
    with watched.netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)) as forger:
        forger.sendto(removal, to)
    assert watched.read() == []
    watched.monitor._socket = Planted(watched.monitor._socket, [removal])
    assert watched.read() == [ObjectChanged(PEER[3].key, None)], "the same bytes from the kernel"


def replace_kind(message: Message, kind: int) -> bytes:
    return struct.pack("=IHHII", 16 + len(message.body), kind, 0, 0, 0) + message.body


def test_a_look_after_a_resync_finds_everything(watched: Watched) -> None:
    watched.netns.run("ip link set flannel.1 down; ip link set flannel.1 up")
    wanted = {thing.key: thing for thing in (VTEP, *ADDRESSES, *PEER)}
    have = observe(watched.netns.rtnl, devices=DEVICES).ours
    watched.put(*(thing for key, thing in wanted.items() if have.get(key) != thing))
    assert observe(watched.netns.rtnl, devices=DEVICES).ours == wanted


async def test_notices_arrive_by_themselves(watched: Watched, make_later: Callable[[str], None]) -> None:
    watched.read()
    make_later("ip route del 10.1.2.0/24")
    async with asyncio.timeout(HANGS):
        async for notices in watched.monitor:
            assert portless(notices) == [ObjectChanged(PEER[3].key, None)]
            break


async def test_after_a_fault_it_begins_with_the_links_as_they_are_by_then(watched: Watched, monkeypatch) -> None:
    """The notices that were read when the fault came are lost: a new name among them."""

    def faulty(_: object) -> NoReturn:
        raise ZeroDivisionError

    watched.netns.run("ip link set flannel.1 name gone0")
    with monkeypatch.context() as patched:
        patched.setattr(watched.monitor._reader, "read", faulty)
        with pytest.raises(ZeroDivisionError):
            await anext(aiter(watched.monitor))
    thing = Address(dev="gone0", ip=ip_address("10.7.7.7"), prefixlen=32)
    seen: list[Notice] = []
    async with asyncio.timeout(HANGS):
        async for notices in watched.monitor:
            if not seen:
                assert any(isinstance(each, Resync) for each in notices)
                watched.netns.run("ip addr add 10.7.7.7/32 dev gone0")
            seen += portless(notices)
            if ObjectChanged(thing.key, thing) in seen:
                break


@pytest.fixture
def make_later(netns: Netns) -> Callable[[str], None]:
    return lambda command: (netns.popen(command), None)[1]


def test_what_our_own_socket_causes_does_not_even_arrive(watched: Watched) -> None:
    watched.read()
    watched.put(Neighbour(dev="flannel.1", ip=ip_address("10.1.9.0"), mac=MAC))
    watched.put(Route(dst=ip_network("10.1.9.0/24"), via=ip_address("10.1.9.0"), dev="flannel.1", onlink=True))
    with pytest.raises(BlockingIOError):
        watched.monitor._socket.recv(1 << 16)


def test_links_as_ports_and_the_kernels_own_routes_do_not_even_arrive(watched: Watched) -> None:
    """Each pod causes a dozen of them, and nobody looks at them."""
    watched.netns.run(
        "ip link add br0 type bridge && ip link add v0 type veth peer name v1 && ip link set v0 master br0"
    )
    watched.read()
    watched.netns.run("bridge link set dev v0 hairpin on && ip route add local 10.7.0.1 dev br0 table local")
    with pytest.raises(BlockingIOError):
        watched.monitor._socket.recv(1 << 16)
