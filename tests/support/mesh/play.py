"""Random histories of a mesh: `python -m tests.support.mesh.play SEED [--ops N] [--trace]` plays one again.

A history is a list of moves, drawn from the seed beforehand. What a move means is decided when it is played, so that
a history still is one when moves are left out: so a failing one is made shorter.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.mesh.checks import Broken, Checks
from tests.support.mesh.nodes import Node, Weather
from tests.support.mesh.sealed import Sealed
from tests.support.mesh.world import World
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.records import Layout

HEALED = 20.0  # seconds in which all must know the same, after the last fault
SEALED = 0.1  # of all histories: their messages are encoded and sealed on the way
MOST = 10  # nodes that are up or may come back


@dataclass(frozen=True)
class Move:
    wait: float
    what: str
    one: float  # numbers in [0, 1) that choose nodes
    two: float
    three: float


KINDS = {
    "join": 6,
    "kill": 8,
    "kill soon": 8,
    "start": 14,
    "start without a disk": 1,
    "part": 4,
    "heal": 6,
    "leave": 2,
    "remove": 4,
    "remove by two": 1,
}


def history(seed: object, length: int) -> list[Move]:
    chance = Random(f"history {seed}")
    kinds = chance.choices(list(KINDS), weights=list(KINDS.values()), k=length)
    return [Move(4 * chance.random() ** 2, kind, chance.random(), chance.random(), chance.random()) for kind in kinds]


class Play:
    """One history in one world."""

    def __init__(self, seed: object, *, watch: Callable[[str], None] | None = None):
        chance = Random(f"play {seed}")
        bad = chance.random() < 0.5
        self.checks = Checks()
        weather = Weather(
            delay=chance.choice((0.002, 0.01, 0.1)),
            loss=0.2 * bad,
            twice=0.1 * bad,
            reorder=0.1 * bad,
            late=chance.choice((0.0, 0.0, 0.001)),
        )
        self.world = World(seed, weather, self.checks)
        if Random(f"sealed {seed}").random() < SEALED:
            self.world.wire = Sealed()
        self.layout = Layout(net_conf="{}", blocks=chance.choice((8, 16, 64)), first=1)
        self.count = 0
        self.watch = watch
        self.join(0.0)
        self.world.run(0.5)
        self.world.create("n1", self.layout)

    # --- Moves

    def join(self, which: float) -> None:
        alive = self._some(lambda node: not self.left(node))
        if len(alive) < MOST:
            self.count += 1
            peers = [alive[int(which * len(alive))].name] if alive else []
            self.world.add(f"n{self.count}", peers)

    def _some(self, which: Callable[[Node], bool]) -> list[Node]:
        return [node for node in self.world.nodes.values() if which(node)]

    def left(self, node: Node) -> bool:
        return node.disk.left and node.key in self.checks.removed

    def play(self, move: Move) -> None:
        world = self.world
        up = self._some(lambda node: node.up)
        down = self._some(lambda node: not node.up and not self.left(node))
        if move.what == "join":
            self.join(move.one)
        elif move.what in {"kill", "kill soon"} and len(up) > 1:
            name = up[int(move.one * len(up))].name
            if move.what == "kill":
                world.kill(name)
            else:
                world.kill_at[name] = int(8 * move.two)
        elif move.what in {"start", "start without a disk"} and down:
            node = down[int(move.one * len(down))]
            others = self._some(lambda other: other is not node and other.disk.settled and not self.left(other))
            if move.what != "start" and others:  # with the last disk that knows the ring it would be lost
                world.forget(node.name)
            world.start(node.name, booted=move.two < 0.5)
        elif move.what == "heal":
            world.heal()
        elif move.what == "part":
            world.part(
                *(
                    [node.name for node in world.nodes.values() if (hash_of(node.name, move) < move.two) is side]
                    for side in (True, False)
                )
            )
        elif move.what == "leave" and len(up) > 2:
            self.ask(up[int(move.one * len(up))], do.Leave())
        elif move.what.startswith("remove") and down and up:
            self.remove(down[int(move.one * len(down))], up, move)

    def remove(self, node: Node, up: list[Node], move: Move) -> None:
        """By one of those that are up, or by two at once."""
        key = node.key
        by = up[int(move.two * len(up))]
        self.ask(by, do.Remove(keys=(key,)))
        if move.what == "remove by two":
            self.ask(up[int(move.three * len(up))], do.Remove(keys=(key,)))

    def ask(self, node: Node, command: do.Command) -> bool:
        try:
            self.world.ask(node.name, command)
        except ConfigError:
            return False
        return True

    # --- From the first move to the end

    def run(self, moves: list[Move]) -> None:
        for move in moves:
            self.world.run(move.wait)
            if self.watch:
                self.watch(f"{self.world.now:9.2f} {move.what} {move.one:.2f} {move.two:.2f}")
            self.play(move)

    def end(self) -> float:
        """Heal all, start all; returns after how many seconds all agree."""
        world = self.world
        world.run(1.0)
        world.heal()
        world.kill_at.clear()
        world.weather.loss = world.weather.late = 0.0
        for node in self._some(lambda node: not node.up and not self.left(node)):
            world.start(node.name)
        began = world.now
        settled = self._some(lambda node: node.up and node.disk.settled)
        for node in self._some(lambda node: node.up and bool(settled)):  # all that its list names may have left
            world.ask(node.name, do.Connect(address=settled[0].address))
        began = world.now
        if not world.run(HEALED, until=self.agree):
            raise Broken(f"C4: not all know the same {HEALED:.0f} s after the last fault")
        return world.now - began

    def agree(self) -> bool:
        cores = [node.core for node in self.world.nodes.values() if node.core and not node.disk.left]
        ringed = [core for core in cores if core.ring]
        first = ringed[0] if ringed else None
        return all(
            core.ring and first and core.ring.id == first.ring.id and core.digest == first.digest
            for core in cores
            if not core.kept.promise  # which holds back what others know, until a removal is over
        )


def hash_of(name: str, move: Move) -> float:
    return Random(f"{name} {move.three}").random()


def play(
    seed: object, ops: int, *, moves: list[Move] | None = None, watch: Callable[[str], None] | None = None
) -> Play:
    """Raises `Broken`. Without `moves`, as many as so many calls of cores take."""
    made = Play(seed, watch=watch)
    if moves is not None:
        made.run(moves)
    else:
        for move in history(seed, ops):
            if made.world.ops >= ops:
                break
            made.run([move])
    made.end()
    return made


def shortened(seed: object, moves: list[Move], tries: int = 200) -> list[Move]:
    """A part of the history that fails as well; each try leaves out a run of moves."""

    def fails(part: list[Move]) -> bool:
        try:
            play(seed, 0, moves=part)
        except Broken:
            return True
        return False

    size = len(moves) // 2
    while size and tries:
        at = 0
        while at < len(moves) and tries:
            tries -= 1
            less = moves[:at] + moves[at + size :]
            if fails(less):
                moves = less
            else:
                at += size
        size //= 2
    return moves


def failing(seed: object, ops: int) -> str | None:
    """What breaks with this seed, how to play it again, and a short history that breaks, too."""
    played: list[Move] = []
    try:
        made = Play(seed)
        for move in history(seed, ops):
            if made.world.ops >= ops:
                break
            played.append(move)
            made.run([move])
        made.end()
    except Broken as broken:
        short = shortened(seed, played)
        lines = [f"{move.wait:.3f} {move.what} {move.one:.3f} {move.two:.3f} {move.three:.3f}" for move in short]
        again = f"python -m tests.support.mesh.play {seed} --ops {ops}"
        return "\n".join((str(broken), again, f"{len(short)} of {len(played)} moves break, too:", *lines))
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed")
    parser.add_argument("--ops", type=int, default=5000)
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args(arguments)
    if given.trace:
        play(given.seed, given.ops, watch=print)
    told = failing(given.seed, given.ops)
    print(told or "nothing breaks")
    return told is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
