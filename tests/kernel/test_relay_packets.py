"""What is pure in the relay, in C and in Python: both do the same with any packet, and nothing is lost on the way."""

import ctypes
import subprocess
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.relaysite import is_right, packet, words_are_right
from weft.forward import build
from weft.forward.control import Change, encode
from weft.forward.packets import (
    NEEDS_CSUM,
    VNET,
    Joined,
    Offload,
    complete,
    header_is_right,
    icmp_error,
    packet_size,
    spend_ttl,
    split,
    word_sum,
)
from weft.forward.routes import Routes

TCP, UDP = 1, 5  # virtio_net_hdr.gso_type


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C functions, for which `tests/support/relayshim.c` makes bytes of what they fill in."""
    out = tmp_path_factory.mktemp("relay") / "relay.so"
    source = build.PROGRAM.source
    pure = [str(source / f"{name}.c") for name in ("packet", "split", "join", "icmp", "table")]
    shim = Path(__file__).parents[1] / "support" / "relayshim.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run(["gcc", *flags, f"-I{source}", *pure, str(shim), "-o", str(out)], check=True)
    library = ctypes.CDLL(str(out))
    for name in ("cut", "joined", "said", "found"):
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


def whole(content: bytes, size: int, kind: int, flags: str = "A") -> tuple[bytes, Offload]:
    """A packet as the kernel leaves it to a device that can cut it."""
    options = [("NOP", None), ("NOP", None), ("Timestamp", (7, 9))]
    made = (
        packet(content, flags=flags, seq=0xFFFFFF00, options=options) if kind & TCP and kind != UDP else packet(content)
    )
    headers = 52 if kind != UDP else 28
    return made, Offload(NEEDS_CSUM, kind, headers, size, 20, 16 if kind != UDP else 6)


# Of headers: none, one that fits to 60 bytes, one with all options, one that is too short, one longer than the packet.
HEADS = (b"", b"\x45\0", b"\x45\0\0\x3c", b"\x4f\0\0\x3c", b"\x41\0\0\x14", b"\x46\0\0\x16")
KINDS = st.sampled_from([TCP, TCP | 0x80, UDP])
SIZE = st.integers(60, 3000)  # of each
CONTENT = st.integers(1, 6000).flatmap(lambda size: st.binary(min_size=size, max_size=size))


@settings(max_examples=150, deadline=None)
@given(content=CONTENT, size=SIZE, kind=KINDS, flags=st.sampled_from(["A", "PA", "FA", "CA", "CPA"]))
def test_what_is_cut_is_right_and_the_same_in_both(c, content, size, kind, flags):
    made, how = whole(content, size, kind, flags)
    pieces = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
    assert ask(c.cut, VNET.pack(*how) + made) == pieces
    headers = how.header_size
    assert all(map(is_right, pieces))
    assert b"".join(piece[headers:] for piece in pieces) == content
    assert {len(piece) - headers for piece in pieces[:-1]} <= {size}
    if kind != UDP:
        assert [int.from_bytes(piece[24:28], "big") for piece in pieces] == [
            (0xFFFFFF00 + number * size) % (1 << 32) for number in range(len(pieces))
        ]
        marks = [piece[33] & 0x89 for piece in pieces]  # CWR, PSH, FIN
        told = made[33] & 0x89
        assert marks[-1] & 9 == told & 9
        assert marks[0] & 0x80 == told & 0x80
        assert not any(mark & 9 for mark in marks[:-1])
        assert not any(mark & 0x80 for mark in marks[1:])


def join(packets: list[bytes]) -> list[bytes]:
    """What Python writes for packets that came together."""
    written: list[bytes] = []
    joined: Joined | None = None
    for each in packets:
        ip = memoryview(bytearray(each))
        if joined is None or not joined.add(ip):
            written += [b"".join(joined.parts())] if joined else []
            joined = Joined(ip)
    return [*written, b"".join(joined.parts())] if joined else []


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
    flows=st.lists(st.tuples(CONTENT, SIZE, KINDS, st.sampled_from(["A", "PA"])), min_size=1, max_size=4),
    odd=st.lists(st.binary(max_size=60), max_size=3),
)
def test_what_is_joined_is_the_same_in_both_and_comes_apart_again(c, flows, odd):
    packets: list[bytes] = []
    for (content, size, kind, flags), more in zip(flows, [*odd, b"", b"", b"", b""], strict=False):
        made, how = whole(content, size, kind, flags)
        packets += [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
        packets.append(packet(more, source="10.5.2.9"))
    written = join(packets)
    assert ask(c.joined, lengths(packets)) == written
    assert [each for one in written for each in again(one)] == packets
    assert max(len(one) for one in written) <= VNET.size + 65535


def mended(raw: bytes) -> bytes:
    """A packet without options with both checksums right."""
    ip = bytearray(raw)
    place = 36 if ip[9] == 6 else 26
    for at, start in ((10, 0), (place, 20)):
        ip[at : at + 2] = b"\0\0"
        pseudo = bytes(ip[12:20]) + bytes((0, ip[9])) + (len(ip) - 20).to_bytes(2, "big") if start else b""
        data = pseudo + bytes(ip[start:] if start else ip[:20])
        ip[at : at + 2] = (-word_sum(data) % 0xFFFF or (0xFFFF if start and ip[9] == 17 else 0)).to_bytes(2, "big")
    return bytes(ip)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from([TCP, UDP]), offset=st.integers(1, 51), value=st.integers(0, 255))
def test_a_packet_that_almost_follows_is_judged_the_same_in_both(c, kind, offset, value):
    made, how = whole(bytes(range(250)) * 2, 100, kind)
    packets = [header + bytes(part) for header, part in split(memoryview(bytearray(made)), how)]
    changed = bytearray(packets[2])
    changed[offset] = value
    packets[2] = mended(changed)
    assume(packet_size(memoryview(bytearray(packets[2]))) == len(packets[2]))
    written = join(packets)
    assert ask(c.joined, lengths(packets)) == written
    if offset not in (4, 5):  # the id, which nobody needs of a packet that is whole
        assert [each for one in written for each in again(one)] == packets


def test_no_more_is_joined_than_a_packet_can_be(c):
    packets = [packet(bytes(1400), flags="A", seq=number * 1400) for number in range(60)]
    written = join(packets)
    assert len(written) == 2
    assert ask(c.joined, lengths(packets)) == written


@pytest.mark.spec("flannel.md 11.14/checksum")
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=120), head=st.sampled_from(HEADS))
def test_both_say_the_same_of_anything(c, data, head):
    raw = head + data
    ip = memoryview(bytearray(raw))
    size = packet_size(ip)
    expected = [size.to_bytes(4, "little")]
    if size:
        right = header_is_right(ip[:size])
        error = icmp_error(ip[:size], 11, 0)
        passed = spend_ttl(ip)
        expected += [bytes([right]), error, bytes([passed]), bytes(ip[:size])]
    got = ask(c.said, raw)
    assert got == expected
    assert not size or not expected[2] or words_are_right(expected[2])


@given(content=st.binary(max_size=99), start=st.integers(0, 140), offset=st.integers(0, 140))
def test_a_checksum_that_is_left_to_us(content, start, offset):
    ip = memoryview(bytearray(packet(content)))
    how = Offload(NEEDS_CSUM, 0, 0, 0, start, offset)
    done = complete(ip, how)
    assert done == (start >= 20 and start + offset + 2 <= len(ip))
    if done and offset % 2 == 0:
        ip[start + offset : start + offset + 2] = b"\0\0"
        assert complete(ip, how)
        assert words_are_right(bytes(ip[start:]))


NETWORKS = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False), st.integers(0, 63), st.integers(24, 32)
)
CHANGES = st.lists(
    st.builds(Change, NETWORKS, st.none() | st.sampled_from([IPv4Address(n) for n in (1, 2, 3)])), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(changes=CHANGES)
def test_the_longest_prefix_in_both(c, changes):
    known: dict[IPv4Network, IPv4Address] = {}
    for change in changes:
        if change.peer is None:
            known.pop(change.network, None)
        else:
            known[change.network] = change.peer
    routes = Routes()
    told = b"".join(map(encode, changes))
    assert routes.change(told) == 0
    [found] = ask(c.found, told, 64)
    for number in range(64):
        right = [net for net in known if IPv4Address(number) in net]
        peer = int(known[max(right, key=lambda net: net.prefixlen)]) if right else 0
        assert (routes.find(number) or 0) == peer
        assert found[number] == peer
    assert routes.uses.keys() == {int(peer) for peer in known.values()}
