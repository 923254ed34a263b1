"""Draws obstacles by seed, puts each into a world without telling, and counts what traces and doctors say of it.

`python -m tests.campaign.obstacles.play --count 300` (as root, in `scripts/apart.sh`) prints each and the table.
"""

import argparse
import random
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.campaign.obstacles import filters, links, ways
from tests.campaign.obstacles.obstacle import Obstacle, Scene
from tests.campaign.obstacles.world import FAMILIES, NODES, Backend, World, node_of, world
from weft.diag.doctor.forms import FindingReport
from weft.model.net import Family
from weft.model.value import Value, replace

_GROUPS: Final = (filters.ALL, ways.ALL, links.ALL)
_BACKENDS: Final[tuple[Backend, ...]] = ("vxlan", "host-gw")
# Between which pods packets are sent: across nodes, there and back, and beside each other.
_PAIRS: Final = (
    ("pod1-1", "pod2-1"),
    ("pod2-1", "pod1-1"),
    ("pod1-1", "pod1-2"),
    ("pod2-1", "pod2-2"),
    ("pod1-2", "pod1-1"),
    ("pod2-2", "pod2-1"),
)


class Played(Value):
    """What became of an obstacle. `effect`: packets were lost. `trace` and `doctor` have what they said."""

    seed: str
    backend: Backend
    family: Family
    harmless: bool
    obstacle: Obstacle
    effect: bool
    trace: tuple[str, ...] = ()
    doctor: tuple[str, ...] = ()
    placed: bool = False
    faults: int = 0
    arrives: bool = False

    @property
    def traced(self) -> bool:
        return _names(self.trace, self.obstacle)

    @property
    def diagnosed(self) -> bool:
        return _names(self.doctor, self.obstacle)

    def __str__(self) -> str:
        marks = f"{'t' if self.traced else '-'}{'d' if self.diagnosed else '-'}{'' if self.effect else ' no effect'}"
        kind = "benign " if self.harmless else ""
        said = [f"  trace:  {each}" for each in self.trace if not self.traced]
        said += [f"  doctor: {each}" for each in self.doctor if self.harmless or not self.diagnosed]
        head = f"{self.seed} {marks} {kind}{self.backend} {self.family} {self.obstacle.place}: {self.obstacle.commands}"
        return "\n".join([head, *(said if self.effect or self.harmless else [])])


def _names(said: Iterable[str], obstacle: Obstacle) -> bool:
    return any(re.search(obstacle.cause, each) for each in said)


def drawn(seed: str, *, harmless: bool) -> tuple[Scene, Obstacle]:
    chance = random.Random(seed)
    scene = Scene(chance=chance, backend=chance.choice(_BACKENDS), family=chance.choice(FAMILIES), harmless=harmless)
    return scene, chance.choice(chance.choice(_GROUPS))(scene)


def play(seed: str, *, harmless: bool = False) -> Played:
    scene, obstacle = drawn(seed, harmless=harmless)
    return put(seed, obstacle, scene.backend, scene.family, harmless=harmless)


def put(seed: str, obstacle: Obstacle, backend: Backend, family: Family, *, harmless: bool = False) -> Played:
    """Put it into a fresh world."""
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), backend) as nodes:
        nodes.run(obstacle.place, obstacle.commands)
        lost = [pair for pair in _PAIRS if not nodes.reaches(*pair, family)]
        found = Played(
            seed=seed, backend=backend, family=family, harmless=harmless, obstacle=obstacle, effect=bool(lost)
        )
        if harmless:
            return _with_findings(found, [each for node in NODES for each in nodes.doctor(node).findings])
        return _judged(found, nodes, lost) if lost else found


def _judged(found: Played, nodes: World, lost: list[tuple[str, str]]) -> Played:
    node = node_of(found.obstacle.place)
    said, arrives = list[str](), list[bool]()
    # As one would: from the pod that loses packets, then from the other end, and what is lost within a node.
    for source, target in (lost[0], lost[0][::-1], lost[-1]):
        try:
            traced = nodes.trace(source, target, found.family, size=found.obstacle.size)
        except AssertionError as error:  # it refuses: the address is no pod's any more
            said.append(str(error).strip().rpartition("\n")[2])
            continue
        said.append(traced.verdict)
        arrives.append(traced.well)
        if _names(said, found.obstacle):
            break
    here = [each for each in said if " to " not in each.partition(":")[0]]
    made = _with_findings(found, nodes.doctor(node).findings)
    return replace(made, trace=tuple(said), placed=bool(here), arrives=bool(arrives) and all(arrives))


def _with_findings(found: Played, findings: Iterable[FindingReport]) -> Played:
    told = list(findings)
    said = tuple(f"{each.code} {each.where}: {each.seen}" for each in told)
    return replace(found, doctor=said, faults=sum(each.weight == "fault" for each in told))


def played(seed: str, count: int) -> Iterator[Played]:
    """Every fourth is a harmless one."""
    for number in range(count):
        yield play(f"{seed}-{number}", harmless=number % 4 == 3)


def table(everything: Iterable[Played]) -> str:
    """The figures, one a line."""
    all_of = list(everything)
    hurt = [each for each in all_of if each.effect and not each.harmless]
    benign = [each for each in all_of if each.harmless and not each.effect]

    def share(part: int) -> str:
        return f"{part} of {len(hurt)} ({100 * part / max(1, len(hurt)):.0f} %)"

    return "\n".join(
        (
            f"| obstacles that lose packets | {len(hurt)} of {sum(not each.harmless for each in all_of)} drawn |",
            f"| place named by trace | {share(sum(each.placed or each.traced for each in hurt))} |",
            f"| cause named by trace | {share(sum(each.traced for each in hurt))} |",
            f"| cause named by doctor, on the node concerned | {share(sum(each.diagnosed for each in hurt))} |",
            f"| '0 faults' while packets are lost | {sum(not each.faults for each in hurt)} |",
            f"| 'it arrives' while packets are lost | {sum(each.arrives for each in hurt)} |",
            f"| benign changes with a finding | {sum(bool(each.doctor) for each in benign)} of {len(benign)} |",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--count", type=int, default=100)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    found = []
    for each in played(given.seed, given.count):
        print(each, flush=True)
        found.append(each)
    print(table(found))


if __name__ == "__main__":
    main()
