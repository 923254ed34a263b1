"""What is pure in the relay, in C and in Python: both do the same with any packet, and nothing is lost on the way."""

import ctypes
import subprocess
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.support.checkout import CHECKOUT
from tests.support.relay.model.packets import (
    NEEDS_CSUM,
    TOO_BIG,
    VNET,
    Offload,
    complete,
    header_is_right,
    icmp_error,
    is_local,
    packet_size,
    pseudo,
    spend_ttl,
    word_sum,
)
from tests.support.relay.model.routes import Routes
from tests.support.relay.model.segments import Joined, split
from tests.support.relay.relaysite import is_right, packet, packet6, words_are_right
from weft.forward import build
from weft.forward.control import Change, encode, write_address

TCP, TCP6, UDP = 1, 4, 5  # virtio_net_hdr.gso_type


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C functions, for which `tests/support/relay/shim.c` makes bytes of what they fill in."""
    out = tmp_path_factory.mktemp("relay") / "relay.so"
    source = build.PROGRAM.source
    pure = [str(source / f"{name}.c") for name in ("packet", "split", "join", "icmp", "table")]
    shim = CHECKOUT / "tests" / "support" / "relay" / "shim.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run(["gcc", *flags, f"-I{source}", *pure, str(shim), "-o", str(out)], check=True)
    library = ctypes.CDLL(str(out))
    for name in ("cut", "joined", "said", "completed", "found"):
        getattr(library, name).restype = ctypes.c_size_t
    return library


def ask(function: Callable[..., int], data: bytes, *more: int) -> list[bytes]:
    """What a function of the shim gives for bytes: strings of bytes, each with its length before it."""
    out = ctypes.create_string_buffer(1 << 20)
    length = function(data, ctypes.c_size_t(len(data)), out, *map(ctypes.c_size_t, more))
    found, at, raw = [], 0, out.raw
    while at < length:
        size = int.from_bytes(raw[at : at + 4], "little")
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def lengths(parts: Iterable[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


OPTIONS = bytes([0, 1, 1, 12, *range(12)])  # one of IPv6's headers with options, of 16 bytes


def whole(
    content: bytes, size: int, kind: int, flags: str = "A", *, v6: bool = False, over: bytes = b""
) -> tuple[bytes, Offload]:
    """A packet as the kernel leaves it to a device that can cut it."""
    options = [("NOP", None), ("NOP", None), ("Timestamp", (7, 9))]
    tcp = {} if kind == UDP else {"flags": flags, "seq": 0xFFFFFF00, "options": options}
    below = 40 + len(over) if v6 else 20
    made = packet6(content, over=over, **tcp) if v6 else packet(content, **tcp)
    if v6 and tcp:
        kind += TCP6 - TCP
    return made, Offload(NEEDS_CSUM, kind, below + (32 if tcp else 8), size, below, 16 if tcp else 6)


# Of headers: none, one that fits to 60 bytes, one with all options, one that is too short, one longer than the packet.
HEADS = (b"", b"\x45\0", b"\x45\0\0\x3c", b"\x4f\0\0\x3c", b"\x41\0\0\x14", b"\x46\0\0\x16")
KINDS = st.sampled_from([TCP, TCP | 0x80, UDP])
SIZE = st.integers(60, 3000)  # of each
CONTENT = st.integers(1, 6000).flatmap(lambda size: st.binary(min_size=size, max_size=size))
OVER = st.sampled_from([b"", OPTIONS])
FLAGS = st.sampled_from(["A", "PA", "FA", "CA", "CPA"])


@settings(max_examples=200, deadline=None)
@given(content=CONTENT, size=SIZE, kind=KINDS, flags=FLAGS, v6=st.booleans(), over=OVER)
def test_what_is_cut_is_right_and_the_same_in_both(c, *, content, size, kind, flags, v6, over):
    made, how = whole(content, size, kind, flags, v6=v6, over=over)
    pieces = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
    assert ask(c.cut, VNET.pack(*how) + made) == pieces
    headers, below = how.header_size, how.csum_start
    assert all(map(is_right, pieces))
    assert b"".join(piece[headers:] for piece in pieces) == content
    assert {len(piece) - headers for piece in pieces[:-1]} <= {size}
    if v6:
        assert {piece[:4] + piece[6:below] for piece in pieces} == {made[:4] + made[6:below]}
    if kind != UDP:
        assert [int.from_bytes(piece[below + 4 : below + 8], "big") for piece in pieces] == [
            (0xFFFFFF00 + number * size) % (1 << 32) for number in range(len(pieces))
        ]
        marks = [piece[below + 13] & 0x89 for piece in pieces]  # CWR, PSH, FIN
        told = made[below + 13] & 0x89
        assert marks[-1] & 9 == told & 9
        assert marks[0] & 0x80 == told & 0x80
        assert not any(mark & 9 for mark in marks[:-1])
        assert not any(mark & 0x80 for mark in marks[1:])


@pytest.mark.parametrize(
    "kind, v6, over",
    [
        (TCP6, False, b""),
        (TCP, True, b""),
        (UDP | 0x80, True, b""),
        (TCP6, True, bytes([0, 15, 1, 124]) + bytes(124)),
        (TCP6, True, bytes([0, 255]) + bytes(62)),
    ],
    ids=["TCP6 in IPv4", "TCP4 in IPv6", "UDP with TCP's mark", "headers too long", "a header behind the end"],
)
def test_what_does_not_fit_is_not_cut(c, kind, v6, over):
    made, how = whole(bytes(900), 100, UDP if kind & UDP == UDP else TCP, v6=v6, over=over)
    how = how._replace(gso_type=kind)
    assert split(memoryview(bytearray(made)), how) == []
    assert ask(c.cut, VNET.pack(*how) + made) == []


def join(packets: list[bytes], *, udp: bool = True) -> list[bytes]:
    """What Python writes for packets that came together."""
    written: list[bytes] = []
    joined: Joined | None = None
    for each in packets:
        ip = memoryview(bytearray(each))
        if joined is None or not joined.add(ip):
            written += [b"".join(joined.parts())] if joined else []
            joined = Joined(ip, udp=udp)
    return [*written, b"".join(joined.parts())] if joined else []


def join_message(packets: list[bytes]) -> list[bytes]:
    """What Python writes for packets that came as one message: all of the first one's size, but the last."""
    ip, each = memoryview(bytearray(b"".join(packets))), len(packets[0])
    written: list[bytes] = []
    joined = Joined(ip[:each])
    for start in range(each * (1 + joined.add_all(ip[each:], each)), len(ip), each):
        if not joined.add(ip[start : start + each]):
            written.append(b"".join(joined.parts()))
            joined = Joined(ip[start : start + each])
    return [*written, b"".join(joined.parts())]


