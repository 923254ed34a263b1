"""What rtnetlink's messages say about what is ours, what carries it, and what concerns nobody."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from struct import pack

import pytest

from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.rtnetlink import addr, codec, link, neigh, route
from weft.kernel.rtnetlink.attributes import Malformed, attribute, nest, text, u8, u32
from weft.kernel.rtnetlink.netlink import NLM_F_REPLACE, Reply
from weft.kernel.rtnetlink.notices import AddressMoved, Lost, Notice, NoticeReader, ObjectChanged, PodCut, UplinkChanged
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.objects import FdbEntry, Neighbour, Route
from weft.model.net import Mac

MAC = Mac.parse("02:00:00:00:00:01")
ETH0, VTEP, POD = 2, 5, 9
OWN_PORT = 4711
UP = link.IFF_UP


def about(index: int, name: str, *, kind: str = "", flags: int = UP, mtu: int = 1500, alias: str = "", **how: int):
    """A message about a link."""
    attrs = [text(link.IFLA_IFNAME, name), u32(link.IFLA_MTU, mtu), u8(link.IFLA_OPERSTATE, how.get("operstate", 6))]
    attrs += [attribute(link.IFLA_ADDRESS, MAC), text(link.IFLA_IFALIAS, alias)]
    if kind:
        data = nest(link.IFLA_INFO_DATA, u32(1, 1))  # IFLA_VXLAN_ID
        attrs.append(nest(link.IFLA_LINKINFO, text(link.IFLA_INFO_KIND, kind), data))
    body = pack("=BxHiII", how.get("family", 0), 1, index, flags, 0) + b"".join(attrs)
    return Reply(how.get("message", link.RTM_NEWLINK), 0, 0, how.get("port", 0), body)


def vtep(**how):
    return about(VTEP, how.pop("name", "flannel.1"), kind="vxlan", **{"alias": codec.VTEP_ALIAS, **how})


def eth0(**how):
    return about(ETH0, how.pop("name", "eth0"), **how)


def port(index: int, **how):
    """A pod's link on the host, a port of a bridge."""
    made = about(index, f"veth{index}", kind="veth", alias=f"weft:pod:{index}", **how)
    return made._replace(body=made.body + u32(link.IFLA_MASTER, how["master"])) if "master" in how else made


def pod(**how):
    return about(POD, "veth1", kind="veth", **how)


def gone(message: Reply) -> Reply:
    return message._replace(kind=message.kind + 1)


def reader(*links: Reply, devices: Iterable[str] = ()) -> NoticeReader:
    """A reader that has seen these links, and whose uplink is eth0, also by its index."""
    made = NoticeReader(devices=dict.fromkeys(devices, VxlanLink), uplinks={"eth0", ETH0}, ports={OWN_PORT})
    made.learn(link.parse_link(message.body) for message in links)
    return made


@pytest.fixture
def usual() -> NoticeReader:
    return reader(eth0(), vtep(), pod())


def kinds(notices) -> list[str]:
    return [type(notice).__name__ for notice in notices]


# --- Links


@pytest.mark.parametrize(
    "message, expected",
    [
        (eth0(), []),
        (eth0(alias="x"), []),
        (eth0(mtu=1400), ["UplinkChanged"]),
        (eth0(operstate=2), ["UplinkChanged"]),
        (eth0(flags=0), ["Lost", "UplinkChanged"]),
        (eth0(name="wan"), ["UplinkChanged"]),
        (about(77, "eth0"), ["UplinkChanged"]),
        (about(77, "eth1"), []),
        (vtep(), ["ObjectChanged"]),
        (vtep(flags=0), ["Lost", "ObjectChanged"]),
        (vtep(name="other"), ["Lost", "ObjectChanged", "ObjectChanged"]),
        (vtep(alias=""), []),
        (pod(flags=0), []),
        (eth0(mtu=1400, family=socket.AF_BRIDGE), []),
        (gone(pod()), []),
        (gone(eth0()), ["Lost", "UplinkChanged"]),
        (gone(vtep()), ["Lost", "ObjectChanged"]),
        (gone(vtep(family=socket.AF_BRIDGE)), []),
    ],
)
def test_messages_about_links(usual: NoticeReader, message: Reply, expected: list[str]):
    assert kinds(usual.read(message)) == expected


