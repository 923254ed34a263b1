"""From exec until every object of all peers is in the kernel; the floor is `ip -batch` and `bridge -batch`."""

import time

from benchmarks.figures import Figure
from benchmarks.notices import BRIDGE, INET, NEIGH, ROUTE, Notices
from benchmarks.world import World, batch_files

ROUNDS = 5
CASES = (
    ("vxlan", 1000, None, ""),
    ("vxlan", 5000, 0.9, "3.2 s"),
    ("host-gw", 1000, None, ""),
    ("host-gw", 5000, 0.8, "25 s"),
)


def measure() -> list[Figure]:
    figures = []
    for backend, peers, target, upstream in CASES:
        ours, theirs, early = [], [], 0
        for _ in range(ROUNDS):  # in turns, so that both see the machine as it is
            seconds, ready = cold_start(backend, peers)
            ours.append(seconds)
            theirs.append(floor(backend, peers))
            early += ready < seconds
        if early:
            raise AssertionError(f"{backend}, {peers} leases: ready before every object was in, {early} times")
        figures.append(
            Figure(
                what=f"cold start, {peers} {backend} leases, all objects in",
                unit="s",
                ours=ours,
                target=target,
                peer="batch",
                theirs=theirs,
                floor=theirs,
                upstream=upstream,
            )
        )
    return figures


def cold_start(backend: str, peers: int) -> tuple[float, float]:
    """Seconds from exec until all objects are in, and until ready."""
    with World(backend=backend, peers=peers) as world, Notices(world.netns) as notices:
        start = time.perf_counter()
        world.weftd()
        last = notices.wait(objects(backend, peers))
        return last - start, world.ready() - start


def floor(backend: str, peers: int) -> float:
    """Seconds that the tools take for the same objects."""
    with World(backend=backend, peers=peers) as world:
        if backend == "vxlan":
            world.netns.run("ip link add flannel.1 type vxlan id 1 dev eth0 local 172.31.0.11 dstport 8472 nolearning")
            world.netns.run("ip addr add 10.0.1.0/32 dev flannel.1 && ip link set flannel.1 up")
        commands = list(batch_files(world.peers, world.folder, backend=backend))
        start = time.perf_counter()
        for command in commands:
            world.netns.run(command)
        return time.perf_counter() - start


def objects(backend: str, peers: int) -> dict[tuple[int, int], int]:
    """How many notices of each kind the objects of all peers make."""
    if backend == "host-gw":
        return {(ROUTE, INET): peers}
    return {(ROUTE, INET): peers, (NEIGH, INET): peers, (NEIGH, BRIDGE): peers}
