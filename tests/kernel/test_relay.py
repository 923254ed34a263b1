"""The relay of back end udp: what is on the wire, what comes out, and what is dropped."""

import errno
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from tests.support.netns import Netns
from tests.support.relay import upstreamrelay
from tests.support.relay.relaysite import (
    DEVICE,
    KNOWN,
    LOCAL,
    MTU,
    PEER,
    POD,
    PORT,
    STRANGER,
    THERE,
    Site,
    is_right,
    packet,
    refuse,
    relay,
    way,
)
from tests.support.weftd import eventually
from weft.forward import build, start
from weft.forward.control import Call, Change

__all__ = ["relay", "way"]

UDP_HEADERS = 28
IP_RECVERR = 11
SIZES = [*range(4), 17, 100, 999, 1000, MTU - UDP_HEADERS - 1, MTU - UDP_HEADERS]


@pytest.mark.spec("flannel.md §6.5/wire-format")
class TestOnTheWire:
    """flannel.md §6.5: the payload is the complete inner packet, nothing else; the source port is the bound one."""

    @pytest.mark.parametrize("size", SIZES)
    def test_a_packet_of_a_pod(self, way: Site, size: int):
        peer = way.peer
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD)
        content = os.urandom(size)
        pod.sendto(content, (THERE, 9))
        got, source = peer.recvfrom(1 << 16)
        assert source == (LOCAL, PORT)
        assert is_right(got)
        assert got[8] == 63
        assert got[12:20] == socket.inet_aton(POD) + socket.inet_aton(THERE)
        assert got[UDP_HEADERS:] == content

    def test_what_the_kernel_leaves_whole_is_cut(self, way: Site):
        peer = way.peer
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD)
        pod.setsockopt(socket.SOL_UDP, 103, 500)  # UDP_SEGMENT
        content = os.urandom(20 * 500 + 123)
        pod.sendto(content, (THERE, 9))
        datagrams = [peer.recv(1 << 16) for _ in range(21)]
        assert all(map(is_right, datagrams))
        assert [len(got) - UDP_HEADERS for got in datagrams] == [500] * 20 + [123]
        assert b"".join(got[UDP_HEADERS:] for got in datagrams) == content

    @pytest.mark.parametrize("size", SIZES)
    def test_a_packet_of_a_peer(self, way: Site, size: int):
        peer, pod = way.peer, way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        content = os.urandom(size)
        peer.sendto(packet(content), (LOCAL, PORT))
        assert pod.recvfrom(1 << 16) == (content, (THERE, 7))

    def test_a_packet_of_a_peer_has_one_hop_less(self, way: Site):
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        pod.setsockopt(socket.SOL_IP, 12, 1)  # IP_RECVTTL
        way.peer.sendto(packet(b"x", ttl=20), (LOCAL, PORT))
        [(_, _, told)] = pod.recvmsg(10, 100)[1]
        assert struct.unpack("=i", told) == (19,)

    def test_packets_that_come_together_stay_apart(self, way: Site):
        """Some are joined on their way to the kernel, whatever comes between."""
        peer, pod = way.peer, way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        contents = [os.urandom(size) for size in (300, 300, 300, 7, 0, 300, 1400, 1400, 1, 1444) * 10]
        for content in contents:
            peer.sendto(packet(content), (LOCAL, PORT))
        assert [pod.recv(1 << 16) for _ in contents] == contents
        assert way.dropped() == {}

    def test_a_datagram_may_have_bytes_behind_the_packet(self, way: Site):
        peer, pod = way.peer, way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        peer.sendto(packet(b"content") + b"behind", (LOCAL, PORT))
        assert pod.recv(100) == b"content"


