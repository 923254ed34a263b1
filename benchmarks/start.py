"""From exec to subnet.env, in an empty cluster, on a node that never ran a daemon. The floor is Python itself."""

import subprocess
import sys
import time

from benchmarks.figures import Figure
from benchmarks.world import World

ROUNDS = 10


def measure() -> list[Figure]:
    ours, floor = [], []
    for _ in range(ROUNDS):
        with World() as world:
            start = time.perf_counter()
            world.weftd()
            ours.append(world.ready() - start)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
        floor.append(time.perf_counter() - start)
    return [
        Figure(
            what="exec to subnet.env, empty cluster",
            unit="s",
            ours=ours,
            target=0.25,
            peer="import asyncio",
            theirs=floor,
            floor=floor,
            upstream="0.18–0.24 s",
        )
    ]
