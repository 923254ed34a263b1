"""Resident memory of the daemon, health port on, ten seconds after it was ready."""

import re
import time
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.world import World

ROUNDS = 3
REST = 10.0


def measure() -> list[Figure]:
    return [
        Figure(
            what=f"resident memory, {peers} peers",
            unit="MB",
            ours=[resident(peers) for _ in range(ROUNDS)],
            target=target,
            upstream=upstream,
        )
        for peers, target, upstream in ((10, 40, "39 MB"), (5000, 50, "48 MB"))
    ]


def resident(peers: int) -> float:
    with World(peers=peers) as world:
        daemon = world.weftd("--healthz-port=8081")
        world.ready()
        time.sleep(REST)
        [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{daemon.pid}/status").read_text())
        return int(kilobytes) / 1000