class TestErrors:
    @pytest.fixture
    def pod(self, way: Site) -> socket.socket:
        """A socket that hears of errors."""
        made = way.bound(way.here, socket.SOCK_DGRAM, POD)
        made.setsockopt(socket.SOL_IP, IP_RECVERR, 1)
        return made

    def told(self, pod: socket.socket) -> tuple[int, int, int, int]:
        """Error number, type, code and further number of the next error (struct sock_extended_err)."""

        def ask() -> list[tuple[int, int, bytes]]:
            try:
                return pod.recvmsg(0, 512, socket.MSG_ERRQUEUE)[1]
            except BlockingIOError:
                return []

        pod.setblocking(False)
        [(_, _, data)] = eventually(ask)
        number, _, kind, code, _, info = struct.unpack_from("=IBBBBI", data)
        return number, kind, code, info

    @pytest.mark.spec("flannel.md §6.5/unreachable")
    def test_a_destination_that_no_peer_has(self, way: Site, pod: socket.socket):
        pod.sendto(b"x", ("10.5.3.3", 9))
        assert self.told(pod)[:3] == (errno.ENETUNREACH, 3, 0)
        eventually(lambda: way.dropped() == {"no route": 1})

    @pytest.mark.spec("flannel.md §6.5/ttl")
    def test_a_life_that_ends_here(self, way: Site, pod: socket.socket):
        pod.setsockopt(socket.SOL_IP, socket.IP_TTL, 1)
        pod.sendto(b"x", (THERE, 9))
        assert self.told(pod)[:3] == (errno.EHOSTUNREACH, 11, 0)
        eventually(lambda: way.dropped() == {"expired": 1})

    def test_a_life_that_ends_with_a_packet_of_a_peer(self, way: Site):
        peer = way.peer
        peer.sendto(packet(b"x", ttl=1), (LOCAL, PORT))
        got = peer.recv(1 << 16)  # what we send of our own goes through us again
        assert got[9] == 1
        assert got[20:22] == b"\x0b\0"
        assert got[16:20] == socket.inet_aton(THERE)
        assert got[28:48] == packet(b"x", ttl=1)[:20]
        eventually(lambda: way.dropped() == {"expired": 1})

    def test_a_way_that_is_narrower_than_the_device(self, way: Site, pod: socket.socket):
        way.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock 1000")
        pod.setsockopt(socket.SOL_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO
        pod.sendto(bytes(1000 - 2 * UDP_HEADERS + 1), (THERE, 9))
        assert self.told(pod) == (errno.EMSGSIZE, 3, 4, 1000 - UDP_HEADERS)
        eventually(lambda: way.dropped() == {"too large": 1})

    def test_a_packet_that_may_be_cut_passes_the_narrow_way(self, way: Site, pod: socket.socket):
        way.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock 1000")
        pod.setsockopt(socket.SOL_IP, 10, 0)  # IP_PMTUDISC_DONT
        content = os.urandom(1200)
        pod.sendto(content, (THERE, 9))
        assert way.peer.recv(1 << 16)[UDP_HEADERS:] == content

    def test_a_packet_that_is_refused_twice_is_counted(
        self, make_netns: Callable[[], Netns], monkeypatch: pytest.MonkeyPatch
    ):
        refuse(monkeypatch, "setsockopt", 0)  # so that it cannot have its datagrams cut
        way = Site(make_netns(), make_netns())
        way.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock 1000")
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD)
        pod.setsockopt(socket.SOL_IP, 10, 0)  # IP_PMTUDISC_DONT
        pod.sendto(bytes(1200), (THERE, 9))
        eventually(lambda: way.dropped() == {"not sent": 1})

    def test_threads_that_have_datagrams_cut_at_once_lose_none(
        self, make_netns: Callable[[], Netns], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        way = Site(make_netns(), make_netns())
        way.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock 1000")
        pods = [way.bound(way.here, socket.SOCK_DGRAM, POD) for _ in range(16)]
        for pod in pods:
            pod.setsockopt(socket.SOL_IP, 10, 0)  # IP_PMTUDISC_DONT
            pod.setsockopt(socket.SOL_UDP, 103, 1200)  # UDP_SEGMENT
        for given in range(640, 192_001, 640):
            for pod in pods:
                pod.sendto(bytes(40 * 1200), (THERE, 9))
            eventually(lambda given=given: way.call.state().sent[0] + sum(way.dropped().values()) == given)
        assert way.dropped() == {}

    def test_no_more_than_some_in_a_second(self, way: Site):
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD)
        before = way.here.run("nstat -asz IcmpInDestUnreachs")
        for _ in range(400):
            pod.sendto(b"x", ("10.5.3.3", 9))
        eventually(lambda: way.dropped() == {"no route": 400})
        told = int(way.here.run("nstat -asz IcmpInDestUnreachs").split()[-2])
        assert "IcmpInDestUnreachs" in before
        assert 0 < told <= 200  # a second may end meanwhile

    def test_many_errors_of_one_kind_hold_no_other_back(self, way: Site, pod: socket.socket):
        """A pod that asks for what is not there must not hide from others that their packets are too large."""
        asking = way.bound(way.here, socket.SOCK_DGRAM, POD)
        for _ in range(400):
            asking.sendto(b"x", ("10.5.3.3", 9))
        way.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock 1000")
        pod.setsockopt(socket.SOL_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO
        pod.sendto(bytes(1000 - 2 * UDP_HEADERS + 1), (THERE, 9))
        assert self.told(pod) == (errno.EMSGSIZE, 3, 4, 1000 - UDP_HEADERS)


BROKEN = {
    "nothing": b"",
    "too short": packet(b"")[:19],
    "no version": b"\x70" + packet(b"")[1:],
    "a header that is too short": bytes([0x44]) + packet(b"")[1:],
    "a header beyond the packet": bytes([0x4F]) + packet(b"")[1:],
    "a length beyond the datagram": packet(b"x" * 50)[:-1],
    "a wrong checksum": packet(b"", ttl=64)[:8] + b"\x3f" + packet(b"")[9:],
}


class TestDropped:
    @pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
    def test_what_is_no_packet(self, way: Site, data: bytes):
        way.peer.sendto(data, (LOCAL, PORT))
        way.peer.sendto(packet(b"last"), (LOCAL, PORT))
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        way.peer.sendto(packet(b"last"), (LOCAL, PORT))
        assert pod.recv(100) == b"last"
        # By the kernel's path the right ones may come first.
        eventually(lambda: way.dropped() == ({"malformed": 1} if data else {}))

    def test_what_an_unknown_address_sends(self, way: Site):
        """Q 12.3.20: with upstream anybody can inject packets."""
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        stranger = way.bound(way.there, socket.SOCK_DGRAM, STRANGER, PORT)
        stranger.sendto(packet(b"strange"), (LOCAL, PORT))
        way.peer.sendto(packet(b"known"), (LOCAL, PORT))
        assert pod.recv(100) == b"known"
        eventually(lambda: way.dropped() == {"unknown peer": 1})

    def test_a_wrong_checksum_of_the_content_is_left_to_the_kernel(self, way: Site):
        pod = way.bound(way.here, socket.SOCK_DGRAM, POD, 9)
        broken = bytearray(packet(b"content"))
        broken[-1] ^= 1
        way.peer.sendto(broken, (LOCAL, PORT))
        way.peer.sendto(packet(b"right"), (LOCAL, PORT))
        assert pod.recv(100) == b"right"


@pytest.mark.spec("flannel.md §6.5/control")
class TestControl:
    def test_the_longest_prefix_wins(self, relay: Site):
        stranger = relay.bound(relay.there, socket.SOCK_DGRAM, STRANGER, PORT)
        pod = relay.bound(relay.here, socket.SOCK_DGRAM, POD)
        peer = relay.peer
        net, host = IPv4Network("10.5.2.0/24"), IPv4Network("10.5.2.2/32")
        relay.call.change([Change(host, IPv4Address(STRANGER))])
        pod.sendto(b"one", (THERE, 9))
        assert stranger.recv(100)[UDP_HEADERS:] == b"one"
        relay.call.change([Change(host, None)])
        pod.sendto(b"two", (THERE, 9))
        assert peer.recv(100)[UDP_HEADERS:] == b"two"
        relay.call.change([Change(net, IPv4Address(STRANGER))])
        pod.sendto(b"three", (THERE, 9))
        assert stranger.recv(100)[UDP_HEADERS:] == b"three"
        assert relay.call.routes() == {**KNOWN, net: IPv4Address(STRANGER)}
        relay.call.clear()
        assert relay.call.routes() == {}

    def test_five_thousand_routes(self, relay: Site):
        base = int(IPv4Address("10.64.0.0"))
        routes = {IPv4Network((base + (n << 8), 24)): IPv4Address((172 << 24) + n) for n in range(5000)}
        relay.call.change(Change(net, via) for net, via in routes.items())
        assert relay.call.routes() == routes | KNOWN
        assert relay.call.state().generation == 5002
        relay.call.change(Change(net, None) for net in list(routes)[::2])
        assert relay.call.routes() == dict(list(routes.items())[1::2]) | KNOWN
        relay.bound(relay.here, socket.SOCK_DGRAM, POD).sendto(b"still", (THERE, 9))
        assert relay.peer.recv(100)[UDP_HEADERS:] == b"still"

    def test_what_it_tells_of_itself(self, relay: Site):
        peer, pod = relay.peer, relay.bound(relay.here, socket.SOCK_DGRAM, POD, 9)
        for _ in range(3):
            pod.sendto(b"12345", (THERE, 9))
            peer.recv(100)
        peer.sendto(packet(b"123456789"), (LOCAL, PORT))
        pod.recv(100)
        state = relay.call.state()
        assert (state.pid, state.about) == (relay.pid, "a test")
        assert (state.sent, state.received) == ((3, 3 * 33), (1, 37))
        assert relay.call.peers() == {IPv4Address(PEER): ((3, 99), (1, 37))}

    def test_nonsense_costs_its_connection_alone(self, relay: Site):
        for nonsense in (b"X\0\0\0", b"S", b"C\0\0\0" + b"\1\x81" + bytes(34), b"C\0\0\0x", b"C\0\0\0\7" + bytes(35)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(relay.socket))
                connection.settimeout(60)
                connection.send(nonsense)
                answer = connection.recv(100)
                assert answer[:4] in (b"", struct.pack("=I", errno.EINVAL))
        assert relay.call.routes() == KNOWN

    @pytest.mark.parametrize("when", ["before the answer", "before it was read"])
    def test_who_goes_with_a_question_open_costs_nothing(self, relay: Site, when: str):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(relay.socket))
            relay.call.state()  # the connection has been accepted
            if when == "before the answer":
                os.kill(relay.pid, signal.SIGSTOP)
            connection.send(b"S\0\0\0")
            if when == "before it was read":
                select.select([connection], [], [])
        if when == "before the answer":
            os.kill(relay.pid, signal.SIGCONT)
        assert relay.call.state().pid == relay.pid
        with closing(relay.connect()) as another:
            assert another.state().pid == relay.pid

    def test_counts_of_more_peers_than_a_message_holds(self, relay: Site):
        many = {IPv4Address("10.64.0.0") + number for number in range(10_000)}
        relay.call.change(Change(IPv4Network(int(peer) + (1 << 24)), peer) for peer in many)
        assert relay.call.peers() == dict.fromkeys([*many, IPv4Address(PEER)], ((0, 0), (0, 0)))

    def test_another_user_is_not_answered(self, relay: Site):
        relay.socket.parent.chmod(0o755)
        relay.socket.chmod(0o777)

        def ask() -> None:
            os.setuid(65534)
            call = Call.to(relay.socket)
            assert call
            with pytest.raises(OSError, match=r"cannot be read|reset|Broken pipe"):
                call.state()

        assert relay.here.fork(ask) == 0

    def test_it_has_no_rights(self, relay: Site):
        status = Path(f"/proc/{relay.pid}/status").read_text()
        held = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
        assert [held[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")] == ["0" * 16] * 4

    def test_it_ends_when_it_is_told(self, relay: Site):
        relay.call.end()
        assert relay.ended() == 0
        assert Call.to(relay.socket) is None

    def test_it_is_found_without_its_socket(self, relay: Site):
        relay.second()
        relay.there.call(start.end_all)
        assert relay.call.state().pid == relay.pid, "one of another network namespace"
        relay.here.call(start.end_all)
        assert relay.ended() == -signal.SIGKILL

    def test_it_ends_with_its_device(self, relay: Site):
        relay.here.run(f"ip link del {DEVICE}")
        assert relay.ended() == 0
        assert Call.to(relay.socket) is None


@pytest.fixture(params=["the specification's", "upstream's"])
def naive(way: Site, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The peer has a relay that was written from the specification, or upstream's own."""
    way.peer.close()
    if request.param == "upstream's":
        program = upstreamrelay.built()
        if program is None:
            pytest.skip(f"{upstreamrelay.HINT} builds upstream's relay, on an x86-64 machine")
        command = [str(program), "tun0", PEER, str(PORT), "10.5.1.0", LOCAL]
    else:
        command = [sys.executable, "-m", "tests.kernel.naiverelay", "tun0", PEER, str(PORT), f"10.5.1.0/24={LOCAL}"]
    child = way.there.popen(command, stdout=-1)
    assert child.stdout
    assert child.stdout.readline() == b"ready\n"
    way.there.run(
        f"ip link set tun0 mtu {MTU} up; ip addr add {THERE}/32 dev lo; "
        f"ip route replace 10.5.1.0/24 dev tun0 src {THERE}"
    )
    yield way
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize("direction", ["from it", "to it"])
def test_streams_through_a_naive_relay(naive: Site, direction: str):
    """What the kernel hands over whole is cut right, and what is joined comes out as it was."""
    ends = [(naive.here, POD), (naive.there, THERE)]
    stream(naive, *(ends if direction == "from it" else reversed(ends)))


def test_a_stream_whose_segments_are_a_little_too_long_for_the_way(naive: Site):
    naive.here.run(f"ip route add {PEER}/32 dev eth0 mtu lock {MTU + UDP_HEADERS - 10}")
    stream(naive, (naive.here, POD), (naive.there, THERE))
    assert naive.dropped()["too large"] > 0


def stream(naive: Site, one: tuple[Netns, str], other: tuple[Netns, str]) -> None:
    """Send random data over TCP from one end to the other, and compare digests."""
    (here, source), (there, destination) = one, other
    listener = naive.bound(there, socket.SOCK_STREAM, destination, 7777)
    listener.listen()
    sent, received = hashlib.sha256(), hashlib.sha256()

    def receive() -> None:
        connection, _ = listener.accept()
        connection.settimeout(60)
        with connection:
            while data := connection.recv(1 << 20):
                received.update(data)

    with ThreadPoolExecutor() as pool:
        done = pool.submit(receive)
        stream = naive.bound(here, socket.SOCK_STREAM, source)
        stream.settimeout(60)
        stream.connect((destination, 7777))
        for _ in range(16):
            data = os.urandom(1 << 20)
            sent.update(data)
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        done.result(60)
    assert received.digest() == sent.digest()


# x86-64's numbers of system calls, as a relay that was taken over would use them, with what is tried.
FORBIDDEN = {
    "open": (2, b"/etc/hostname", 0, 0),
    "openat": (257, -100, b"/etc/hostname", 0),
    "creat": (85, b"/tmp/weft-test-taken-over", 0o600, 0),
    "execve": (59, b"/bin/true", 0, 0),
    "fork": (57, 0, 0, 0),
    "kill": (62, 1, 0, 0),
    "ptrace": (101, 0, 0, 0),
    "unix socket": (41, 1, 1, 0),
    "packet socket": (41, 17, 3, 0),
    "stream": (41, 2, 1, 0),
    "datagrams": (41, 2, 2, 0),
    "datagrams of IPv6": (41, 10, 2, 0),
    "two sockets": (53, 1, 1, 0),
    "listen": (50, 0, 1, 0),
    "bind": (49, 0, 0, 0),
    "a file by a handle": (304, -100, 0, 0),
    "a path by io_uring": (425, 1, 0, 0),
    "another root": (161, b"/tmp", 0, 0),
    "rename": (82, b"/tmp/weft-test-a", b"/tmp/weft-test-b", 0),
    "unlink": (87, b"/tmp/weft-test-taken-over", 0, 0),
    "signal a thread": (234, 1, 1, 0),
    "signal by a descriptor": (424, 0, 0, 0),
    "another's memory": (311, 1, 0, 0),
    "another's descriptors": (438, 0, 0, 0),
    "rights": (126, 0, 0, 0),
    "memory for a program": (9, 0, 4096, 7),
    "another namespace": (308, 3, 0, 0),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86-64's")
def test_a_relay_that_is_taken_over_can_do_nothing(tmp_path: Path):
    """The filter of `confine.c`, in a program that tries what it shall refuse, in each thread."""
    tries = "".join(
        "    refused({});\n".format(
            ", ".join(f'"{each.decode()}"' if isinstance(each, bytes) else str(each) for each in args)
        )
        for args in FORBIDDEN.values()
    )
    source = tmp_path / "taken.c"
    source.write_text(
        "#include <errno.h>\n#include <pthread.h>\n#include <sys/mman.h>\n#include <sys/socket.h>\n"
        '#include <sys/syscall.h>\n#include <unistd.h>\n#include "relay.h"\n'
        "static int got;\nstatic pthread_barrier_t done;\n"
        "#define refused(...) (errno = 0, syscall(__VA_ARGS__, 0, -1, 0) == -1 && errno == EPERM ? 0 : got++)\n"
        f"static void *try(void *_) {{\n    if (_) pthread_barrier_wait(&done);\n{tries}    return _; }}\n"
        "int main(void) {\n    pthread_t other;\n    pthread_barrier_init(&done, 0, 2);\n"
        "    pthread_create(&other, 0, try, &other);\n    if (drop_rights() || !confine()) return 100;\n"
        "    pthread_barrier_wait(&done);\n    pthread_join(other, 0);\n    try(0);\n"
        "    if (mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 102;\n"
        "    return got; }\n"
    )
    there = build.PROGRAM.source
    command = ["musl-gcc", "-D_GNU_SOURCE", "-pthread", "-static", f"-I{there}", source, there / "confine.c", "-o"]
    subprocess.run([*command, tmp_path / "taken"], check=True)
    assert subprocess.run([tmp_path / "taken"], check=False).returncode == 0


def test_a_relay_is_confined(way: Site):
    status = Path(f"/proc/{way.pid}/status").read_text()
    assert "CapPrm:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status


def test_a_relay_that_the_kernel_does_not_confine_says_so(
    make_netns: Callable[[], Netns], monkeypatch: pytest.MonkeyPatch
):
    assert Site(make_netns(), make_netns()).call.state().confined
    refuse(monkeypatch, "seccomp", errno.EPERM)
    way = Site(make_netns(), make_netns())
    assert not way.call.state().confined
    pod = way.bound(way.here, socket.SOCK_DGRAM, POD)
    pod.sendto(b"x", (THERE, 9))
    assert way.peer.recv(1 << 16)[UDP_HEADERS:] == b"x"


@pytest.mark.parametrize("compiler", ["gcc", "clang", "musl-gcc"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_no_compiler_has_a_warning(tmp_path: Path, compiler: str, level: str):
    command = ["make", "-B", "-s", f"OUT={tmp_path}/relay", f"CC={compiler}", f"CFLAGS_EXTRA={level}", "LDFLAGS="]
    done = subprocess.run(command, cwd=build.PROGRAM.source, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "relay"], check=False).returncode == 2, "called wrongly, it says so"


def test_without_a_compiler_there_is_no_program_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.PROGRAM.main() == 0
    assert "there is no relay, and no back end udp. On Debian: apt-get install musl-tools" in capsys.readouterr().out
