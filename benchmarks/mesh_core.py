"""The core of the mesh in virtual time: many peers that all start, at rest, after one change; and all ways at once.

Seconds are of the simulated clock, but for those of the processor. Peers share what they know of each other in one
process, where real ones do not: `memory` of theirs is what the process takes for each.
"""

import resource
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from benchmarks.figures import Figure
from tests.support.mesh.world import World
from weft.mesh.ways import Pairs, ways
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Message
from weft.model.mesh.records import Layout, Member, short
from weft.model.value import replace
from weft.wire import mesh as wire

SEALED: Final = 16 + 4  # bytes: a frame's tag and length
WITHIN: Final = 10.0  # seconds in which all start
REST: Final = 30.0  # seconds that are looked at when nothing happens, after as many
LARGE: Final = 1000


class Bytes:
    """What is sent, as it would be on the wire."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, message: Message) -> Message:
        self.sent += len(wire.encode(message)) + SEALED
        return message


def measure() -> list[Figure]:
    return [*_many(300, known=2), *_many(LARGE, known=5, processor=60), _operations(), *_all_ways()]


def _many(count: int, *, known: float, processor: float | None = None) -> Iterator[Figure]:
    memory, began = _resident(), time.process_time()
    world = World(f"benchmark {count}")
    took = [_all_know(world, count)]
    used = [time.process_time() - began]
    peers = f"{count} peers"
    yield Figure(what=f"{peers} all start, until all know all", unit="s", ours=took, target=known)
    yield Figure(what=f"{peers} all start, processor", unit="s", ours=used, target=processor)
    yield Figure(what=f"{peers} all start, memory of each", unit="MB", ours=[(_resident() - memory) / count])
    world.run(REST)
    world.wire = sent = Bytes()
    world.run(REST)
    rest = [sent.sent / REST / count / 1000]
    yield Figure(what=f"{peers} at rest, each sends but for echoes", unit="kB/s", ours=rest, target=1.5)
    sent.sent, changed, now = 0, world.nodes["n1"], b'{"changed":1}'
    world.ask("n1", replace(changed.published, attrs=now))
    began, nodes = world.now, world.nodes.values()
    assert world.run(10, until=lambda: all(each.core.members[changed.key].attrs == now for each in nodes))
    took = [world.now - began]
    world.run(1)
    yield Figure(what=f"{peers}, one changed record is known to all", unit="s", ours=took, target=1)
    yield Figure(what=f"{peers}, … sent by each", unit="kB", ours=[sent.sent / count / 1000], target=4)


def _all_know(world: World, count: int) -> float:
    """So long after the last start all know all, and have their blocks."""
    world.add("n0")
    world.run(0.1)
    world.create("n0", Layout(net_conf="{}", blocks=4096, first=32))
    for number in range(1, count):
        world.add(f"n{number}", ["n0"], start=False)
        world.at(world.now + WITHIN * world.chance.random(), world.start, f"n{number}")
    world.run(WITHIN)
    last, nodes = world.now, world.nodes.values()
    assert world.run(60, until=lambda: all(len(node.core.members) == count and node.own.usable for node in nodes))
    return world.now - last


def _operations(peers: int = 10, calls: int = 20_000) -> Figure:
    """Calls of a core for each second of the processor, with records that change all the time."""
    world = World("operations")
    _all_know(world, peers)

    def restless(name: str) -> None:
        node = world.nodes[name]
        world.ask(name, do.Publish(attrs=world.chance.randbytes(4), endpoints=(node.address,)))
        world.at(world.now + 0.5, restless, name)

    for name in world.nodes:
        restless(name)
    began = time.process_time()
    world.run(ops=calls)
    rate = calls / (time.process_time() - began)
    return Figure(what=f"operations of the core, {peers} peers", unit="a second", ours=[rate], target=5000, more=True)


def _all_ways(apart: int = 300) -> Iterator[Figure]:
    """So many of 1,000 cannot meet each other: what a node computes when all of that is new."""
    chance = Random(1)
    keys = [chance.randbytes(32) for _ in range(LARGE)]
    lists = {key: tuple(sorted(short(other) for other in keys[:apart] if other != key)) for key in keys[:apart]}
    pairs = Pairs()
    for key in keys:
        pairs.put(Member(key=key, run=1, version=1, name="n", cannot=lists.get(key, ())))
    took, longest = [], []
    for _ in range(5):
        began = last = time.process_time()
        steps = []
        for _ in ways(keys[0], pairs):
            steps.append(time.process_time() - last)
            last = time.process_time()
        took.append(last - began)
        longest.append(max(steps) * 1000)
    what = f"all ways at once, {LARGE} peers of which {apart} cannot meet"
    yield Figure(what=what, unit="s", ours=took, target=0.3)
    yield Figure(what=f"{what}, the longest step", unit="ms", ours=longest, target=5)


def _resident() -> float:
    """MB, at most until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