def test_what_is_said_of_links(usual: NoticeReader):
    assert list(usual.read(vtep(flags=0, mtu=1450))) == [
        Lost("flannel.1", VTEP),
        ObjectChanged(("link", "flannel.1"), codec.decode_link(link.parse_link(vtep(flags=0, mtu=1450).body), {}, {})),
    ]
    assert list(usual.read(vtep(name="other")))[:2] == [
        Lost("flannel.1", VTEP),
        ObjectChanged(("link", "flannel.1"), None),
    ]
    assert list(usual.read(gone(vtep(name="other")))) == [Lost("other", VTEP), ObjectChanged(("link", "other"), None)]
    assert list(usual.read(gone(eth0()))) == [Lost("eth0", ETH0), UplinkChanged("eth0")]


def test_a_device_is_ours_by_its_name_too():
    assert kinds(reader(devices=["flannel.1"]).read(vtep(alias=""))) == ["ObjectChanged"]
    assert kinds(reader(devices=["veth1"]).read(pod())) == []


def test_a_link_that_goes_is_forgotten(usual: NoticeReader):
    list(usual.read(gone(vtep())))
    assert kinds(usual.read(vtep(flags=0))) == ["ObjectChanged"], "it cannot be lost a second time"
    assert kinds(usual.read(addressed("10.5.1.0", index=VTEP, message=addr.RTM_DELADDR))) == [
        "AddressMoved",
        "Lost",
        "ObjectChanged",
    ]


def test_a_pod_s_link_may_become_the_uplink(usual: NoticeReader):
    assert kinds(usual.read(about(POD, "veth2"))) == []
    assert list(usual.read(about(POD, "eth0", mtu=1300))) == [UplinkChanged("eth0")]


def test_a_pod_s_link_leaves_its_bridge_once():
    usual = reader(about(7, "br7"), about(8, "br8"), port(POD, master=7), pod())
    assert list(usual.read(port(POD, master=7, flags=0))) == []
    assert list(usual.read(port(POD, master=8))) == [], "another bridge is a bridge"
    assert list(usual.read(port(POD))) == [PodCut(str(POD), "br8")]
    assert list(usual.read(port(POD, flags=0))) == []
    assert list(usual.read(gone(port(POD)))) == [PodCut(str(POD))]
    assert list(usual.read(port(POD))) == [], "one that comes has left nothing"


def test_a_pod_s_link_is_known_from_the_list_as_from_messages():
    usual = reader(about(7, "br7"), port(10, master=7), port(11))
    assert list(usual.read(port(10))) == [PodCut("10", "br7")]
    assert list(usual.read(port(11))) == [], "ptp's has no bridge"
    list(usual.read(port(12, master=7)))
    assert list(usual.read(port(12))) == [PodCut("12", "br7")]


# --- Addresses


def addressed(ip: str, *, index: int, message: int = addr.RTM_NEWADDR, port: int = 0, scope: int = 0) -> Reply:
    packed = ip_address(ip).packed
    head = pack("=BBBBI", 2 if len(packed) == 4 else 10, len(packed) * 8, 0x80, scope, index)
    return Reply(message, 0, 0, port, head + attribute(1, packed) + attribute(2, packed) + u32(8, 0x80))


@pytest.mark.parametrize(
    "message, expected",
    [
        (addressed("10.0.0.9", index=POD), ["AddressMoved"]),
        (addressed("fe80::9", index=POD), []),
        (addressed("169.254.0.9", index=POD), ["AddressMoved"]),
        (addressed("10.0.0.9", index=POD, message=addr.RTM_DELADDR), ["AddressMoved"]),
        (addressed("10.0.0.9", index=ETH0), ["AddressMoved", "UplinkChanged"]),
        (addressed("10.0.0.9", index=ETH0, message=addr.RTM_DELADDR), ["AddressMoved", "Lost", "UplinkChanged"]),
        (addressed("fd00::9", index=ETH0, message=addr.RTM_DELADDR), ["AddressMoved", "UplinkChanged"]),
        (addressed("10.0.0.9", index=ETH0, scope=253), ["AddressMoved"]),
        (addressed("10.5.1.0", index=VTEP), ["AddressMoved", "ObjectChanged"]),
        (addressed("10.5.1.0", index=VTEP, port=OWN_PORT), ["AddressMoved"]),
        (addressed("10.5.1.0", index=VTEP, message=addr.RTM_DELADDR), ["AddressMoved", "Lost", "ObjectChanged"]),
        (addressed("10.5.1.0", index=VTEP, message=addr.RTM_DELADDR, port=OWN_PORT), ["AddressMoved", "Lost"]),
    ],
)
def test_messages_about_addresses(usual: NoticeReader, message: Reply, expected: list[str]):
    found = list(usual.read(message))
    assert kinds(found) == expected
    leaves = message.kind == addr.RTM_DELADDR
    assert all(notice.gone is leaves for notice in found if isinstance(notice, AddressMoved))
    assert all(not leaves or notice.thing is None for notice in found if isinstance(notice, ObjectChanged))


