"""IPv6 packets of the relay of back end udp, and behind the kernel's path, which leaves them alone.

In datagrams of IPv4, and of IPv6 as in a network without IPv4.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address

import pytest

from tests.kernel.test_relay import stream
from tests.support.netns import Netns
from tests.support.relay.relaysite import (
    DEVICE,
    OWN6,
    POD,
    POD6,
    PORT,
    THERE,
    THERE6,
    Site,
    is_right,
    packet,
    packet6,
    words_are_right,
)
from tests.support.weftd import eventually, settled
from weft.forward.control import Change

HEADERS = 48  # IPv6 and UDP
IPV6_MTU_DISCOVER, IPV6_RECVERR, IPV6_HOPLIMIT = 23, 25, 52
SIZES = [*range(3), 17, 999, 1000, -1, -2]  # those below 0: as many less than one more than fits


@pytest.fixture(params=["the relay", "the kernel", "over IPv6"])
def way(request: pytest.FixtureRequest, make_netns: Callable[[], Netns]) -> Site:
    """A node with a relay, or the kernel's own path with a relay behind it, and its peer."""
    over = 6 if "IPv6" in request.param else 4
    return Site(make_netns(), make_netns(), in_kernel=request.param == "the kernel", over=over)


@pytest.fixture(params=[4, 6], ids=["", "over IPv6"])
def relay(request: pytest.FixtureRequest, make_netns: Callable[[], Netns]) -> Site:
    """A node with a relay, and its peer."""
    return Site(make_netns(), make_netns(), over=request.param)


def content_of(site: Site, size: int) -> bytes:
    return os.urandom(size if size >= 0 else site.mtu - HEADERS + 1 + size)


def pod_of(site: Site, port: int = 0) -> socket.socket:
    return site.bound(site.here, socket.SOCK_DGRAM, POD6, port)


class TestOnTheWire:
    """The payload is the complete inner packet, as it is of IPv4."""

    @pytest.mark.parametrize("size", SIZES)
    def test_a_packet_of_a_pod(self, way: Site, size: int):
        content = content_of(way, size)
        pod_of(way).sendto(content, (THERE6, 9))
        got, source = way.peer.recvfrom(1 << 16)
        assert source[:2] == (way.local, PORT)
        assert is_right(got)
        assert got[7] == 63
        assert got[8:40] == b"".join(socket.inet_pton(socket.AF_INET6, each) for each in (POD6, THERE6))
        assert got[HEADERS:] == content

    def test_what_the_kernel_leaves_whole_is_cut(self, way: Site):
        pod = pod_of(way)
        pod.setsockopt(socket.SOL_UDP, 103, 500)  # UDP_SEGMENT
        content = os.urandom(20 * 500 + 123)
        pod.sendto(content, (THERE6, 9))
        datagrams = [way.peer.recv(1 << 16) for _ in range(21)]
        assert all(map(is_right, datagrams))
        assert [len(got) - HEADERS for got in datagrams] == [500] * 20 + [123]
        assert b"".join(got[HEADERS:] for got in datagrams) == content

    def test_what_has_an_extension_header_keeps_it(self, way: Site):
        pod = pod_of(way)
        pod.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
        pod.sendto(b"content", (THERE6, 9))
        got = way.peer.recv(1 << 16)
        assert is_right(got)
        assert (got[6], got[40], got[56:]) == (60, 17, b"content")

    @pytest.mark.parametrize("over", [b"", bytes([0, 0, 1, 4, 0, 0, 0, 0])], ids=["", "an extension header"])
    @pytest.mark.parametrize("size", [0, 1, 1000, -9])
    def test_a_packet_of_a_peer(self, way: Site, size: int, over: bytes):
        pod, content = pod_of(way, 9), content_of(way, size)
        way.peer.sendto(packet6(content, over=over), (way.local, PORT))
        assert pod.recvfrom(1 << 16)[0] == content

    def test_a_packet_of_a_peer_has_one_hop_less(self, way: Site):
        pod = pod_of(way, 9)
        pod.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        way.peer.sendto(packet6(b"x", ttl=20), (way.local, PORT))
        [(_, _, told)] = pod.recvmsg(10, 100)[1]
        assert struct.unpack("=i", told) == (19,)

    def test_packets_of_both_families_that_come_together_stay_apart(self, way: Site):
        pods = {packet: way.bound(way.here, socket.SOCK_DGRAM, POD, 9), packet6: pod_of(way, 9)}
        sizes = (300, 300, 300, 7, 0, 300, 1400, 1400, 1, way.mtu - HEADERS)
        sent = [(make, os.urandom(size)) for size in sizes * 5 for make in (packet6, packet6, packet, packet6)]
        for make, content in sent:
            way.peer.sendto(make(content), (way.local, PORT))
        for each, pod in pods.items():
            contents = [content for make, content in sent if make is each]
            assert [pod.recv(1 << 16) for _ in contents] == contents
        assert way.dropped() == {}


