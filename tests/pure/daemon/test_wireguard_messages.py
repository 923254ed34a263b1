"""WireGuard's messages: bytes as the kernel has them (linux/wireguard.h)."""

from contextlib import suppress
from ipaddress import ip_address, ip_network
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import key
from weft.daemon.backends.wireguard.inkernel import InKernel
from weft.daemon.backends.wireguard.messages import ask_device, device_in, set_device, set_peers
from weft.desired.tunnels.wireguard import Change, Device, LivePeer, Peer, key_bytes
from weft.kernel.rtnetlink.attributes import Malformed, attribute, nest, parse, parse_list, u16, u32
from weft.kernel.rtnetlink.netlink import Message
from weft.model.net import Endpoint
from weft.model.value import Secret, replace


def told(*, private: int = 0, port: int = 0, peers: bytes = b"") -> bytes:
    """What the kernel answers, without its header's meaning."""
    return bytes(4) + attribute(3, bytes([private] * 32)) + u16(6, port) + nest(8, peers)


PEER = Peer(
    key=key(2),
    endpoint=Endpoint(ip_address("192.168.0.2"), 51820),
    psk=Secret(key(9)),
    keepalive=25,
)
NETWORKS = frozenset({ip_network("10.5.2.0/24"), ip_network("fc00:0:0:2::/64")})


def test_questions():
    assert ask_device("flannel-wg") == b"\0\x01\0\0" + attribute(2, b"flannel-wg\0")


def test_a_device_is_given_its_key_and_its_port():
    body = set_device("wg", private=Secret(key(1)), port=51820)
    assert body == b"\x01\x01\0\0" + attribute(2, b"wg\0") + attribute(3, b"\1" * 32) + u16(6, 51820)


@pytest.mark.spec("flannel.md §6.6/peer-entry")
def test_a_peer_is_given_all_that_it_is_and_another_removed():
    body = set_peers("wg", {key(2): Change(peer=PEER, networks=NETWORKS), key(3): Change(gone=True)})
    [one, two] = [parse(each) for _, each in _list(parse(body, 4)[8])]
    assert one[1] == b"\2" * 32
    assert one[2] == b"\x09" * 32
    assert one.number(3) == 0, "networks that it has stay"
    assert one[4] == pack("=H", 2) + b"\xca\x6c" + bytes([192, 168, 0, 2]) + bytes(8)
    assert one.number(5) == 25
    assert _networks(one[9]) == {(ip_address("10.5.2.0").packed, 24, 2), (ip_address("fc00:0:0:2::").packed, 64, 10)}
    assert two == {1: b"\3" * 32, 3: u32(0, 1)[4:]}


@pytest.mark.parametrize("alone, flags", [(False, 4), (True, 6)])
def test_networks_alone_change_no_peer_and_make_none(alone: bool, flags: int):
    """WGPEER_F_UPDATE_ONLY, and with it WGPEER_F_REPLACE_ALLOWEDIPS."""
    change = Change(networks=frozenset({ip_network("10.5.2.0/24")}), alone=alone)
    [only] = [parse(each) for _, each in _list(parse(set_peers("wg", {key(2): change}), 4)[8])]
    assert only.keys() == {1, 3, 9}
    assert only.number(3) == flags
    assert _networks(only[9]) == {(ip_address("10.5.2.0").packed, 24, 2)}


def test_without_a_shared_key_or_a_keepalive_both_are_taken_away():
    [peer] = [parse(each) for _, each in _list(parse(set_peers("wg", {key(2): _plain(None)}), 4)[8])]
    assert (peer[2], peer.number(5), 4 in peer) == (bytes(32), 0, False)
    six = set_peers("wg", {key(2): _plain(Endpoint(ip_address("fd00::2"), 1))})
    [peer] = [parse(each) for _, each in _list(parse(six, 4)[8])]
    assert peer[4] == pack("=H", 10) + b"\0\1" + bytes(4) + ip_address("fd00::2").packed + bytes(4)


