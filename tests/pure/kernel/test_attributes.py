"""Attributes: what is encoded is read back, and no bytes in the world raise anything but `Malformed`."""

import struct
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes, mostly
from tests.pure.reach import reached, reaches
from weft.kernel.rtnetlink import addr, codec, link, neigh, netlink, route
from weft.kernel.rtnetlink.attributes import (
    Attributes,
    Malformed,
    attribute,
    be16,
    find,
    nest,
    parse,
    parse_list,
    text,
    u8,
    u16,
    u32,
)
from weft.model.kernel.objects import Route
from weft.model.kernel.reported import RuleInfo
from weft.model.net import Mac

kinds = st.integers(0, 0x3FFF)


@given(st.dictionaries(kinds, st.binary(max_size=40)))
def test_what_is_encoded_is_read_back(wanted: dict[int, bytes]) -> None:
    data = b"".join(attribute(kind, value) for kind, value in wanted.items())
    assert len(data) % 4 == 0
    assert parse(b"head" + data, 4) == wanted
    assert list(parse_list(data)) == list(wanted.items())
    assert parse(nest(7, data)).nest(7) == wanted
    assert all(find(data, kind) == wanted.get(kind) for kind in (*wanted, 1))


@given(kinds, st.integers(0, 0xFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))
def test_numbers(kind: int, small: int, middle: int, large: int) -> None:
    assert parse(u8(kind, small)).number(kind) == small
    assert parse(u16(kind, middle)).number(kind) == middle
    assert parse(be16(kind, middle)).network_number(kind) == middle
    assert parse(u32(kind, large)).number(kind) == large
    assert parse(u8(kind, 1)).number(kind ^ 1) is None


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text(value: str) -> None:
    assert parse(text(3, value)).text(3) == value


def test_text_that_is_no_utf8_survives() -> None:
    value = parse(attribute(3, b"\xff\xfe\0")).text(3)
    assert parse(text(3, value))[3] == b"\xff\xfe\0"
    assert Attributes().text(3) == ""


@given(st.ip_addresses())
def test_addresses(ip: IPv4Address | IPv6Address) -> None:
    assert parse(attribute(1, ip.packed)).ip(1) == ip


def test_hardware_addresses() -> None:
    assert parse(attribute(1, b"\2\0\0\0\0\1")).mac(1) == Mac.parse("02:00:00:00:00:01")
    assert parse(attribute(1, bytes(4))).mac(1) is None  # a tunnel's
    assert Attributes().mac(1) is None


@pytest.mark.parametrize("ask", [Attributes.number, Attributes.ip, Attributes.nest])
def test_a_value_of_a_size_that_makes_no_sense(ask: Callable[[Attributes, int], object]) -> None:
    with pytest.raises(Malformed):
        ask(Attributes({1: b"\x09\0\0\0\0"}), 1)


HEADER = struct.Struct("=HH")
READERS: list[Callable[[bytes], object]] = [parse, lambda data: list(parse_list(data)), lambda data: find(data, 7)]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("length", [0, 3, 9, 0xFFFF])
def test_an_attribute_fits_into_what_is_left(reader: Callable[[bytes], object], length: int) -> None:
    before = attribute(1, b"abcd")
    with pytest.raises(Malformed, match=f"attribute of {length} bytes where 8 are left"):
        reader(before + HEADER.pack(length, 7) + b"efgh")


@pytest.mark.parametrize("value", [b"", b"e", b"efg", b"efgh"])
def test_the_last_attribute_may_lack_its_padding(value: bytes) -> None:
    data = attribute(1, b"abcd") + HEADER.pack(4 + len(value), 7 | 0xC000) + value
    assert parse(data) == {1: b"abcd", 7: value}
    assert list(parse_list(data)) == [(1, b"abcd"), (7, value)]
    assert (find(data, 7), find(data, 1), find(data, 8)) == (value, b"abcd", None)
    assert find(data, 1, 8) is None


ENCODED = st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=17)), min_size=1, max_size=6).map(
    lambda pairs: b"".join(attribute(kind, value) for kind, value in pairs)
)


@reaches(read=0.08, malformed=0.05)
@given(mostly(bent_bytes(ENCODED), st.binary(max_size=200)), st.integers(0, 8))
def test_garbage(data: bytes, offset: int) -> None:
    try:
        found = parse(data, offset)
    except Malformed:
        reached("malformed")
        return
    if found:
        reached("read")
    for kind in found:
        for ask in (found.number, found.network_number, found.text, found.ip, found.mac, found.nest):
            with suppress(Malformed):
                ask(kind)


MAC = Mac.parse("02:00:00:00:00:01")
V4, V6 = IPv4Address("10.0.0.1"), IPv6Address("fd00::1")
NET4, NET6 = IPv4Network("10.0.0.0/8"), IPv6Network("fd00::/64")
VTEP = link.create("vxlan", "vx", u32(1, 1) + u8(7, 1) + attribute(17, V6.packed), mtu=1, mac=MAC).body
VETH = link.create("veth", "a", link.veth_peer("b", mtu=1, mac=MAC, netns_fd=3), mtu=1, mac=MAC, up=True).body
ROUTE = codec.encode(Route(dst=NET4, via=V6, dev="x", onlink=True), 1).body
RULE = RuleInfo(family=6, priority=7, action=1, table=4711, src=NET6, dst=None, mark=1, mask=3, iif="a", protocol=165)
NEIGHBOUR, FDB = neigh.add_neighbour(1, V4, MAC, protocol=165).body, neigh.add_fdb(1, MAC, V6).body

# Each parser, and messages that it can read.
PARSERS: list[tuple[Callable[[bytes], Any], list[bytes]]] = [
    (link.parse_link, [VTEP, VETH]),
    (link.index_and_name, [VTEP, VETH]),
    (addr.parse_address, [addr.add_address(1, V6, 64, replace=True, nodad=True).body]),
    (route.parse_route, [ROUTE, ROUTE + attribute(route.RTA_MULTIPATH, pack("=HBBi", 8, 4, 1, 3))]),
    (neigh.parse_neighbour, [NEIGHBOUR]),
    (neigh.parse_fdb, [FDB]),
    (route.parse_rule, [route.add_rule(RULE).body]),
    (lambda data: codec.decode_route(data, {}), [ROUTE]),
    (lambda data: codec.decode_neighbour(data, "x"), [NEIGHBOUR]),
    (lambda data: codec.decode_fdb(data, "x"), [FDB]),
    (lambda data: list(netlink.messages_in(data)), [pack("=IHHII", 16 + len(FDB), 28, 0, 1, 0) + FDB]),
    (lambda data: list(parse_list(data)), [attribute(1, b"abcd") + attribute(2, b"e")]),
]


@pytest.mark.parametrize("parser, messages", PARSERS)
@reaches(read=0.06, malformed=0.02)
@given(data=st.data())
def test_every_parser_reads_a_message_or_says_that_it_is_malformed(
    parser: Callable[[bytes], Any], messages: list[bytes], data: st.DataObject
) -> None:
    parser(messages[0])
    try:
        parser(data.draw(mostly(bent_bytes(st.sampled_from(messages)), st.binary(max_size=120))))
        reached("read")
    except Malformed:
        reached("malformed")
