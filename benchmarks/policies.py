"""Policies: what a packet, a change and an ADD cost beside them, and what a restart writes."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import policypackets
from benchmarks.figures import Figure
from benchmarks.policyworld import ELSEWHERE, HERE, MANY, crowd, enforced, far, here, namespace, of_all, took
from tests.node.plugincalls import Runtime
from tests.node.policyworld import World
from tests.support import etcd
from tests.support.netns import Netns
from tests.support.weftd import VXLAN, Cluster, Daemon, Underlay
from weft.cni import build
from weft.cni.install.executables import install
from weft.daemon.planes.plane import Keeper
from weft.desired.policy.decide import PolicyDecider
from weft.model.kernel.objects import Key

ROUNDS: Final = 30
ADDS: Final = 50
AT_ONCE: Final = 30
BURSTS: Final = 3
POLICIES: Final = 1000
CLASSES: Final = 20  # of pods here, each of which has its share of the policies
BEYOND_OFF: Final = 3.0  # ms
REST: Final = 3.0  # seconds after a start

EVENTS: Final = (
    ("a pod of 20 sets arrives elsewhere", 10),
    ("it goes again", 10),
    ("a pod of 20 sets and a known class arrives here", None),
    ("a policy is made for 250 pods", 100),
    ("it is changed", 100),
    ("it is deleted", 100),
    (f"the labels of a namespace of {MANY:,} pods change", 100),
)


def measure() -> list[Figure]:
    with Netns() as node:
        events = enforced(node, POLICIES, _events)
    with _nodes() as (off, on, busy):
        beside = [*_memory(off, on), *_adds(off, busy), _restart(busy)]
    return [*policypackets.measure(), *events, *beside]


async def _events(decider: PolicyDecider, keeper: Keeper) -> list[Figure]:
    samples: dict[str, list[float]] = {what: [] for what, _ in EVENTS}
    elsewhere, gone, arrives, made, changed, deleted, labels = samples

    async def note(what: str, change: Callable[[], set[Key]]) -> None:
        samples[what].append(await took(keeper, change))

    pod, attached = here(HERE - 1, like=0)
    stranger = far(ELSEWHERE)
    for _ in range(ROUNDS):
        await note(elsewhere, lambda: decider.change([stranger]))
        await note(gone, lambda: decider.change(gone=[stranger.id]))
        decider.change([pod])
        await note(arrives, lambda: decider.attached("one more", attached))
        await took(keeper, lambda: decider.detached("one more") | decider.change(gone=[pod.id]))
    await took(keeper, lambda: decider.change(crowd()))
    for _ in range(ROUNDS // 3):
        await note(made, lambda: decider.change([of_all(9000)]))
        await note(changed, lambda: decider.change([of_all(9001)]))
        await note(deleted, lambda: decider.change(gone=[of_all(9001).id]))
        for team in ("x", "y"):
            await note(labels, lambda team=team: decider.change([namespace("many", team=team)]))
    return [
        Figure(what=f"{what}, until in the kernel", unit="ms", ours=samples[what], target=target)
        for what, target in EVENTS
    ]


class _Node:
    """A node with its own plugins; `world` says which policies it enforces, none: it has them off."""

    def __init__(self, cluster: Cluster, number: int, folder: Path, world: World | None) -> None:
        self.flags = world.flags if world is not None else ()
        self.daemon: Daemon = cluster.node(number).start(*self.flags)
        self._runtime = Runtime(self.daemon, folder / f"plugins{number}", install(folder / f"bin{number}").bin_dir)

    def add(self, *names: str) -> float:
        """Milliseconds until all that are attached at once are."""
        pods = [Netns() for _ in names]
        start = time.perf_counter()
        calls = [self._runtime.begin("ADD", name, pod) for name, pod in zip(names, pods, strict=True)]
        answers = [call.end() for call in calls]
        took = (time.perf_counter() - start) * 1e3
        if bad := [str(answer) for answer in answers if answer.exit]:
            raise RuntimeError(bad[0])
        self.daemon.pods += pods
        return took

    def add_and_delete(self, *names: str) -> float:
        took = self.add(*names)
        for name in names:
            self._runtime.ask("DEL", name, self.daemon.pods.pop())
        return took

    @property
    def memory(self) -> float:
        """Megabytes."""
        [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.daemon.pid}/status").read_text())
        return int(kilobytes) / 1000


@contextmanager
def _nodes() -> Iterator[tuple[_Node, _Node, _Node]]:
    """With policies off, on without any, and on with many, of pods that are attached."""
    if not build.PROGRAM.build():
        raise RuntimeError("musl-gcc is missing")
    with TemporaryDirectory(dir="/dev/shm") as name, ExitStack() as stack:
        folder = Path(name)
        underlay = Underlay(folder / "etcd", etcd.wheel())
        stack.callback(underlay.close)
        cluster = Cluster(underlay, folder)
        stack.callback(cluster.close)
        cluster.configure(VXLAN)
        none, many = World(folder / "none"), World(folder / "many")
        none.write()
        _fill(many)
        nodes = [_Node(cluster, number, folder, world) for number, world in enumerate((None, none, many), 1)]
        for number in range(CLASSES):
            nodes[2].add(f"pod{number}")
        yield nodes[0], nodes[1], nodes[2]


def _fill(world: World) -> None:
    """Pods `podN` of `CLASSES` classes, and `ownN`, each of which has a policy of its own."""
    for number in range(CLASSES + AT_ONCE):
        world.pod(f"pod{number}", app=f"a{number % CLASSES}")
        world.pod(f"own{number}", app=f"own{number}")
    for number in range(POLICIES):
        rule = {
            "from": [{"podSelector": {"matchLabels": {f"s{number}": "x"}}}],
            "ports": [{"port": 8000, "endPort": 8100}],
        }
        world.policy(f"p{number}", {"app": f"a{number % CLASSES}"}, ingress=[rule])
    for number in range(CLASSES + AT_ONCE):
        world.policy(f"own{number}", {"app": f"own{number}"}, ingress=[{"ports": [{"port": 8000 + number}]}])
    world.write()


def _memory(off: _Node, on: _Node) -> Iterator[Figure]:
    time.sleep(REST)
    what = "resident memory, policies on and none there"
    yield Figure(what=what, unit="MB", ours=[on.memory], target=off.memory + 2, peer="off", theirs=[off.memory])


def _adds(off: _Node, busy: _Node) -> Iterator[Figure]:
    """By turns: the machine is not ours alone."""
    known, own, without = list[float](), list[float](), list[float]()
    for number in range(ADDS):
        without.append(off.add_and_delete("pod"))
        known.append(busy.add_and_delete(f"pod{CLASSES + number % AT_ONCE}"))
        own.append(busy.add_and_delete(f"own{number % AT_ONCE}"))
    bound = median(without) + BEYOND_OFF
    said = f"ADD of a pod {{}}, {POLICIES:,} policies here"
    yield Figure(what=said.format("of a known class"), unit="ms", ours=known, target=bound, peer="off", theirs=without)
    # nft runs for each policy that no pod here had before, and looks at all sets and chains first.
    yield Figure(what=said.format("with the first of a policy"), unit="ms", ours=own, peer="off", theirs=without)
    names = [f"pod{CLASSES + number}" for number in range(AT_ONCE)]
    bursts = [(off.add_and_delete(*names), busy.add_and_delete(*names)) for _ in range(BURSTS)]
    yield Figure(
        what=f"{AT_ONCE} ADDs at once, {POLICIES:,} policies here",
        unit="ms",
        ours=[on for _, on in bursts],
        ratio=1.2,
        peer="off",
        theirs=[off for off, _ in bursts],
    )


def _restart(busy: _Node) -> Figure:
    written = _written(busy, "true")
    if not _written(busy, "nft flush map inet weft-policy in4"):
        raise AssertionError("what a restart writes is not seen")
    what = f"lines that a restart writes into the tables, {POLICIES:,} policies here"
    return Figure(what=what, unit="", ours=[written], target=0)


def _written(node: _Node, damage: str) -> int:
    """What `nft monitor` says while a daemon starts again, after some damage."""
    daemon = node.daemon
    daemon.kill()
    daemon.netns.run(damage)
    with daemon.netns.popen(["nft", "monitor"], stdout=subprocess.PIPE, text=True) as monitor:
        time.sleep(REST / 3)
        daemon.start(*node.flags)
        time.sleep(REST)
        monitor.terminate()
        said, _ = monitor.communicate()
    return sum("weft-policy" in line for line in said.splitlines())
