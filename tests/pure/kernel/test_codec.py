"""Objects to messages and back, no kernel at all: what the kernel lists is shaped like what we send."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.rtnetlink import addr, codec, neigh, route
from weft.kernel.rtnetlink.attributes import Malformed, attribute, be16, nest, parse_list, u8, u32
from weft.model.kernel.links import Link
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Route
from weft.model.kernel.reported import LinkInfo, NextHop
from weft.model.net import Ip, Mac, Net
from weft.model.value import replace

NAMES = {5: "flannel.1", 2: "eth0"}
MAC = Mac.parse("02:00:00:00:00:01")

ips = st.ip_addresses()
macs = st.binary(min_size=6, max_size=6).map(Mac)


def to_net(ip: Ip, length: int) -> Net:
    return ip_network((ip.packed, length * ip.max_prefixlen // 128), strict=False)


nets = st.builds(to_net, ips, st.integers(0, 128))


@given(
    nets,
    ips,
    st.booleans(),
    st.tuples(st.sampled_from([1, 254, 255, 256, 4711]), st.sampled_from([0, 0, 199])),
    st.just(0) | st.integers(0, 2**32 - 1),
)
def test_routes(dst: Net, via: Ip, onlink: bool, place: tuple[int, int], priority: int) -> None:
    table, scope = place
    if (dst.version, priority) == (6, 1024):
        priority = 0
    thing = Route(dst=dst, via=via, dev="flannel.1", onlink=onlink, table=table, priority=priority, scope=scope)
    assert codec.decode_route(codec.encode(thing, 5).body, NAMES) == (thing.key, thing)
    hole = Route(dst=dst, blackhole=True, table=table, priority=priority)
    assert codec.decode_route(codec.encode(hole, 0).body, NAMES) == (hole.key, hole)


@given(nets, ips, st.none() | ips, st.just(0) | st.integers(0, 65535))
def test_the_source_and_the_mtu_of_a_route(dst: Net, via: Ip, source: Ip | None, mtu: int) -> None:
    thing = Route(dst=dst, via=via, dev="flannel.1", source=source, mtu=mtu)
    assert codec.decode_route(codec.encode(thing, 5).body, NAMES) == (thing.key, thing)


@pytest.mark.parametrize(
    "thing, scope",
    [
        (Route(dst=ip_network("10.0.7.0/24"), via=ip_address("10.0.0.1"), dev="flannel.1"), route.RT_SCOPE_UNIVERSE),
        (Route(dst=ip_network("10.0.7.0/24"), via=ip_address("10.0.0.1"), dev="flannel.1", scope=7), 7),
        (Route(dst=ip_network("fd00:0:0:7::/64"), via=ip_address("fd00::1"), dev="x"), route.RT_SCOPE_UNIVERSE),
        (Route(dst=ip_network("10.0.7.0/24"), dev="flannel.1"), route.RT_SCOPE_LINK),
        (Route(dst=ip_network("10.0.7.0/24"), blackhole=True), route.RT_SCOPE_UNIVERSE),
    ],
)
def test_a_route_has_the_scope_that_it_always_has_unless_another_is_wanted(thing: Route, scope: int) -> None:
    assert route.parse_route(codec.encode(thing, 5).body).scope == scope


@given(
    st.sampled_from([4, 6]),
    st.tuples(*[st.binary(min_size=16, max_size=16)] * 2),
    st.sampled_from([0, 7, 1024]),
    st.tuples(*[st.sampled_from([number, number, number, 99]) for number in (254, PROTOCOL, 1, 4)]),
    st.permutations(range(7)),
)
def test_the_order_of_a_routes_attributes_means_nothing(
    family: int, ends: tuple[bytes, bytes], priority: int, numbers: tuple[int, int, int, int], order: list[int]
) -> None:
    table, protocol, kind, flags = numbers
    size = 4 if family == 4 else 16
    dst, via = ends[0][: size - 1] + b"\0", ends[1][:size]
    head = bytes((2 if family == 4 else 10, size * 8 - 8, 0, 0, 254, protocol, 0, kind, flags, 0, 0, 0))
    attrs = [u32(15, table), attribute(1, dst), u32(6, priority), attribute(5, via), u32(4, 5)]
    attrs += [attribute(12, bytes(32)), u8(20, 0)]
    if family == 4:
        attrs[2] = attrs[5] = attrs[6] = b""
    shuffled = head + b"".join(attrs[number] for number in order)
    assert codec.decode_route(shuffled, NAMES) == codec.decode_route(head + b"".join(attrs), NAMES)


@given(ips, macs)
def test_neighbours_forwarding_entries_and_addresses(ip: Ip, mac: Mac) -> None:
    neighbour = Neighbour(dev="flannel.1", ip=ip, mac=mac)
    assert codec.decode_neighbour(codec.encode(neighbour, 5).body, "flannel.1") == (neighbour.key, neighbour)
    entry = FdbEntry(dev="flannel.1", mac=mac, remote=ip)
    assert codec.decode_fdb(codec.encode(entry, 5).body, "flannel.1") == (entry.key, entry)
    address = Address(dev="flannel.1", ip=ip, prefixlen=ip.max_prefixlen)
    info = addr.parse_address(codec.encode(address, 5).body)
    assert codec.decode_address(replace(info, permanent=True), "flannel.1") == (address.key, address)
    assert codec.decode_address(replace(info, permanent=False), "flannel.1") == (address.key, None)


def body(dst: str = "10.1.0.0/24", **how: object) -> bytes:
    wanted = {"via": ip_address("10.1.0.0"), "index": 5, "table": 254, "protocol": PROTOCOL, "mode": "replace"} | how
    return route.add_route(ip_network(dst), **wanted).body  # type: ignore[arg-type]


def test_the_kernels_default_priority_of_ipv6_is_none() -> None:
    key, thing = codec.decode_route(body("fd01::/64", via=ip_address("fd01::"), priority=1024), NAMES)
    assert isinstance(thing, Route)
    assert (thing.priority, key) == (0, thing.key)
    assert codec.decode_route(body(priority=1024), NAMES)[0][-1] == 1024


def hop(index: int, *attrs: bytes, weight: int = 0, flags: int = 0, length: int = 0) -> bytes:
    inner = b"".join(attrs)
    return pack("=HBBi", length or 8 + len(inner), flags, weight, index) + inner


VIA_ONE, VIA_TWO = attribute(5, bytes((10, 0, 0, 1))), attribute(5, bytes((10, 0, 0, 2)))


def test_the_next_hops_of_a_route() -> None:
    info = route.parse_route(body() + attribute(9, hop(5, VIA_ONE, weight=2, flags=4) + hop(2, VIA_TWO)))
    assert info.hops == (
        NextHop(index=5, via=ip_address("10.0.0.1"), onlink=True, weight=3),
        NextHop(index=2, via=ip_address("10.0.0.2"), onlink=False, weight=1),
    )
    single = route.parse_route(body(via=None, index=0) + attribute(9, hop(5, VIA_ONE, flags=4)))
    assert (single.hops, single.index, single.via, single.onlink) == ((), 5, ip_address("10.0.0.1"), True)


@pytest.mark.parametrize("length", [7, 17])
def test_a_next_hop_fits_into_what_is_left(length: int) -> None:
    with pytest.raises(Malformed, match=f"next hop of {length} bytes where 16 are left"):
        route.parse_route(body() + attribute(9, hop(5, VIA_ONE, length=length)))


def test_a_route_is_copied_with_all_that_it_carries() -> None:
    listed = body(mtu=1000, scope=7) + attribute(12, bytes(32))
    copied = route.copy_route(listed, 4711)
    assert dict(parse_list(copied.body, 12)) == {**dict(parse_list(body(mtu=1000), 12)), 15: pack("=I", 4711)}
    assert copied.body[:12] == listed[:4] + b"\0" + listed[5:12]
    assert copied.kind == route.RTM_NEWROUTE


def test_a_route_by_next_hop_object_is_copied_without_the_gateways_that_the_kernel_adds() -> None:
    copied = route.copy_route(body() + attribute(9, hop(5, VIA_ONE)) + u32(30, 8), 100)
    assert dict(parse_list(copied.body, 12)).keys() == {1, 15, 30}


def test_routes_of_others_have_a_key_alone() -> None:
    key, thing = codec.decode_route(body(protocol=3), NAMES)
    assert thing is None
    assert key == codec.decode_route(body(), NAMES)[0]


@pytest.mark.parametrize(
    "changed",
    [
        body(advmss=1000),
        body(mtu=1000, advmss=1000),
        body() + nest(route.RTA_METRICS, u32(1, 4), u32(route.RTAX_MTU, 1000)),  # RTAX_LOCK
        body(kind=7),
        body() + nest(route.RTA_MULTIPATH, b""),
        body(index=99),
    ],
)
def test_a_route_of_ours_that_someone_changed_equals_nothing_we_want(changed: bytes) -> None:
    key, thing = codec.decode_route(changed, NAMES)
    assert isinstance(thing, Route)
    assert key == thing.key
    assert thing.dev == ""
    assert not thing.blackhole


@pytest.mark.parametrize("extra", [be16(neigh.NDA_PORT, 99), u32(neigh.NDA_VNI, 9), u32(neigh.NDA_IFINDEX, 2)])
def test_a_forwarding_entry_that_goes_elsewhere_has_no_remote(extra: bytes) -> None:
    plain = codec.encode(FdbEntry(dev="x", mac=MAC, remote=IPv4Address("10.0.0.1")), 5).body
    _, thing = codec.decode_fdb(plain + extra, "x")
    assert thing == FdbEntry(dev="x", mac=MAC, remote=IPv4Address(0))


def test_learnt_and_dynamic_things_are_not_ours() -> None:
    entry = bytearray(codec.encode(FdbEntry(dev="x", mac=MAC, remote=IPv4Address("10.0.0.1")), 5).body)
    entry[8] = 0x02  # NUD_REACHABLE
    assert codec.decode_fdb(bytes(entry), "x")[1] is None
    neighbour = bytearray(codec.encode(Neighbour(dev="x", ip=IPv6Address("fd00::1"), mac=MAC), 5).body)
    neighbour[8] = 0x04  # NUD_STALE
    assert codec.decode_neighbour(bytes(neighbour), "x")[1] is None


WANTED = VxlanLink(name="flannel.1", vni=1, port=8472, local=IPv4Address("10.0.0.1"), parent=2, mac=MAC, mtu=1450)
VTEP = LinkInfo(
    index=5,
    name="flannel.1",
    kind="vxlan",
    mtu=1450,
    mac=MAC,
    up=True,
    alias=codec.VTEP_ALIAS,
    data=codec.encode_data(WANTED),
)
DEVICES = {"flannel.1": VxlanLink}


def test_a_vtep() -> None:
    seen = codec.decode_link(VTEP, NAMES, DEVICES)
    assert seen == WANTED
    assert seen.parent_name == NAMES[2]
    wanted = replace(WANTED, local=IPv6Address("fd00::1"), learning=True, gbp=True)
    assert codec.decode_link(replace(VTEP, data=codec.encode_data(wanted)), NAMES, DEVICES) == wanted


@pytest.mark.parametrize("changed", [{"up": False}, {"alias": ""}, {"mtu": 1400}, {"mac": Mac(bytes(6))}])
def test_what_can_be_mended_in_place(changed: dict[str, object]) -> None:
    seen = codec.decode_link(replace(VTEP, **changed), NAMES, DEVICES)  # type: ignore[arg-type]
    assert seen != WANTED
    assert WANTED.changes_in_place(seen)


@pytest.mark.parametrize(
    "data",
    [
        codec.encode_data(WANTED) + u8(25, 1),  # IFLA_VXLAN_COLLECT_METADATA
        codec.encode_data(WANTED) + attribute(2, bytes([10, 0, 0, 9])),  # IFLA_VXLAN_GROUP
        codec.encode_data(replace(WANTED, parent=99)),
        codec.encode_data(replace(WANTED, vni=2)),
        codec.encode_data(replace(WANTED, gbp=True)),
        u32(1, 1),
    ],
)
def test_what_must_be_made_anew(data: bytes) -> None:
    assert not WANTED.changes_in_place(codec.decode_link(replace(VTEP, data=data), NAMES, DEVICES))


def test_what_says_no_is_no_more_than_what_is_not_said() -> None:
    data = codec.encode_data(WANTED) + u8(25, 0) + attribute(2, bytes(4))
    assert codec.decode_link(replace(VTEP, data=data), NAMES, DEVICES) == WANTED


def test_a_device_of_another_kind_or_another_daemons_is_of_no_kind() -> None:
    for info, devices in ((VTEP, {}), (replace(VTEP, kind="dummy"), DEVICES)):
        seen = codec.decode_link(info, NAMES, devices)
        assert (type(seen), seen.name) == (Link, "flannel.1")
        assert not WANTED.changes_in_place(seen)


@pytest.mark.parametrize("dst, via", [("10.0.7.0/24", "10.0.7.0"), ("fd00:0:0:7::/64", "fd00:0:0:7::")])
def test_a_route_for_packets_with_a_type_of_service_is_none_of_ours(dst: str, via: str) -> None:
    """The kernel holds it beside ours for the same destination."""
    thing = Route(dst=ip_network(dst), via=ip_address(via), dev="flannel.1", onlink=True)
    body = bytearray(codec.encode(thing, 5).body)
    assert codec.decode_route(bytes(body), NAMES)[1] == thing
    body[3] = 0x10  # rtm_tos
    assert codec.decode_route(bytes(body), NAMES)[1] is None