def again(written: bytes) -> list[bytes]:
    """The packets that something written stands for."""
    how, ip = Offload(*VNET.unpack_from(written)), memoryview(bytearray(written[VNET.size :]))
    if not how.gso_type:
        return [bytes(ip)]
    assert how.flags == NEEDS_CSUM
    assert header_is_right(ip)
    return [header + bytes(part) for header, part in split(ip, how)]


@settings(max_examples=100, deadline=None)
@given(
    flows=st.lists(
        st.tuples(CONTENT, SIZE, KINDS, st.sampled_from(["A", "PA"]), st.booleans(), OVER), min_size=1, max_size=4
    ),
    odd=st.lists(st.binary(max_size=60), max_size=3),
)
def test_what_is_joined_is_the_same_in_both_and_comes_apart_again(c, flows, odd):
    packets: list[bytes] = []
    for (content, size, kind, flags, v6, over), more in zip(flows, [*odd, b"", b"", b"", b""], strict=False):
        made, how = whole(content, size, kind, flags, v6=v6, over=over)
        packets += [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
        packets.append(packet(more, source="10.5.2.9"))
    written = join(packets)
    assert ask(c.joined, lengths(packets), 1) == written
    assert [each for one in written for each in again(one)] == packets
    assert max(len(one) for one in written) <= VNET.size + 65535


@settings(max_examples=300, deadline=None)
@given(
    size=st.integers(99, 102),
    count=st.integers(2, 70),
    last=st.integers(1, 100),
    flags=st.sampled_from(["A", "PA"]),
    wrong=st.none() | st.tuples(st.integers(0, 70), st.integers(0, 150), st.integers(1, 255), st.booleans()),
    kind=st.sampled_from([TCP, TCP, UDP]),
    v6=st.booleans(),
)
def test_a_message_is_joined_at_once_as_its_packets_are_one_by_one(*, size, count, last, flags, wrong, kind, v6):
    made, how = whole(bytes(range(256)) * 28, size, kind, flags, v6=v6)
    packets = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)][:count]
    packets[-1] = mended(_shorter(packets[-1], size - min(last, size)))
    if wrong is not None:
        number, offset, change, is_mended = wrong
        one = bytearray(packets[number % len(packets)])
        one[offset % len(one)] ^= change
        packets[number % len(packets)] = mended(bytes(one)) if is_mended and offset >= 20 else bytes(one)
    assume(header_is_right(memoryview(packets[0])))  # the relay looks at it before it joins anything
    assert join_message(packets) == join(packets)


