"""What a packet costs beside policies: from elsewhere to a pod, and between two pods of a bridge.

The whole way of 64 bytes of UDP is measured, sender and receiver included: what is best of many short bursts, by turns,
since others use the machine too.
"""

import ctypes
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Final, Self

from benchmarks.figures import Figure
from benchmarks.policyworld import PORT, SENDER, TARGET, enforced, ip_elsewhere, ip_here
from benchmarks.throughput import gbits
from benchmarks.world import until
from tests.support.netns import Netns, wire

ROUNDS: Final = 7
BURSTS: Final = 300  # each of less than a millisecond, in which nobody else may have come between
BURST: Final = 256
STREAMS: Final = 5
TRACKING: Final = (
    "table inet one { chain c { type filter hook forward priority 0; ct state established,related accept; }; }"
)
PEER: Final = "connection tracking and one rule"
BESIDE: Final = TARGET + 1  # the second pod here
COUNTS: Final = (0, 1000, 10_000)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr (sys/socket.h)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_uint64),  # an int, and what pads it
        ("sent", ctypes.c_uint32),
    )


class Flow:
    """64 bytes again and again from one socket to another."""

    def __init__(self, source: Netns, source_ip: str, target: Netns, target_ip: str) -> None:
        self._target = target.call(lambda: _bound(target_ip, PORT))
        self._source = source.call(lambda: _bound(source_ip, 0))
        self._source.connect((target_ip, PORT))
        self._data = ctypes.create_string_buffer(64)
        vector = _Vector(ctypes.cast(self._data, ctypes.c_void_p), 64)
        one = _Message(vectors=ctypes.pointer(vector), count=1)
        self._messages = (_Message * BURST)(*[one] * BURST)
        self._keep = vector, one
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._source.send(b"first")
        self._first = self._target.recvfrom(64)[1]
        self._target.settimeout(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()

    def answer(self) -> None:
        """From now on packets are those of an open connection."""
        self._target.sendto(b"answer", self._first)
        self._source.recv(64)

    def best(self) -> float:
        """Nanoseconds a packet."""
        found = []
        for _ in range(BURSTS):
            start = time.perf_counter()
            if self._libc.sendmmsg(self._source.fileno(), self._messages, BURST, 0) != BURST:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            found.append((time.perf_counter() - start) / BURST * 1e9)
            with suppress(BlockingIOError):
                while self._target.recv(64):
                    pass
        return min(found)


def _bound(ip: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    made.settimeout(5)
    made.bind((ip, port))
    return made


class Node:
    """A node with two pods on a bridge, `TARGET` and `BESIDE`, and `SENDER` elsewhere."""

    def __init__(self, stack: ExitStack) -> None:
        self.netns, self.elsewhere, *self.pods = (stack.enter_context(Netns()) for _ in range(4))
        self.netns.bridge("cni0", "10.244.1.1/24")
        wire(self.netns, self.elsewhere)
        self.netns.run("echo 1 > /proc/sys/net/ipv4/ip_forward; ip addr add 172.31.0.1/24 dev eth0")
        self.netns.run("ip route add 10.244.0.0/16 via 172.31.0.2")
        self.elsewhere.run(f"ip addr add 172.31.0.2/24 dev eth0; ip addr add {ip_elsewhere(SENDER)}/32 dev lo")
        self.elsewhere.run("ip route add 10.244.1.0/24 via 172.31.0.1")
        for pod, number in zip(self.pods, (TARGET, BESIDE), strict=True):
            wire(self.netns, pod, names=(f"veth{number}", "eth0"))
            self.netns.run(f"ip link set veth{number} master cni0")
            pod.run(f"ip addr add {ip_here(number)}/24 dev eth0; ip route add default via 10.244.1.1")

    def from_elsewhere(self) -> Flow:
        return Flow(self.elsewhere, str(ip_elsewhere(SENDER)), self.pods[0], str(ip_here(TARGET)))

    def beside(self) -> Flow:
        return Flow(self.pods[0], str(ip_here(TARGET)), self.pods[1], str(ip_here(BESIDE)))

    def stream(self) -> float:
        """Gbit/s of TCP from elsewhere."""
        target = str(ip_here(TARGET))
        client = [
            "iperf3",
            "-J",
            "-C",
            "cubic",
            "-t",
            "1",
            "-p",
            str(PORT),
            "-B",
            str(ip_elsewhere(SENDER)),
            "-c",
            target,
        ]
        return gbits(lambda: self.elsewhere.run(client))

    def serve(self) -> None:
        self.pods[0].popen(["iperf3", "-s", "-p", str(PORT)], stdout=subprocess.DEVNULL)
        until(lambda: f":{PORT}" in self.pods[0].run("ss -ltn"), "iperf3")


async def _nothing_more(*_: object) -> None: ...


def measure() -> list[Figure]:
    with ExitStack() as stack:
        tracking = Node(stack)
        tracking.netns.run(["nft", "-f", "-"], input=TRACKING)
        nodes = {count: Node(stack) for count in COUNTS}
        for count, node in nodes.items():
            enforced(node.netns, count, _nothing_more)
        unguarded = Node(stack)
        enforced(unguarded.netns, 0, _nothing_more)
        unguarded.netns.run("nft delete table bridge weft-policy")
        flows = {count: stack.enter_context(node.from_elsewhere()) for count, node in {-1: tracking, **nodes}.items()}
        judged = _by_turns(flows)
        for flow in flows.values():
            flow.answer()
        answered = _by_turns(flows)
        beside = _by_turns({-1: stack.enter_context(unguarded.beside()), 0: stack.enter_context(nodes[0].beside())})
        for node in (tracking, nodes[1000]):
            node.serve()
        streams = [(tracking.stream(), nodes[1000].stream()) for _ in range(STREAMS)]
    return [
        *_figures("a judged packet", judged, ratio=1.3, apart=1.1),
        *_figures("a packet of an answered flow", answered, ratio=1.1, apart=1.05),
        Figure(
            what="a packet on one node",
            unit="ns",
            ours=beside[0],
            ratio=1.15,
            peer="without the bridge's table",
            theirs=beside[-1],
        ),
        Figure(
            what="one TCP stream, 1,000 policies",
            unit="Gbit/s",
            ours=[on for _, on in streams],
            ratio=0.97,
            more=True,
            peer=PEER,
            theirs=[off for off, _ in streams],
        ),
    ]


def _by_turns(flows: dict[int, Flow]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {count: [] for count in flows}
    for _ in range(ROUNDS):
        for count, flow in flows.items():
            found[count].append(flow.best())
    return found


def _figures(what: str, found: dict[int, list[float]], *, ratio: float, apart: float) -> list[Figure]:
    """Against the peer, and, by the quickest round of each, against the same with fewer policies.

    The first step is from no policy on the pod to four, the second one adds policies of other pods alone.
    """
    figures = [
        Figure(
            what=f"{what}, {count:,} policies", unit="ns", ours=found[count], ratio=ratio, peer=PEER, theirs=found[-1]
        )
        for count in COUNTS
    ]
    return [
        *figures,
        *(
            Figure(
                what=f"{what}, {count:,} policies",
                unit="ns",
                ours=[min(found[count])],
                ratio=apart,
                peer=f"{other:,} policies",
                theirs=[min(found[other])],
            )
            for other, count in pairwise(COUNTS)
        ),
    ]
