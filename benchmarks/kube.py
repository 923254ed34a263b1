"""Leases in Kubernetes: 5,000 nodes of 10 KB, a patch of one of them, and the heartbeats of all of them."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cold_start import objects
from benchmarks.figures import Figure
from benchmarks.kubeworld import OWN_NAME, KubeWorld
from benchmarks.notices import INET, NO_ROUTE, ROUTE, Notices
from tests.support import flanneld
from tests.support.kubernetes.kubeobjects import NODES, PREFIX
from weft.cluster.kube.client import Client
from weft.cluster.kube.kubeconfig import find
from weft.cluster.kube.nodes import list_nodes
from weft.config.kubernetes import Surroundings

PEERS: Final = 5000
ROUNDS: Final = 3
EVENTS: Final = 100
REST: Final = 20.0
BEATS: Final = 500  # a second
BEAT_SECONDS: Final = 20.0
_BEATERS: Final = 4


def measure() -> list[Figure]:
    flanneld.built() or flanneld.build()
    upstreams, _, theirs, _, their_bytes = start(KubeWorld.flanneld)
    seconds, lists, peaks, rests, received = zip(*(start() for _ in range(ROUNDS)), strict=True)
    late, watch = events()
    busy, grown = heartbeats()
    nodes = f"{PEERS} nodes of 10 KB"
    return [
        Figure(
            what=f"{nodes}, all objects in",
            unit="s",
            ours=seconds,
            target=1.5,
            peer="list alone",
            theirs=lists,
            floor=lists,
            upstream=f"{upstreams:.1f} s",
        ),
        Figure(what=f"{nodes}, memory at most", unit="MB", ours=peaks, target=64, upstream=f"{theirs:.0f} MB"),
        Figure(
            what=f"{nodes}, received from the API",
            unit="MB",
            ours=received,
            target=1.5,
            upstream=f"{their_bytes:.1f} MB",
        ),
        Figure(what=f"{nodes}, memory at rest", unit="MB", ours=rests, target=48, upstream="158 MB"),
        Figure(
            what="node patched to route, after the API's own watch",
            unit="ms",
            ours=late,
            target=5,
            peer="API's watch",
            theirs=watch,
        ),
        Figure(what=f"{BEATS} heartbeats a second, of a core", unit="%", ours=busy, target=10),
        Figure(what=f"{BEATS} heartbeats a second, memory grown", unit="MB", ours=grown, target=1),
    ]


def start(begin: Callable[[KubeWorld], object] = KubeWorld.weftd) -> tuple[float, float, float, float, float]:
    """Seconds from exec until all objects are in, and of a list alone; megabytes at most, at rest, and received."""
    with KubeWorld(nodes=PEERS) as world, Notices(world.netns) as notices:
        beat(world, 0.1)  # as in any cluster: after 15 s without one, the API server reads each page from etcd
        alone = world.netns.call(lambda: asyncio.run(floor(world)))
        began = time.perf_counter()
        begin(world)
        last = notices.wait(objects("vxlan", PEERS))
        world.ready()
        time.sleep(REST)
        return last - began, alone, world.memory("VmHWM"), world.memory(), world.received()


async def floor(world: KubeWorld) -> float:
    """Seconds that it takes to ask for all nodes, in pages, and to decode them: no kernel, no program's start."""
    with closing(Client(find("", str(world.kubeconfig), around=Surroundings()))) as client:
        began = time.perf_counter()
        await list_nodes(client, PREFIX, OWN_NAME)
        return time.perf_counter() - began


def events() -> tuple[list[float], list[float]]:
    """Milliseconds from the API's own event to the route, and from the patch to that event."""
    with KubeWorld(nodes=PEERS) as world, Notices(world.netns) as notices:
        world.weftd()
        world.ready()
        time.sleep(1)
        return world.netns.call(lambda: _events(world, notices))


def _events(world: KubeWorld, notices: Notices) -> tuple[list[float], list[float]]:
    name = f"peer-{world.nodes[0].subnet.network_address}"
    managed = f"{PREFIX}kube-subnet-manager"
    arrived: list[float] = []
    came = threading.Condition()
    query = {
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": world.server.admin.get(NODES, limit=1)["metadata"]["resourceVersion"],
    }
    late, watch = [], []
    with world.server.admin.watch(NODES, **query) as stream, closing(world.connection()) as api:

        def listen() -> None:
            with suppress(OSError):  # silent after the last event
                for _ in stream:
                    with came:
                        arrived.append(time.perf_counter())
                        came.notify()

        threading.Thread(target=listen, daemon=True).start()
        for number in range(2 * EVENTS):
            on = bool(number % 2)
            notices.reset()
            began = time.perf_counter()
            api.patch(name, {"metadata": {"annotations": {managed: "true" if on else "false"}}})
            done = notices.wait({(ROUTE if on else NO_ROUTE, INET): 1})
            with came:
                if not came.wait_for(partial(_more, arrived, number), 10):
                    raise TimeoutError("the API tells nothing")
            if on:
                late.append((done - arrived[number]) * 1e3)
                watch.append((arrived[number] - began) * 1e3)
            time.sleep(0.01)
    return late, watch


def _more(seen: list[float], number: int) -> bool:
    return len(seen) > number


def heartbeats() -> tuple[list[float], list[float]]:
    """The part of a core that the daemon takes, in percent, and what its memory grows by, in megabytes."""
    with KubeWorld(nodes=PEERS) as world:
        daemon = world.weftd()
        world.ready()
        time.sleep(REST)
        beat(world, 5.0)  # buffers take their size
        before, used, began = world.memory(), _cpu(daemon.pid), time.perf_counter()
        sent = beat(world, BEAT_SECONDS)
        passed = time.perf_counter() - began
        if sent < BEATS * passed * 0.9:
            print(f"only {sent / passed:.0f} heartbeats a second")
        busy = (_cpu(daemon.pid) - used) / sent * BEATS
        return [busy * 100], [world.memory() - before]


def beat(world: KubeWorld, seconds: float) -> int:
    """Have nodes send heartbeats for a while; returns how many were sent."""

    def beats(beater: int) -> int:
        peers = world.nodes[beater::_BEATERS]
        began = time.perf_counter()
        sent = 0
        with closing(world.connection()) as api:
            while (now := time.perf_counter() - began) < seconds:
                peer = peers[sent % len(peers)]
                ready = {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": f"2026-01-01T00:{int(now):02}:{beater:02}Z",
                    "message": str(sent),
                }
                api.patch(f"peer-{peer.subnet.network_address}", {"status": {"conditions": [ready]}})
                sent += 1
                time.sleep(max(0.0, began + sent * _BEATERS / BEATS - time.perf_counter()))
        return sent

    with ThreadPoolExecutor(_BEATERS) as pool:
        return sum(pool.map(lambda beater: world.netns.call(lambda: beats(beater)), range(_BEATERS)))


def _cpu(pid: int) -> float:
    """Seconds of processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
