"""Steps into a real kernel: what fails, what is tried another way, and what may be done twice."""

import asyncio
import errno
import socket
from ipaddress import ip_address, ip_network

import pytest

from tests.support.netns import Netns
from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.cooperative import at_once, in_turns
from weft.kernel.rtnetlink.apply import CHUNK, apply, applying
from weft.kernel.rtnetlink.codec import VTEP_ALIAS
from weft.kernel.rtnetlink.netlink import NetlinkSocket
from weft.kernel.rtnetlink.observe import looking, observe
from weft.kernel.rtnetlink.route import list_routes
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Failure
from weft.model.kernel.links import NodeLink
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Object, Route, RuleSet, Sysctl
from weft.model.net import Mac
from weft.model.value import replace
from weft.plan.diff import Delete, Put

MAC = Mac.parse("02:00:00:00:01:07")
VTEP = VxlanLink(name="flannel.1", vni=1, port=8472, local=ip_address("10.0.0.1"), parent=2, mac=MAC, mtu=1450)
ADDRESS = Address(dev="flannel.1", ip=ip_address("10.1.1.0"), prefixlen=32)
VTEP6 = replace(VTEP, name="flannel-v6.1", vni=2, local=ip_address("fd00::1"), mtu=1430)
DEVICES = {VTEP.name: VxlanLink, VTEP6.name: VxlanLink}
VIA6 = Route(dst=ip_network("fd01:2::/64"), via=ip_address("fd01:2::"), dev="flannel-v6.1", onlink=True)


@pytest.fixture(autouse=True)
def _uplink(netns: Netns) -> None:
    netns.bridge("eth0", "10.0.0.1/24", "fd00::1/64")


def put(netns: Netns, *things: Object) -> list[Failure]:
    return netns.call(lambda: apply(netns.rtnl, [Put(thing) for thing in things]))


def delete(netns: Netns, *things: Object) -> list[Failure]:
    return netns.call(lambda: apply(netns.rtnl, [Delete(thing) for thing in things]))


def peers(count: int) -> list[Object]:
    things: list[Object] = []
    for number in range(count):
        mac = Mac(b"\2\0\0\0" + number.to_bytes(2, "big"))
        base = ip_address("10.2.0.0") + number * 256
        things += [
            Neighbour(dev="flannel.1", ip=base, mac=mac),
            FdbEntry(dev="flannel.1", mac=mac, remote=ip_address("10.0.0.7")),
            Route(dst=ip_network(f"{base}/24"), via=base, dev="flannel.1", onlink=True),
        ]
    return things


@pytest.mark.spec("flannel.md §6.2/device-reused")
@pytest.mark.parametrize("changed", [{"mac": Mac.parse("02:00:00:00:09:09")}, {"mtu": 1400}, {"learning": True}])
def test_what_can_change_in_place_does(netns: Netns, changed: dict[str, object]) -> None:
    assert put(netns, VTEP) == []
    before = netns.rtnl.link("flannel.1")
    wanted = replace(VTEP, **changed)  # type: ignore[arg-type]
    assert put(netns, wanted) == []
    after = netns.rtnl.link("flannel.1")
    assert before is not None
    assert after is not None
    assert before.index == after.index
    assert observe(netns.rtnl, devices=DEVICES).ours == {wanted.key: wanted}


@pytest.mark.spec("flannel.md §6.2/device-reused")
@pytest.mark.parametrize(
    "changed", [{"vni": 5}, {"port": 4789}, {"local": ip_address("10.0.0.2")}, {"parent": 3}, {"gbp": True}]
)
def test_what_cannot_change_in_place_is_made_anew(netns: Netns, changed: dict[str, object]) -> None:
    netns.bridge("eth1")
    wanted = replace(VTEP, **changed)  # type: ignore[arg-type]
    assert put(netns, VTEP, wanted) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {wanted.key: wanted}


@pytest.mark.parametrize(
    "foreign",
    [
        "ip link add flannel.1 type bridge",
        "ip link add flannel.1 type vxlan external dstport 8472",
        "ip link add flannel.1 type vxlan id 1 dstport 8472 remote 10.0.0.9 local 10.0.0.1 dev eth0",
    ],
)
def test_a_link_of_that_name_gives_way(netns: Netns, foreign: str) -> None:
    netns.run(foreign)
    assert put(netns, VTEP) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {VTEP.key: VTEP}


