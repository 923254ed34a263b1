"""How long `weft lab up` takes until every node is ready and every pod runs."""

import time

from benchmarks.figures import Figure
from benchmarks.lab import lab


def measure() -> list[Figure]:
    return [
        Figure(
            what=f"lab up, {nodes} nodes with 2 pods each",
            unit="s",
            ours=[_up(nodes) for _ in range(rounds)],
            target=target,
            upstream="kind: a minute" if nodes == 3 else "",
        )
        for nodes, rounds, target in ((3, 5, 3), (50, 3, 20))
    ]


def _up(nodes: int) -> float:
    start = time.perf_counter()
    with lab("--nodes", str(nodes)):
        return time.perf_counter() - start
