"""Echoes to the nodes of leases: who answers, with whom pods speak, and what is none of both."""

import asyncio
import itertools
import secrets
import socket
import subprocess
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, ip_address

from tests.kernel.netthread import Namespace, inside, namespace, run
from tests.support.builders import key
from weft.cluster.store import Echo
from weft.daemon.ways import Ways
from weft.desired.tunnels.wireguard import LivePeer, Peer
from weft.model.lease import Lease, LeaseAttrs, WayKind
from weft.model.mesh.effects import TunnelSeen
from weft.model.net import Ip
from weft.wire.icmp import HEADER, REPLY, checksum, marked_request

PEERS = {"first": 1, "there": 2, "silent": 3}
OWN = ip_address("10.9.0.1")
LEASES = {
    name: Lease(
        id=name,
        v4=IPv4Network(f"10.9.{number}.0/24"),
        v6=None,
        attrs=LeaseAttrs(public_ip=IPv4Address(f"192.168.7.{number}")),
    )
    for name, number in PEERS.items()
}


class Wants:
    """A store that has nodes asked, five a second, and remembers what it is told."""

    def __init__(self, names: Sequence[str] = ("there", "silent"), *, size: int = 0) -> None:
        self.size = size
        self.heard: list[tuple[set[str], set[str]]] = []
        self.tunnels: list[int] = []
        self._names = itertools.cycle(names)

    async def next(self) -> Echo:
        await asyncio.sleep(0.2)
        return Echo(lease=LEASES[next(self._names)], kind="vxlan", size=self.size)

    def saw(self, answered: Collection[Echo], active: Collection[str], tunnels: Sequence[TunnelSeen] = ()) -> None:
        self.tunnels.append(len(tunnels))
        assert {echo.size for echo in answered} <= {self.size}
        self.heard.append(({echo.lease.id for echo in answered}, set(active)))

    @property
    def answered(self) -> set[str]:
        return set().union(*(answered for answered, _ in self.heard))

    @property
    def active(self) -> set[str]:
        return set().union(*(active for _, active in self.heard))


def where(lease: Lease, kind: WayKind) -> list[Ip]:
    assert kind == "vxlan"
    return [ip_address(f"10.9.0.{PEERS[lease.id]}")]


def tunnel(other: Namespace) -> None:
    """A vxlan device to both peers, of which one is there; as flannel has it, one entry for each peer."""
    run("ip", "link", "add", "u0", "type", "veth", "peer", "name", "u1", "netns", other.path)
    for number, do in ((1, run), (2, other.run)):
        do("ip", "address", "add", f"192.168.7.{number}/24", "dev", f"u{number - 1}")
        do("ip", "link", "set", f"u{number - 1}", "up")
        do("ip", "link", "add", "v", "type", "vxlan", "id", "1", "dstport", "8472", "nolearning",
           "local", f"192.168.7.{number}", "dev", f"u{number - 1}")  # fmt: skip
        do("ip", "link", "set", "v", "address", f"0a:00:00:00:00:0{number}", "up")
        do("ip", "address", "add", f"10.9.0.{number}/32", "dev", "v")
        do("ip", "address", "add", f"10.9.{number}.0/32", "dev", "v")
        for peer in {1, 2, 3} - {number}:
            do("ip", "neighbour", "add", f"10.9.{peer}.0", "lladdr", f"0a:00:00:00:00:0{peer}", "dev", "v")
            do("bridge", "fdb", "add", f"0a:00:00:00:00:0{peer}", "dev", "v", "dst", f"192.168.7.{peer}")
            for subnet in (f"10.9.0.{peer}", f"10.9.{peer}.0/24"):
                do("ip", "route", "add", subnet, "via", f"10.9.{peer}.0", "dev", "v", "onlink")


async def nothing() -> Mapping[str, LivePeer]:
    return {}


def ways_for(wants: Wants, own: Ip = OWN) -> Ways:
    return Ways(
        wants,
        own=lambda: [("vxlan", own)],
        where=where,
        most=lambda: 1450,
        now=time.monotonic,
        unix=time.time,
        random=secrets.token_bytes,
        tunnels=nothing,
    )


def serve(wants: Wants, seconds: float, *, own: Ip = OWN, pings: str = "") -> None:
    """Ask for so long, while a pod sends packets to an address."""
    ways = ways_for(wants, own)

    async def serving() -> None:
        pod = await asyncio.create_subprocess_exec("ping", "-q", "-i", "0.1", pings, stdout=DEVNULL) if pings else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ways.run()
        if pod:
            pod.terminate()
            await pod.wait()

    asyncio.run(serving())