@pytest.mark.spec("flannel.md §6.2/device-reused")
def test_upstreams_device_is_taken_over_as_it_is(netns: Netns) -> None:
    netns.run(
        f"ip link add flannel.1 address {MAC} mtu 1450 type vxlan id 1 local 10.0.0.1 dev eth0 dstport 8472 nolearning"
    )
    netns.run("ip link set flannel.1 up")
    before = netns.rtnl.link("flannel.1")
    assert observe(netns.rtnl).ours == {}
    seen = observe(netns.rtnl, devices=DEVICES).ours[VTEP.key]
    assert isinstance(seen, VxlanLink)
    assert VTEP.changes_in_place(seen)
    assert put(netns, VTEP) == []
    after = netns.rtnl.link("flannel.1")
    assert before is not None
    assert after is not None
    assert (after.index, after.alias) == (before.index, VTEP_ALIAS)


def test_a_foreign_device_with_our_vni_is_named(netns: Netns) -> None:
    netns.run("ip link add theirs type vxlan id 1 local 10.0.0.1 dev eth0 dstport 8472")
    [failure] = put(netns, VTEP)
    assert (failure.step, failure.errno) == (Put(VTEP), errno.EEXIST)
    assert "VNI already exists" in failure.message


def test_an_mtu_that_the_parent_cannot_carry_is_refused(netns: Netns) -> None:
    """The kernel lowers it in silence when it creates the device."""
    [failure] = put(netns, replace(VTEP, mtu=1500))
    assert failure.errno == errno.EINVAL
    assert "MTU" in failure.message.upper() or "Invalid" in failure.message


def test_without_its_parent_a_vtep_fails_and_says_why(netns: Netns) -> None:
    [failure] = put(netns, replace(VTEP, parent=9, parent_name="eth9"))
    assert (failure.errno, failure.message) == (errno.ENODEV, "No such device: there is no link eth9 (index 9)")


def test_a_vtep_that_works_is_not_taken_down_for_one_whose_parent_is_not_there(netns: Netns) -> None:
    assert put(netns, VTEP) == []
    [failure] = put(netns, replace(VTEP, parent=9))
    assert failure.errno == errno.ENODEV
    assert observe(netns.rtnl, devices=DEVICES).ours == {VTEP.key: VTEP}