def _shorter(raw: bytes, less: int) -> bytes:
    """A packet with so many bytes less of content."""
    ip = bytearray(raw[: len(raw) - less])
    at, size = (4, len(ip) - 40) if ip[0] >> 4 == 6 else (2, len(ip))
    ip[at : at + 2] = size.to_bytes(2, "big")
    below = 40 if ip[0] >> 4 == 6 else 20
    if ip[6 if below == 40 else 9] == 17:
        ip[below + 4 : below + 6] = (len(ip) - below).to_bytes(2, "big")
    return bytes(ip)


@pytest.mark.parametrize("v6", [False, True])
@pytest.mark.parametrize("kind, written", [(TCP, 1), (UDP, 9)])
def test_where_the_kernel_takes_no_udp_that_is_joined_only_tcp_is(c, kind, written, v6):
    made, how = whole(bytes(900), 100, kind, v6=v6)
    packets = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
    assert len(join(packets, udp=False)) == written
    assert ask(c.joined, lengths(packets), 0) == join(packets, udp=False)


def mended(raw: bytes) -> bytes:
    """A packet without options with both checksums right."""
    ip = bytearray(raw)
    if ip[0] >> 4 == 6:
        place = 56 if ip[6] == 6 else 46
        ip[place : place + 2] = b"\0\0"
        total = word_sum(ip[8:40]) + ip[6] + len(ip) - 40 + word_sum(ip[40:])
        ip[place : place + 2] = (-total % 0xFFFF or (0xFFFF if ip[6] == 17 else 0)).to_bytes(2, "big")
        return bytes(ip)
    place = 36 if ip[9] == 6 else 26
    for at, start in ((10, 0), (place, 20)):
        ip[at : at + 2] = b"\0\0"
        pseudo = bytes(ip[12:20]) + bytes((0, ip[9])) + (len(ip) - 20).to_bytes(2, "big") if start else b""
        data = pseudo + bytes(ip[start:] if start else ip[:20])
        ip[at : at + 2] = (-word_sum(data) % 0xFFFF or (0xFFFF if start and ip[9] == 17 else 0)).to_bytes(2, "big")
    return bytes(ip)


@settings(max_examples=600, deadline=None)
@given(kind=st.sampled_from([TCP, UDP]), offset=st.integers(0, 71), value=st.integers(0, 255), v6=st.booleans())
def test_a_packet_that_almost_follows_is_judged_the_same_in_both(c, kind, offset, value, v6):
    made, how = whole(bytes(range(250)) * 2, 100, kind, v6=v6)
    packets = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
    changed = bytearray(packets[2])
    changed[offset] = value
    packets[2] = mended(changed)
    assume(packet_size(memoryview(bytearray(packets[2]))) == len(packets[2]))
    written = join(packets)
    assert ask(c.joined, lengths(packets), 1) == written
    if v6 or offset not in (4, 5):  # the id, which nobody needs of a packet that is whole
        assert [each for one in written for each in again(one)] == packets


@pytest.mark.parametrize("make", [packet, packet6])
def test_no_more_is_joined_than_a_packet_can_be(c, make):
    packets = [make(bytes(1400), flags="A", seq=number * 1400) for number in range(60)]
    written = join(packets)
    assert len(written) == 2
    assert ask(c.joined, lengths(packets), 1) == written


@st.composite
def anything6(draw: st.DrawFn) -> bytes:
    """IPv6 with any addresses and headers, which may fit."""
    known = st.sampled_from([bytes(16), bytes(15) + b"\1", b"\xfd" + bytes(15), bytes(10) + b"\xff\xff\1\2\3\4"])
    beginning = st.sampled_from([b"\xfe\x80", b"\xfe\xbf", b"\xfe\xc0", b"\xff\2", b"\xfd\5"])
    address = known | beginning.map(lambda first: first.ljust(16, b"\1"))
    number = st.sampled_from([0, 6, 17, 43, 44, 58, 59, 60])
    body = b""
    for _ in range(draw(st.integers(0, 3))):
        body += bytes([draw(number), draw(st.sampled_from([0, 1, 255])), 0, draw(st.integers(0, 9)), *range(4)])
    body += draw(st.binary(max_size=80))
    length = len(body) + draw(st.sampled_from([0, 0, 0, -1, 1]))
    head = b"\x60\0\0\0" + max(length, 0).to_bytes(2, "big") + bytes([draw(number), draw(st.integers(0, 3))])
    return head + draw(address) + draw(address) + body


