"""weftd beside flanneld itself, in turns on the same node: a start, many leases, an event, memory.

What upstream's daemon takes differs with the machine; so here it is measured, and not remembered.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks.cold_start import objects
from benchmarks.figures import Figure
from benchmarks.notices import INET, ROUTE, Notices
from benchmarks.world import Peer, World
from tests.support import flanneld, upstream

ROUNDS: Final = 5
PEERS: Final = 1000
EVENTS: Final = 50
PAUSE: Final = 0.05  # seconds between events
REST: Final = 20.0  # seconds until memory is looked at
_SPARE: Final = 30_000  # numbers no other peer has
Start = Callable[[World], object]
BOTH: Final[tuple[Start, Start]] = (World.weftd, World.flanneld)


def measure() -> list[Figure]:
    flanneld.built() or flanneld.build()
    return [
        _figure("exec to subnet.env, empty cluster", "s", _ready, rounds=ROUNDS),
        *(
            _figure(f"all objects of {PEERS} {backend} leases", "s", _cold(backend), rounds=ROUNDS, ratio=1)
            for backend in ("vxlan", "host-gw")
        ),
        _figure(f"lease put to route, {PEERS} peers", "ms", _events, rounds=ROUNDS),
        _figure(f"resident memory, {PEERS} peers", "MB", _memory, rounds=2, ratio=1),
    ]


def _figure(
    what: str, unit: str, measured: Callable[[Start], float], *, rounds: int, ratio: float | None = None
) -> Figure:
    ours, theirs = zip(*([measured(start) for start in BOTH] for _ in range(rounds)), strict=True)
    peer = f"flanneld {upstream.VERSION}"
    return Figure(what=f"{what}, beside flanneld", unit=unit, ours=ours, ratio=ratio, peer=peer, theirs=theirs)


def _ready(start: Start) -> float:
    with World() as world:
        began = time.perf_counter()
        start(world)
        return world.ready() - began


def _cold(backend: str) -> Callable[[Start], float]:
    def measured(start: Start) -> float:
        with World(backend=backend, peers=PEERS) as world, Notices(world.netns) as notices:
            began = time.perf_counter()
            start(world)
            return notices.wait(objects(backend, PEERS)) - began

    return measured


def _events(start: Start) -> float:
    """Milliseconds from before the put of a lease to its route, the median of many."""
    with World(peers=PEERS) as world, Notices(world.netns) as notices:
        start(world)
        notices.wait(objects("vxlan", PEERS))
        world.ready()
        time.sleep(1)
        taken = []
        for index in range(EVENTS):
            peer = Peer(_SPARE + index)
            notices.reset()
            began = time.perf_counter()
            world.put({peer.key: peer.value})
            taken.append((notices.wait({(ROUTE, INET): 1}) - began) * 1e3)
            time.sleep(PAUSE)
    return median(taken)


def _memory(start: Start) -> float:
    with World(peers=PEERS) as world:
        start(world)
        world.ready()
        time.sleep(REST)
        return world.memory()