# --- Routes, neighbours and forwarding entries


def routed(dst: str, *, index: int, message: int = route.RTM_NEWROUTE, flags: int = 0, **how: int) -> Reply:
    wanted = {"table": 254, "protocol": 3, **how}
    body = route.add_route(ip_network(dst), via=ip_address("10.5.2.0"), index=index, mode="create", **wanted).body
    return Reply(message, flags, 0, 0, body)


@pytest.mark.parametrize(
    "message, expected",
    [
        (routed("10.5.2.0/24", index=VTEP, protocol=PROTOCOL), ["ObjectChanged"]),
        (routed("10.5.2.0/24", index=VTEP, protocol=PROTOCOL, message=route.RTM_DELROUTE), ["ObjectChanged"]),
        (routed("10.9.0.0/16", index=POD), []),
        (routed("10.9.0.0/16", index=ETH0), ["UplinkChanged"]),
        (routed("10.9.0.0/16", index=ETH0, table=100), []),
        (routed("0.0.0.0/0", index=POD), ["UplinkChanged"]),
        (routed("0.0.0.0/0", index=77), ["UplinkChanged"]),
        (routed("0.0.0.0/1", index=POD), []),
        (routed("0.0.0.0/0", index=POD, table=100), []),
        (routed("10.5.2.0/24", index=POD, flags=NLM_F_REPLACE), ["ObjectChanged"]),
        (routed("10.5.2.0/24", index=POD, flags=NLM_F_REPLACE, message=route.RTM_DELROUTE), []),
    ],
)
def test_messages_about_routes(usual: NoticeReader, message: Reply, expected: list[str]):
    assert kinds(usual.read(message)) == expected


def test_what_is_said_of_routes(usual: NoticeReader):
    thing = Route(dst=ip_network("10.5.2.0/24"), via=ip_address("10.5.2.0"), dev="flannel.1")
    ours = routed("10.5.2.0/24", index=VTEP, protocol=PROTOCOL)
    assert list(usual.read(ours)) == [ObjectChanged(thing.key, thing)]
    assert list(usual.read(gone(ours))) == [ObjectChanged(thing.key, None)]
    replaced: list[Notice] = list(usual.read(routed("10.5.2.0/24", index=VTEP, flags=NLM_F_REPLACE)))
    assert replaced == [ObjectChanged(thing.key, None)]
    assert list(usual.read(routed("0.0.0.0/0", index=POD))) == [UplinkChanged("veth1")]


def test_a_route_of_the_cache_is_nobodys(usual: NoticeReader):
    message = routed("0.0.0.0/0", index=ETH0)
    cached = message.body[:8] + pack("=I", route.RTM_F_CLONED) + message.body[12:]
    assert list(usual.read(message._replace(body=cached))) == []


@pytest.mark.parametrize("index, heard", [(VTEP, True), (ETH0, False), (POD, False), (77, False)])
def test_neighbours_and_forwarding_entries_on_our_devices(usual: NoticeReader, index: int, heard: bool):
    ip = ip_address("10.5.2.0")
    neighbour, entry = Neighbour(dev="flannel.1", ip=ip, mac=MAC), FdbEntry(dev="flannel.1", mac=MAC, remote=ip)
    for thing, body in (
        (neighbour, neigh.add_neighbour(index, ip, MAC, protocol=PROTOCOL).body),
        (entry, neigh.add_fdb(index, MAC, ip).body),
    ):
        there, left = (Reply(kind, 0, 0, 0, body) for kind in (neigh.RTM_NEWNEIGH, neigh.RTM_DELNEIGH))
        assert list(usual.read(there)) == ([ObjectChanged(thing.key, thing)] if heard else [])
        assert list(usual.read(left)) == ([ObjectChanged(thing.key, None)] if heard else [])


def test_other_messages_say_nothing(usual: NoticeReader):
    assert list(usual.read(Reply(99, 0, 0, 0, b""))) == []
    with pytest.raises(Malformed):
        list(usual.read(Reply(link.RTM_NEWLINK, 0, 0, 0, b"")))