@pytest.mark.spec("flannel.md 11.14/checksum")
@example(raw=b"\x45\0\0\x14" + bytes(4) + b"\x40\x11\xff\xff" + bytes(8))  # a checksum that passes its end
@example(raw=b"\x45\0\0\x14" + bytes(4) + b"\x40\x11\0\0\x0a\5\1\2\xe0\0\0\1")  # to multicast
@settings(max_examples=600, deadline=None)
@given(raw=st.builds(bytes.__add__, st.sampled_from(HEADS), st.binary(max_size=120)) | anything6())
def test_both_say_the_same_of_anything(c, raw):
    ip = memoryview(bytearray(raw))
    size = packet_size(ip)
    expected = [size.to_bytes(4, "little")]
    if size:
        right = header_is_right(ip[:size])
        local = is_local(ip[:size])
        error = icmp_error(ip[:size], TOO_BIG, 1400)
        passed = spend_ttl(ip)
        expected += [bytes([right]), bytes([local]), error, bytes([passed]), bytes(ip[:size])]
    got = ask(c.said, raw)
    assert got == expected
    if size and raw[0] >> 4 == 4:
        assert not error or words_are_right(error)


@pytest.mark.parametrize(
    "kind, is_told", [*((kind, True) for kind in (0, 8, 13, 14)), *((kind, False) for kind in (3, 4, 5, 11, 12))]
)
def test_about_what_of_icmp_there_is_an_error(c, kind: int, is_told: bool):
    about = bytearray(packet(b"echo"))
    about[9], about[20] = 1, kind
    assert bool(icmp_error(memoryview(about), TOO_BIG, 1400)) == is_told
    assert bool(ask(c.said, bytes(about))[3]) == is_told


def icmp6(kind: int, *, before: bytes = b"", following: int = 58, destination: str = "fd05:0:0:1::2") -> memoryview:
    """A packet of ICMPv6, behind other headers."""
    content = before + bytes([kind, 0, 0, 0]) + bytes(1300)
    base = bytearray(packet6(content, destination=destination))
    del base[40:48]  # UDP's
    base[4:6] = len(content).to_bytes(2, "big")
    base[6] = following
    return memoryview(base)


class TestErrorsOfIcmp6:
    def test_it_quotes_what_fits_into_the_least_packet(self, c):
        told = icmp_error(icmp6(128), TOO_BIG, 1400)
        assert ask(c.said, bytes(icmp6(128)))[3] == told
        assert told[:8] == bytes([2, 0, 0, 0, 0, 0, 5, 0x78])
        assert len(told) == 1280 - 40
        assert told[8:] == bytes(icmp6(128)[: 1280 - 48])

    @pytest.mark.parametrize(
        "about, is_told",
        [
            (icmp6(128), True),  # an echo
            (icmp6(127), False),  # an error
            (icmp6(1), False),
            (icmp6(137), False),  # a redirect
            (icmp6(1, following=60, before=b"\x3a\0\1\4\0\0\0\0"), False),
            (icmp6(1, following=43, before=b"\x3a\0\0\0\0\0\0\0"), False),
            (icmp6(1, following=44, before=b"\x3a\0\0\1\0\0\0\7"), False),  # the first fragment
            (icmp6(1, following=44, before=b"\x3a\0\0\x09\0\0\0\7"), True),  # one that is not
            (icmp6(1, following=59), True),
            (icmp6(128, destination="ff02::1"), False),
            (icmp6(128, destination="fe80::1"), False),
            (icmp6(128, destination="::ffff:10.5.2.2"), False),
        ],
    )
    def test_about_what_there_is_one(self, c, about: memoryview, is_told: bool):
        assert bool(icmp_error(about, TOO_BIG, 1400)) == is_told
        assert bool(ask(c.said, bytes(about))[3]) == is_told


@example(content=b"12", start=20, offset=9, v6=False)  # one byte too far
@example(content=b"12", start=20, offset=8, v6=False)
@given(content=st.binary(max_size=99), start=st.integers(0, 160), offset=st.integers(0, 140), v6=st.booleans())
def test_a_checksum_that_is_left_to_us(c, content, start, offset, v6):
    ip = memoryview(bytearray((packet6 if v6 else packet)(content)))
    how = Offload(NEEDS_CSUM, 0, 0, 0, start, offset)
    before = bytes(ip)
    done = complete(ip, how)
    assert ask(c.completed, VNET.pack(*how) + before) == [bytes([done]), bytes(ip)]
    assert done == (start >= (40 if v6 else 20) and start + offset + 2 <= len(ip))
    if done and offset % 2 == 0:
        ip[start + offset : start + offset + 2] = b"\0\0"
        assert complete(ip, how)
        assert words_are_right(bytes(ip[start:]))


