"""Resident memory of the daemon, health port on, after its first full look at a network that has come to rest."""

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import Figure
from benchmarks.world import World
from weft.daemon.planes.kernel import NodeKernel

ROUNDS = 3
REST = NodeKernel.sweep + 10


def measure() -> list[Figure]:
    with ThreadPoolExecutor(ROUNDS) as pool:
        return _figures(pool)


def _figures(pool: ThreadPoolExecutor) -> list[Figure]:
    return [
        Figure(
            what=f"resident memory, {peers} peers",
            unit="MB",
            ours=list(pool.map(resident, [peers] * ROUNDS)),
            target=target,
            upstream=upstream,
        )
        for peers, target, upstream in ((10, 42, "39 MB"), (5000, 50, "48 MB"))
    ]


def resident(peers: int) -> float:
    with World(peers=peers) as world:
        world.weftd("--healthz-port=8081")
        world.ready()
        time.sleep(REST)
        return world.memory()