def narrow(site: Site, mtu: int) -> None:
    """Have the way to the peer take so many bytes."""
    if site.overhead == 48:
        site.here.run(f"ip route add {site.remote}/128 dev eth0 mtu lock {mtu}")
    else:
        site.here.run(f"ip route add {site.remote}/32 dev eth0 mtu lock {mtu}")


class TestErrors:
    @pytest.fixture
    def pod(self, way: Site) -> socket.socket:
        """A socket that hears of errors."""
        made = pod_of(way)
        made.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        return made

    def told(self, pod: socket.socket) -> tuple[int, int, int, int, str]:
        """Error number, type, code, further number, and sender of the next error (struct sock_extended_err)."""

        def ask() -> list[tuple[int, int, bytes]]:
            try:
                return pod.recvmsg(0, 512, socket.MSG_ERRQUEUE)[1]
            except BlockingIOError:
                return []

        pod.setblocking(False)
        [(_, _, data)] = eventually(ask)
        number, _, kind, code, _, info = struct.unpack_from("=IBBBBI", data)
        return number, kind, code, info, socket.inet_ntop(socket.AF_INET6, data[24:40])

    def test_a_destination_that_no_peer_has(self, way: Site, pod: socket.socket):
        pod.sendto(b"x", ("fd05:0:0:3::3", 9))
        assert self.told(pod) == (errno.ENETUNREACH, 1, 0, 0, OWN6)
        assert way.dropped() == {"no route": 1}

    def test_a_life_that_ends_here(self, way: Site, pod: socket.socket):
        pod.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 1)
        pod.sendto(b"x", (THERE6, 9))
        assert self.told(pod) == (errno.EHOSTUNREACH, 3, 0, 0, OWN6)
        assert way.dropped() == {"expired": 1}

    def test_a_life_that_ends_with_a_packet_of_a_peer(self, way: Site):
        way.peer.sendto(packet6(b"x", ttl=1), (way.local, PORT))
        got = way.peer.recv(1 << 16)  # what we send of our own goes through us again
        assert (got[6], got[40:42]) == (58, b"\3\0")
        assert got[8:40] == b"".join(socket.inet_pton(socket.AF_INET6, each) for each in (OWN6, THERE6))
        assert words_are_right(got[8:40] + struct.pack(">II", len(got) - 40, 58) + got[40:])
        assert got[48:] == packet6(b"x", ttl=1)
        assert way.dropped() == {"expired": 1}

    def test_a_way_that_is_narrower_than_the_device(self, way: Site, pod: socket.socket):
        narrow(way, 1372 + way.overhead)
        pod.sendto(bytes(1372 - HEADERS + 1), (THERE6, 9))
        assert self.told(pod) == (errno.EMSGSIZE, 2, 0, 1372, OWN6)
        assert way.dropped() == {"too large": 1}
        pod.sendto(bytes(1372 - HEADERS), (THERE6, 9))
        assert is_right(way.peer.recv(1 << 16))

    def test_a_way_that_is_too_narrow_for_ipv6_gets_datagrams_in_fragments(self, way: Site, pod: socket.socket):
        """RFC 8200 section 5: 1280 bytes fit everywhere, and nobody is told less."""
        narrow(way, 1000 if way.overhead == 28 else 1280)
        content = os.urandom(1280 - HEADERS)
        pod.sendto(content, (THERE6, 9))
        assert way.peer.recv(1 << 16)[HEADERS:] == content
        pod.sendto(content + b"x", (THERE6, 9))
        assert self.told(pod) == (errno.EMSGSIZE, 2, 0, 1280, OWN6)
        assert way.dropped() == {"too large": 1}

    def test_no_more_than_some_in_a_second(self, way: Site):
        pod = pod_of(way)
        for _ in range(400):
            pod.sendto(b"x", ("fd05:0:0:3::3", 9))
        eventually(lambda: way.dropped() == {"no route": 400})
        told = int(way.here.run("nstat -asz Icmp6InDestUnreachs").split()[-2])
        assert 0 < told <= 200  # a second may end meanwhile