def without_sum(make: Callable[[bytes], bytes], start: int) -> bytearray:
    """A UDP packet whose words make 0xFFFF together without a checksum, so that 0 stands where one would be right."""
    ip = bytearray(make(b"\0\0"))
    ip[start + 6 : start + 8] = b"\0\0"
    total = pseudo(ip, 17, len(ip) - start) + word_sum(ip[start:])
    ip[-2:] = (-total % 0xFFFF).to_bytes(2, "big")
    return ip


@pytest.mark.parametrize("make, start", [(packet, 20), (packet6, 40)])
class TestUdpWithoutChecksum:
    """0 says that there is none; the same number has another form."""

    def test_none_that_is_left_to_us_says_so(self, c, make, start):
        ip = without_sum(make, start)
        ip[start + 6 : start + 8] = (pseudo(ip, 17, len(ip) - start) % 0xFFFF).to_bytes(2, "big")  # as the kernel does
        how = Offload(NEEDS_CSUM, 0, 0, 0, start, 6)
        written = ask(c.completed, VNET.pack(*how) + ip)
        assert complete(memoryview(ip), how)
        assert written == [b"\1", bytes(ip)]
        assert ip[start + 6 : start + 8] == b"\xff\xff"

    def test_none_is_made_by_a_cut(self, c, make, start):
        ip, how = without_sum(make, start), Offload(NEEDS_CSUM, UDP, start + 8, 2, start, 6)
        [(header, _)] = split(memoryview(ip), how)
        assert header[start + 6 :] == b"\xff\xff"
        assert ask(c.cut, VNET.pack(*how) + ip) == [header + ip[-2:]]

    def test_packets_without_are_left_alone(self, c, make, start):
        packets = [bytes(without_sum(make, start))] * 2
        written = join(packets)
        assert len(written) == 2
        assert ask(c.joined, lengths(packets), 1) == written


ADDRESSES = [IPv4Address(number) for number in range(64)]
ADDRESSES6 = [IPv6Address((0xFD05 << 112) + (number << 62) + number) for number in range(64)]
NETWORKS = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False), st.integers(0, 63), st.integers(24, 32)
) | st.builds(
    lambda address, length: IPv6Network((int(address), length), strict=False),
    st.sampled_from(ADDRESSES6),
    st.sampled_from([0, 1, 8, 60, 61, 62, 63, 64, 65, 66, 123, 127, 128]),
)
CHANGES = st.lists(
    st.builds(Change, NETWORKS, st.none() | st.sampled_from([IPv4Address(n) for n in (1, 2, 3)])), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(changes=CHANGES)
def test_the_longest_prefix_in_both(c, changes):
    known: dict[IPv4Network | IPv6Network, IPv4Address] = {}
    for change in changes:
        if change.peer is None:
            known.pop(change.network, None)
        else:
            known[change.network] = change.peer
    routes = Routes()
    told = b"".join(map(encode, changes))
    assert routes.change(told) == 0
    asked = [*ADDRESSES, *ADDRESSES6]
    [found] = ask(c.found, told + b"".join(map(write_address, asked)), len(asked))
    for address, peer in zip(asked, found, strict=True):
        right = [net for net in known if address in net]
        assert peer == (int(known[max(right, key=lambda net: net.prefixlen)]) if right else 0)
        assert ((routes.v4 if address.version == 4 else routes.v6).find(int(address)) or 0) == peer
    assert routes.uses.keys() == {int(peer) for peer in known.values()}


@pytest.mark.parametrize("net", [IPv4Network("0.0.0.0/26"), IPv6Network("fd05::/122")])
def test_bits_behind_a_prefix_mean_nothing(c, net):
    told = bytearray(encode(Change(net, IPv4Address(1))))
    told[19] = 7  # of the network's 16 bytes the last
    routes = Routes()
    assert routes.change(told) == 0
    there = net.network_address + 9
    assert (routes.v4 if net.version == 4 else routes.v6).find(int(there)) == 1
    assert ask(c.found, bytes(told) + write_address(there), 1) == [b"\1"]