def test_what_is_set_is_read_again():
    for endpoint in (PEER.endpoint, Endpoint(ip_address("fd00::2"), 1), None):
        peer = Peer(key=key(2), endpoint=endpoint, psk=PEER.psk, keepalive=25)
        body = set_peers("wg", {key(2): Change(peer=peer, networks=NETWORKS)})
        [sent] = [each for _, each in _list(parse(body, 4)[8])]
        counted = attribute(6, pack("=qq", 1700000000, 5)) + attribute(7, pack("=Q", 70)) + attribute(8, pack("=Q", 80))
        found = device_in([told(private=1, port=7, peers=nest(0, sent, counted))])
        seen = LivePeer(peer=peer, networks=NETWORKS, handshake=1700000000, sent=80, received=70)
        assert found == Device(private=Secret(key(1)), port=7, peers=(seen,))


def test_a_peer_whose_addresses_go_on_in_the_next_part_is_one():
    def part(net: str) -> bytes:
        network = ip_network(net)
        allowed = nest(0, u16(1, 2), attribute(2, network.network_address.packed), attribute(3, b"\x18"))
        return told(peers=nest(0, attribute(1, b"\2" * 32), nest(9, allowed)))

    found = device_in([part("10.5.2.0/24"), part("10.5.3.0/24")])
    assert found.private is None
    [seen] = found.peers
    assert seen.networks == {ip_network("10.5.2.0/24"), ip_network("10.5.3.0/24")}
    assert (seen.peer.psk, seen.handshake) == (None, 0)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_malformed(data: bytes):
    for body in (data, told(peers=data), told(peers=nest(0, data)), told(peers=nest(0, nest(9, nest(0, data))))):
        with suppress(Malformed):
            device_in([body])


@pytest.mark.parametrize("text", ["", "x", key(1)[:-4], key(1) + "AAAA", key(1).replace("=", "!"), "é"])
def test_what_is_no_key(text: str):
    with pytest.raises(ValueError, match=r"base64|bytes"):
        key_bytes(text)


def _list(data: bytes) -> list[tuple[int, bytes]]:
    return list(parse_list(data))


def _networks(data: bytes) -> set[tuple[bytes, int | None, int | None]]:
    return {
        (bytes(each[2]), each.number(3), each.number(1)) for each in map(parse, (value for _, value in _list(data)))
    }


def _plain(endpoint: Endpoint | None) -> Change:
    return Change(peer=Peer(key=key(2), endpoint=endpoint))


class Kernel:
    """Takes what is sent to it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def request(self, message: Message) -> None:
        self.bodies.append(message.body)


def test_a_peer_that_relays_for_thousands_is_told_in_several_messages():
    """An attribute has 64 KiB; and not a single change of all peers was made when one had more."""
    kernel = Kernel()
    many = frozenset(ip_network(f"fd00:{number:x}::/64") for number in range(4096))
    relay = Change(peer=PEER, networks=many, alone=True)
    changes = {
        key(number): Change(peer=replace(PEER, key=key(number)), networks=NETWORKS) for number in range(10, 110)
    } | {PEER.key: relay, key(9): Change(gone=True)}
    InKernel(kernel, 30).set_peers("wg", changes)  # type: ignore[arg-type]
    assert max(map(len, kernel.bodies)) < 1 << 16
    assert len(kernel.bodies) == 6
    [got] = [each for each in device_in(kernel.bodies).peers if each.peer.key == PEER.key]
    assert got.networks == many
    flags = [flag for body in kernel.bodies for each, flag in _flags(body) if each == key_bytes(PEER.key)]
    assert flags == [2, 4, 4, 4], "the first replaces, the others add to what is there"


def _flags(body: bytes) -> list[tuple[bytes, int | None]]:
    peers = [parse(each) for _, each in _list(parse(body, 4)[8])]
    return [(peer[1], peer.number(3)) for peer in peers]