def test_everything_may_be_done_twice(netns: Netns) -> None:
    things = [VTEP, ADDRESS, Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0"), *peers(3)]
    assert put(netns, *things, *things) == []
    rest = [thing for thing in reversed(things) if not isinstance(thing, Sysctl)]
    assert delete(netns, *rest, *rest) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {}
    assert delete(netns, *rest) == []


def test_an_address_that_went_with_ipv6_itself_has_been_deleted_well(netns: Netns) -> None:
    """With an MTU below 1280 a link has no IPv6, and the kernel has words of its own for what is not there (ENXIO)."""
    gone = Address(dev="flannel.1", ip=ip_address("fd01:1::"), prefixlen=128)
    assert put(netns, VTEP, gone) == []
    netns.run("ip link set flannel.1 mtu 1200")
    assert delete(netns, gone) == []


def test_a_step_that_fails_stops_no_other(netns: Netns) -> None:
    bad = Route(dst=ip_network("10.9.0.0/24"), via=ip_address("192.0.2.1"), dev="eth0")
    homeless = Neighbour(dev="nope0", ip=ip_address("10.1.1.1"), mac=MAC)
    good = peers(CHUNK)
    assert put(netns, VTEP, ADDRESS) == []
    failures = put(netns, *good[:100], bad, homeless, *good[100:])
    assert {(failure.step, failure.errno) for failure in failures} == {
        (Put(bad), errno.ENETUNREACH),
        (Put(homeless), errno.ENODEV),
    }
    messages = {failure.message for failure in failures}
    assert "Network is unreachable: Nexthop has invalid gateway" in messages
    assert observe(netns.rtnl, devices=DEVICES).ours.keys() == {thing.key for thing in (VTEP, ADDRESS, *good)}


SOURCES = (ADDRESS, Address(dev="flannel-v6.1", ip=ip_address("fd01:1::"), prefixlen=128))


def test_a_route_says_from_where_and_how_large(netns: Netns) -> None:
    """`ip` is the oracle; what somebody takes out is a difference."""
    narrow = Route(
        dst=ip_network("10.9.0.0/24"), via=ip_address("10.0.0.9"), dev="eth0", source=SOURCES[0].ip, mtu=1400
    )
    wanted = [narrow, replace(VIA6, source=SOURCES[1].ip, mtu=1300)]
    assert put(netns, VTEP, VTEP6, *SOURCES, *wanted) == []
    seen = observe(netns.rtnl, devices=DEVICES).ours
    assert [seen[thing.key] for thing in wanted] == wanted
    said = netns.run("ip route show proto 165; ip -6 route show proto 165")
    assert "10.9.0.0/24 via 10.0.0.9 dev eth0 src 10.1.1.0 mtu 1400" in said
    assert "src fd01:1::" in said
    assert "mtu 1300" in said
    netns.run("ip route replace 10.9.0.0/24 via 10.0.0.9 proto 165 src 10.0.0.1 mtu 1000")
    assert observe(netns.rtnl, devices=DEVICES).ours[narrow.key] == replace(
        narrow, source=ip_address("10.0.0.1"), mtu=1000
    )
    plain = [replace(thing, source=None, mtu=0) for thing in wanted]
    assert put(netns, *plain) == []
    seen = observe(netns.rtnl, devices=DEVICES).ours
    assert [seen[thing.key] for thing in plain] == plain


def test_an_onlink_route_of_ipv6_displaces_one_that_leads_elsewhere(netns: Netns) -> None:
    """Refused by the kernel as long as the gateway is reached another way: by the very route to be replaced."""
    direct = Route(dst=VIA6.dst, via=ip_address("fd00::9"), dev="eth0")
    assert put(netns, VTEP6, direct, VIA6) == []
    assert observe(netns.rtnl, devices=DEVICES).ours[VIA6.key] == VIA6
    netns.run("ip -6 route replace fd01:2::/64 via fd00::8")
    assert put(netns, VIA6) == []
    assert observe(netns.rtnl, devices=DEVICES).ours[VIA6.key] == VIA6
    assert len(netns.rtnl.routes(family=6)) == len({route.dst for route in netns.rtnl.routes(family=6)}) + 1  # fe80::


def test_an_onlink_route_that_cannot_be_fails_for_the_kernels_reason(netns: Netns) -> None:
    netns.run("ip -6 route add fd01::/16 via fd00::8")
    assert put(netns, VTEP6) == []
    [failure] = put(netns, VIA6)
    assert failure.errno == errno.EINVAL
    assert "gateway" in failure.message


def test_where_the_answers_are_lost_all_have_failed(netns: Netns) -> None:
    """None is taken for done; each may be done again."""
    good = Route(dst=ip_network("10.9.255.0/24"), via=ip_address("10.0.0.9"), dev="eth0")
    wrong = [replace(good, dst=ip_network(f"10.9.{n}.0/24"), via=ip_address("192.0.2.1")) for n in range(CHUNK - 1)]
    sock = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with Rtnl(sock) as small:
        failures = netns.call(lambda: apply(small, [Put(thing) for thing in (good, *wrong)]))
    assert [failure.step.object for failure in failures] == [good, *wrong]
    assert {failure.errno for failure in failures} == {errno.ENOBUFS}
    assert put(netns, good) == []


def test_deleting_a_route_leaves_others_alone(netns: Netns) -> None:
    ours = Route(dst=ip_network("10.9.0.0/24"), via=ip_address("10.0.0.9"), dev="eth0")
    netns.run("ip route add 10.9.0.0/24 via 10.0.0.8")
    assert delete(netns, ours) == []
    assert len(netns.rtnl.routes(protocol=3)) == 1
    netns.run(f"ip -6 route add fd09::/64 via fd00::8; ip -6 route add fd09::/64 via fd00::8 metric 5 proto {PROTOCOL}")
    assert delete(netns, Route(dst=ip_network("fd09::/64"), via=ip_address("fd00::8"), dev="eth0", priority=5)) == []
    assert [route.priority for route in netns.rtnl.routes(family=6) if route.via] == [1024]


def test_a_setting_that_is_not_there(netns: Netns) -> None:
    [failure] = put(netns, Sysctl(name="net/ipv6/conf/nope0/accept_ra", value="0"))
    assert failure.errno == errno.ENOENT
    assert "net/ipv6/conf/nope0/accept_ra" in failure.message


def test_settings_are_those_of_the_threads_namespace(netns: Netns) -> None:
    name = "net/ipv4/ip_forward"
    [before] = [netns.run(f"cat /proc/sys/{name}").strip()]
    other = "0" if before == "1" else "1"
    assert put(netns, Sysctl(name=name, value=other)) == []
    assert netns.run(f"cat /proc/sys/{name}").strip() == other
    seen = netns.call(lambda: observe(netns.rtnl, devices=DEVICES, sysctls=[name, "net/ipv4/nope"])).ours
    assert seen == {("sysctl", name): Sysctl(name=name, value=other)}


def test_a_link_that_pods_share_is_put_up_and_never_removed(netns: Netns) -> None:
    netns.run("ip link add cni0 type bridge; ip link set cni0 alias weft:bridge; ip link add other0 type bridge")
    wanted = NodeLink(name="cni0")
    assert observe(netns.rtnl, devices=DEVICES).ours == {wanted.key: NodeLink(name="cni0", up=False)}
    assert put(netns, wanted) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {wanted.key: wanted}
    assert delete(netns, wanted) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {wanted.key: wanted}
    [failure] = put(netns, NodeLink(name="nope0"))
    assert (failure.errno, failure.message) == (errno.ENODEV, "No such device: there is no link nope0")


def test_rule_sets_are_not_for_here(netns: Netns) -> None:
    with pytest.raises(TypeError):
        put(netns, RuleSet(kind="nft", family=4))


async def test_the_event_loop_has_its_turns(netns: Netns) -> None:
    things = peers(200)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    assert put(netns, VTEP, ADDRESS) == []
    counter = asyncio.create_task(count())
    assert await in_turns(applying(netns.rtnl, [Put(thing) for thing in things])) == []
    assert turns >= len(things) // CHUNK
    turns = 0
    snapshot = await in_turns(looking(netns.rtnl, devices=DEVICES))
    assert turns >= 3
    assert snapshot.ours.keys() == {thing.key for thing in (VTEP, ADDRESS, *things)}
    counter.cancel()


def test_a_snapshot_has_what_the_uplink_is_chosen_by(netns: Netns) -> None:
    netns.run("ip route add default via 10.0.0.254")
    assert put(netns, VTEP, ADDRESS, *peers(1)) == []
    snapshot = observe(netns.rtnl)
    eth0 = snapshot.link("eth0")
    assert eth0 is not None
    assert snapshot.link(eth0.index) == eth0
    assert snapshot.link("nope0") is None
    assert ip_address("10.0.0.1") in {each.ip for each in snapshot.addresses_of(eth0.index)}
    assert [route.via for route in snapshot.routes if route.dst.prefixlen == 0] == [ip_address("10.0.0.254")]
    assert all(route.protocol != PROTOCOL for route in snapshot.routes)


def test_a_look_copies_nothing_that_is_known_and_lists_no_peers_where_none_are_asked_for(netns: Netns) -> None:
    """There may be thousands: a second copy of each would stay in the process's memory for good."""
    things = peers(2)
    assert put(netns, VTEP, ADDRESS, *things) == []
    known = {thing.key: thing for thing in things}
    changed = replace(things[0], mac=MAC)
    assert put(netns, changed) == []
    seen = at_once(looking(netns.rtnl, devices=DEVICES, known=known)).ours
    assert {key for key, thing in seen.items() if thing is known.get(key)} == known.keys() - {changed.key}
    assert seen[changed.key] == changed
    assert at_once(looking(netns.rtnl, devices=DEVICES, peers=False)).ours.keys() == {VTEP.key, ADDRESS.key}


@pytest.mark.spec("flannel.md §6.3/no-dumps-per-add")
def test_a_peer_costs_no_list_of_what_the_kernel_has(netns: Netns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better than upstream, which lists all routes three times for each peer (Q-36)."""
    assert put(netns, VTEP) == []
    asked: list[int] = []
    each = NetlinkSocket.each
    monkeypatch.setattr(NetlinkSocket, "each", lambda self, kind, body: asked.append(kind) or each(self, kind, body))
    direct = [
        Route(dst=ip_network(f"10.{second}.0.0/24"), via=ip_address(f"10.0.0.{second}"), dev="eth0")
        for second in range(100, 110)
    ]
    moved = [replace(route, via=ip_address("10.0.0.99")) for route in direct]
    for things in (direct, moved, peers(10)):
        assert put(netns, *things) == []
    assert delete(netns, *moved, *reversed(peers(10))) == []
    assert asked == []
    netns.rtnl.dump(*list_routes(4, protocol=PROTOCOL))
    assert asked != [], "lists are counted"