def test_who_answers_is_told_and_echoes_are_no_traffic_of_pods():
    wants = Wants()

    def work() -> None:
        with namespace() as other:
            tunnel(other)
            serve(wants, 4)

    inside(work)
    assert wants.heard[0] == (set(), set())  # before anything was asked
    assert wants.answered == {"there"}
    assert wants.active == set()


def test_large_echoes_are_answered_if_the_way_takes_them_whole():
    """65535 is what a pod's packet may have, here the device's."""

    def work() -> dict[int, set[str]]:
        found = {}
        with namespace() as other:
            tunnel(other)
            for size in (65535, 1400):
                for limit, rule in (
                    ("free", ""),
                    ("limited", "add rule ip t i udp dport 8472 meta length > 1470 drop"),
                ):
                    wants = Wants(names=("there",), size=size)
                    run("nft", "add table ip t; add chain ip t i { type filter hook output priority 0; }; " + rule)
                    serve(wants, 2)
                    run("nft", "delete table ip t")
                    found[size, limit] = wants.answered
        return found

    there = {"there"}
    assert inside(work) == {
        (65535, "free"): there,
        (65535, "limited"): set(),
        (1400, "free"): there,
        (1400, "limited"): there,
    }


def test_what_a_peer_asks_is_no_traffic_of_pods_either():
    wants, peer_wants = Wants(), Wants(names=("first",))

    def work() -> None:
        with namespace() as other, ThreadPoolExecutor(1) as thread:
            tunnel(other)
            asking = thread.submit(other.do, lambda: serve(peer_wants, 4, own=where(LEASES["there"], "vxlan")[0]))
            serve(wants, 4)
            asking.result()

    inside(work)
    assert peer_wants.answered == {"first"}
    assert wants.active == peer_wants.active == set()


def test_with_whom_pods_speak_is_seen_whether_their_packets_arrive_or_not():
    def work(name: str) -> set[str]:
        wants = Wants()
        with namespace() as other:
            tunnel(other)
            serve(wants, 3, pings=f"10.9.{PEERS[name]}.7")
        return wants.active

    assert inside(lambda: work("there")) == {"there"}
    assert inside(lambda: work("silent")) == {"silent"}


def test_an_address_that_comes_later_is_waited_for():
    wants = Wants()

    def work() -> None:
        with namespace() as other:
            tunnel(other)
            run("ip", "address", "delete", "10.9.0.1/32", "dev", "v")
            add = ["sh", "-c", "sleep 0.5; ip address add 10.9.0.1/32 dev v"]
            with subprocess.Popen(add):  # in this namespace, too
                serve(wants, 4)

    inside(work)
    assert wants.answered == {"there"}


def test_answers_to_numbers_that_nobody_asked_are_none():
    """A machine that guesses: replies with the mark of an echo, and another number."""
    wants = Wants(names=("silent",))

    def work() -> None:
        with namespace() as other:
            tunnel(other)
            other.run("ip", "address", "add", "10.9.0.3/32", "dev", "lo")
            other.run("sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
            run("bridge", "fdb", "replace", "0a:00:00:00:00:03", "dev", "v", "dst", "192.168.7.2")
            run("ip", "neighbour", "replace", "10.9.3.0", "lladdr", "0a:00:00:00:00:02", "dev", "v")
            forged = marked_request(4, 5)
            reply = HEADER.pack(REPLY[4], 0, 0, 5, 1) + forged[HEADER.size :]
            reply = reply[:2] + checksum(reply).to_bytes(2, "big") + reply[4:]

            def send() -> None:
                with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
                    sock.bind(("10.9.0.3", 0))
                    for _ in range(20):
                        sock.sendto(reply, ("10.9.0.1", 0))
                        time.sleep(0.1)

            with ThreadPoolExecutor(1) as thread:
                sending = thread.submit(other.do, send)
                serve(wants, 3)
                sending.result()

    inside(work)
    assert wants.answered == set()


class Flood:
    """A socket that has always one more packet."""

    def __init__(self) -> None:
        self.read = 0

    def recvfrom(self, _room: int) -> tuple[bytes, tuple[str, int]]:
        self.read += 1
        assert self.read < 10_000, "nobody else has his turn"
        return b"", ("10.9.0.2", 0)


def test_a_pod_that_floods_the_address_leaves_others_their_turn():
    flood = Flood()
    ways_for(Wants())._hear(flood, "vxlan", 4)  # type: ignore[arg-type]
    assert flood.read


def test_a_look_at_wireguard_is_told_once():
    """To take in those of 500 peers costs 3 ms, and answers come five times a second."""
    wants = Wants()
    ways = ways_for(wants)
    ways._live = {"": LivePeer(peer=Peer(key=key(2), endpoint=None), networks=frozenset(), handshake=0)}
    with socket.socket() as sock:
        ways._socks["vxlan", 4] = sock
        for _ in range(2):
            ways._tell()
    assert wants.tunnels == [1, 0]