BROKEN = {
    "too short": packet6(b"")[:39],
    "a length beyond the datagram": packet6(b"x" * 50)[:-1],
    "no version": b"\x70" + packet6(b"")[1:],
}
LOCAL_ADDRESSES = {
    "link-local": {"source": "fe80::1"},
    "to a link-local one": {"destination": "fe80::1"},
    "multicast": {"destination": "ff0e::1"},
    "from multicast": {"source": "ff0e::1"},
    "none": {"source": "::"},
    "loopback": {"destination": "::1"},
    "one of IPv4": {"source": "::ffff:10.5.2.2"},
}


class TestDropped:
    @pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
    def test_what_is_no_packet(self, way: Site, data: bytes):
        pod = pod_of(way, 9)
        way.peer.sendto(data, (way.local, PORT))
        way.peer.sendto(packet6(b"last"), (way.local, PORT))
        assert pod.recv(100) == b"last"
        assert way.dropped() == {"malformed": 1}

    def test_what_an_unknown_address_sends(self, way: Site):
        pod = pod_of(way, 9)
        way.bound(way.there, socket.SOCK_DGRAM, way.stranger, PORT).sendto(packet6(b"strange"), (way.local, PORT))
        way.peer.sendto(packet6(b"known"), (way.local, PORT))
        assert pod.recv(100) == b"known"
        eventually(lambda: way.dropped() == {"unknown peer": 1})

    @pytest.mark.parametrize("addresses", LOCAL_ADDRESSES.values(), ids=LOCAL_ADDRESSES.keys())
    def test_what_means_nothing_on_another_node(self, relay: Site, addresses: dict[str, str]):
        pod, before = pod_of(relay, 9), self.local(relay)
        errors = relay.here.run("nstat -asz Icmp6OutErrors Icmp6OutDestUnreachs Icmp6OutTimeExcds")
        relay.peer.sendto(packet6(b"local", ttl=1, **addresses), (relay.local, PORT))
        relay.peer.sendto(packet6(b"last"), (relay.local, PORT))
        assert pod.recv(100) == b"last"
        assert self.local(relay) > before
        assert relay.dropped() == {}
        assert relay.here.run("nstat -asz Icmp6OutErrors Icmp6OutDestUnreachs Icmp6OutTimeExcds") == errors

    def test_what_a_kernel_says_on_each_device_goes_nowhere(self, relay: Site):
        relay.call.change([Change(IPv6Network("::/0"), ip_address(relay.remote))])
        pod, before = pod_of(relay), self.local(relay)
        pod.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 9)
        device = relay.here.call(lambda: socket.if_nametoindex(DEVICE))
        pod.sendto(b"to all", ("ff02::1", 9, 0, device))
        eventually(lambda: self.local(relay) > before)
        pod.sendto(b"to one", (THERE6, 9))
        assert relay.peer.recv(100)[HEADERS:] == b"to one"
        assert relay.dropped() == {}

    def local(self, site: Site) -> int:
        return site.call.state().dropped["local address"]


