"""From exec to subnet.env, in an empty cluster. The floor is a bare interpreter's start."""

import subprocess
import sys
import time

from benchmarks.figures import Figure
from benchmarks.world import World

ROUNDS = 10


def measure() -> list[Figure]:
    ours, floor = [], []
    with World() as world:
        for _ in range(ROUNDS):
            world.subnet_file.unlink(missing_ok=True)
            start = time.perf_counter()
            daemon = world.weftd()
            ours.append(world.ready() - start)
            daemon.kill()
            daemon.wait()
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
            upstream="0.18–0.24 s",
        )
    ]
