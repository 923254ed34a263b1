"""Back end udp, by the kernel and by the relay: TCP, small packets and pings.

Against upstream's own relay, and against host-gw.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import headers
from benchmarks.figures import Figure
from benchmarks.throughput import ADDRESS, CLIENT, REST, Connect, gbits, served
from benchmarks.world import until
from tests.support.netns import Netns
from tests.support.relay import upstreamrelay
from weft.forward import start
from weft.forward.build import PROGRAM
from weft.forward.control import SOCKET, Call, Change
from weft.forward.kernelpath import Forward, Job, Programs
from weft.kernel import tun

ROUNDS: Final = 5
DEVICE, PORT, MTU = "flannel0", 8285, 1472
PINGS: Final = 300


def measure() -> list[Figure]:
    theirs = upstreamrelay.built() or upstreamrelay.build()
    with (
        served(MTU, _upstreams(theirs)) as in_theirs,
        served(MTU, ours) as in_relay,
        served(MTU, _routed) as in_routed,
        served(MTU, _in_kernel) as in_kernel,
        served(MTU, _cut_at_the_bridge) as in_pieces,
        served(MTU, _in_kernel, bridged=False) as plain_in_kernel,
        served(MTU, _routed, bridged=False) as plain_routed,
        served(MTU, _headers_alone, bridged=False) as plain_headers,
    ):
        kernel, pieces, relay, peer = _in_turns(_gbits, in_kernel, in_pieces, in_relay, in_theirs)
        plain, plain_host_gw, least = _in_turns(_gbits, plain_in_kernel, plain_routed, plain_headers)
        packets, their_packets = _in_turns(_packets, in_relay, in_theirs)
        carried, relayed, routed, their_relayed = _in_turns(_ping, in_kernel, in_relay, in_routed, in_theirs)
    what, upstream = "pod to pod through udp", "upstream's relay"
    return [
        Figure(
            what=f"{what}, kernel",
            unit="Gbit/s",
            ours=kernel,
            ratio=10,
            more=True,
            peer=upstream,
            theirs=peer,
            floor=pieces,
        ),
        Figure(
            what=f"{what}, kernel, pods without a bridge",
            unit="Gbit/s",
            ours=plain,
            ratio=0.9,
            more=True,
            peer="host-gw",
            theirs=plain_host_gw,
            floor=least,
        ),
        Figure(what=f"{what}, relay", unit="Gbit/s", ours=relay, ratio=10, more=True, peer=upstream, theirs=peer),
        Figure(
            what="64-byte packets through udp, received",
            unit="kpps",
            ours=packets,
            ratio=1.5,
            more=True,
            peer=upstream,
            theirs=their_packets,
        ),
        Figure(
            what="ping through udp, kernel, beyond host-gw's",
            unit="ms",
            ours=_beyond(carried, routed),
            target=0.15,
        ),
        Figure(
            what="ping through udp, relay, beyond host-gw's",
            unit="ms",
            ours=_beyond(relayed, routed),
            target=0.15,
            floor=_beyond(their_relayed, routed),  # two processes wake up, whatever they do
        ),
    ]


def _in_turns(measured: Callable[[Netns], float], *pods: Netns) -> list[tuple[float, ...]]:
    """What is measured from each pod, in turns, so that all see the machine as it is."""
    return list(zip(*([measured(pod) for pod in pods] for _ in range(ROUNDS)), strict=True))


def _beyond(some: Iterable[float], others: Iterable[float]) -> list[float]:
    return [one - other for one, other in zip(some, others, strict=True)]


def ours(node: Netns, own: int, other: int) -> None:
    """Connect nodes by our relay."""
    node.call(lambda: tun.create(DEVICE))
    _set_up(node, own)
    job = start.Job(device=DEVICE, local=IPv4Address(f"172.31.0.{own}"), port=PORT)
    path = Path(node.closing.enter_context(tempfile.TemporaryDirectory())) / SOCKET
    node.call(lambda: start.start(job, "a benchmark", PROGRAM.path, path))
    while (call := Call.to(path)) is None:
        time.sleep(0.01)
    with closing(call):
        call.change([Change(IPv4Network(f"10.9.{other}.0/24"), IPv4Address(f"172.31.0.{other}"))])


def _in_kernel(node: Netns, own: int, other: int) -> None:
    """The relay, and the kernel's own path past it."""
    ours(node, own, other)
    job = Job(device=DEVICE, uplink="eth0", local=IPv4Address(f"172.31.0.{own}"), port=PORT)
    forwards = {IPv4Network(f"10.9.{other}.0/24"): Forward(IPv4Address(f"172.31.0.{other}"), kernel=True)}
    node.call(lambda: Programs.attach(job, forwards).close())


def _headers_alone(node: Netns, own: int, other: int) -> None:
    headers.attach(node, DEVICE, IPv4Address(f"172.31.0.{own}"), IPv4Address(f"172.31.0.{other}"), PORT)
    _set_up(node, own)


def _set_up(node: Netns, own: int) -> None:
    node.run(f"ip link set {DEVICE} mtu {MTU} up && ip addr add 10.9.{own}.0/32 dev {DEVICE}")
    node.run(f"ip route add 10.9.0.0/16 dev {DEVICE}")


def _cut_at_the_bridge(node: Netns, own: int, other: int) -> None:
    """As host-gw, with a bridge that cuts streams into packets, as every bridge does with what was in a datagram."""
    _routed(node, own, other)
    node.run("ethtool -K cni0 tso off gso off")


def _upstreams(program: Path) -> Connect:
    def connect(node: Netns, own: int, other: int) -> None:
        command = [str(program), "tun0", f"172.31.0.{own}", str(PORT), f"10.9.{other}.0", f"172.31.0.{other}"]
        node.popen(command, stdout=subprocess.DEVNULL)
        until(lambda: "tun0" in node.run("ip -br link"), "upstream's relay")
        node.run(f"ip link set tun0 mtu {MTU} up && ip route add 10.9.{other}.0/24 dev tun0")

    return connect


def _routed(node: Netns, own: int, other: int) -> None:  # noqa: ARG001 - as the others
    node.run(f"ip route add 10.9.{other}.0/24 via 172.31.0.{other}")


def _gbits(pod: Netns) -> float:
    return gbits(lambda: pod.run([*CLIENT, ADDRESS]))


def _packets(pod: Netns) -> float:
    """Thousands of packets a second that the server receives of 64 bytes each, sent as fast as can be."""
    time.sleep(REST)
    report = json.loads(pod.run(["iperf3", "-J", "-u", "-b", "0", "-l", "64", "-t", "3", "-c", ADDRESS]))
    total = report["end"]["sum"]
    received: float = (total["packets"] - total["lost_packets"]) / total["seconds"] / 1000
    return received


def _ping(pod: Netns) -> float:
    """Milliseconds of the median ping."""
    time.sleep(REST)
    shown = pod.run(f"ping -c {PINGS} -i 0.005 {ADDRESS}")
    return median(float(text) for text in re.findall(r"time=([0-9.]+) ms", shown))