class TestControl:
    def test_the_longest_prefix_wins(self, relay: Site):
        stranger = relay.bound(relay.there, socket.SOCK_DGRAM, relay.stranger, PORT)
        pod = pod_of(relay)
        net, host, other = map(IPv6Network, ("fd05:0:0:2::/64", f"{THERE6}/128", "fd05::/60"))
        relay.call.change([Change(host, ip_address(relay.stranger)), Change(other, ip_address(relay.remote))])
        pod.sendto(b"one", (THERE6, 9))
        assert stranger.recv(100)[HEADERS:] == b"one"
        relay.call.change([Change(host, None)])
        pod.sendto(b"two", (THERE6, 9))
        assert relay.peer.recv(100)[HEADERS:] == b"two"
        relay.call.change([Change(net, ip_address(relay.stranger))])
        pod.sendto(b"three", (THERE6, 9))
        assert stranger.recv(100)[HEADERS:] == b"three"
        there = {
            net: ip_address(relay.stranger),
            other: ip_address(relay.remote),
            IPv4Network("10.5.2.0/24"): ip_address(relay.remote),
        }
        assert relay.call.routes() == there
        relay.call.clear()
        assert relay.call.routes() == {}

    def test_no_route_of_one_family_is_taken_for_the_other(self, relay: Site):
        relay.call.clear()
        relay.call.change([Change(IPv6Network("::/0"), ip_address(relay.remote))])
        relay.bound(relay.here, socket.SOCK_DGRAM, POD).sendto(b"x", (THERE, 9))
        eventually(lambda: relay.dropped() == {"no route": 1})
        relay.call.clear()
        relay.call.change([Change(IPv4Network("0.0.0.0/0"), ip_address(relay.remote))])
        pod_of(relay).sendto(b"x", (THERE6, 9))
        eventually(lambda: relay.dropped() == {"no route": 2})


@pytest.fixture
def naive(way: Site) -> Iterator[Site]:
    """The peer has a relay that sends one packet after the other."""
    way.peer.close()
    command = [
        sys.executable,
        "-m",
        "tests.kernel.naiverelay",
        "tun0",
        way.remote,
        str(PORT),
        f"fd05:0:0:1::/64={way.local}",
    ]
    child = way.there.popen(command, stdout=-1)
    assert child.stdout
    assert child.stdout.readline() == b"ready\n"
    way.there.run(
        f"ip link set tun0 mtu {way.mtu} up; ip addr add {THERE6}/128 dev lo nodad; ip link set lo up; "
        f"ip route replace fd05:0:0:1::/64 dev tun0 src {THERE6}"
    )
    settled(way.there, THERE6)  # sooner packets for it find no route
    yield way
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize("direction", ["from it", "to it"])
def test_streams_through_a_naive_relay(naive: Site, direction: str):
    ends = [(naive.here, POD6), (naive.there, THERE6)]
    stream(naive, *(ends if direction == "from it" else reversed(ends)))


def test_a_stream_whose_segments_are_a_little_too_long_for_the_way(naive: Site):
    narrow(naive, naive.mtu + naive.overhead - 10)
    stream(naive, (naive.here, POD6), (naive.there, THERE6))
    assert naive.dropped()["too large"] > 0


def test_streams_between_two_of_ours(relay: Site):
    """Both cut and join."""
    other = relay.second()
    stream(relay, (relay.here, POD6), (relay.there, THERE6))
    stream(relay, (relay.there, THERE6), (relay.here, POD6))
    assert relay.dropped() == {}
    assert other.state().received[0] > 0
