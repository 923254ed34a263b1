"""Starts, stops and kills nodes, their daemons and the store.

A stopped node has no link and no daemon, as if its machine were off; its pods stay.
"""

import asyncio
import signal
from collections.abc import Mapping
from typing import Final, Protocol

from weft.beside.tasks import awaited
from weft.lab.inside import node
from weft.lab.inside.cluster import World
from weft.lab.inside.etcd import EtcdStore
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Child
from weft.lab.links import DAEMON, STORE, Change
from weft.lab.protocol import Turn, Verb
from weft.lab.report import ThingReport, TurnReport, serves
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.node.history import Kind

_PATIENCE: Final = 10.0  # seconds for a process to end, and for a daemon to be ready
_TURNED: Final[Mapping[Verb, Kind]] = {
    "start": "started",
    "stop": "stopped",
    "restart": "restarted",
    "kill": "killed",
}


async def turn(world: World, wanted: Turn) -> TurnReport:
    """`ConfigError`, before anything is done, if one of the things cannot be turned."""
    things = [_thing(world, name) for name in wanted.things]
    reports = []
    for name, thing in zip(wanted.things, things, strict=True):
        world.history.note(_TURNED[wanted.verb], name)
        if wanted.verb != "start":
            await thing.end(signal.SIGKILL if wanted.verb == "kill" else signal.SIGTERM)
        if wanted.policed is not None and isinstance(thing, Daemon):
            thing.node.policed = wanted.policed
        if wanted.verb in ("start", "restart"):
            await thing.start()
        reports.append(await thing.report())
    well = wanted.verb in ("stop", "kill") or all(serves(report.state) for report in reports)
    return TurnReport(things=reports, well=well)


class _Thing(Protocol):
    async def start(self) -> None:
        """Start it unless it runs, and wait a while until it is ready. `Unavailable` if it ends instead."""
        ...

    async def end(self, number: signal.Signals) -> None:
        """`Unavailable` if it does not end."""
        ...

    async def report(self) -> ThingReport: ...


class Daemon:
    def __init__(self, world: World, running: RunningNode) -> None:
        self._world = world
        self.node = running

    async def start(self) -> None:
        daemon = self.node.daemon
        if daemon is None or daemon.ended.done():
            daemon = await self._world.start_daemon(self.node)
        ready = awaited(self.node.served(self._world.inside))
        await asyncio.wait((ready, daemon.ended), timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
        ready.cancel()
        if daemon.ended.done():
            raise node.early_end(self.node, self._world.processes, daemon)

    async def end(self, number: signal.Signals) -> None:
        if self.node.daemon is not None:
            await _end(self._world, self.node.daemon, number, f"{self.node.spec.name}/{DAEMON}")

    async def report(self) -> ThingReport:
        found = await self.node.health(self._world.inside)
        return ThingReport(name=f"{self.node.spec.name}/{DAEMON}", state=found.state, problems=list(found.problems))


class _Node:
    def __init__(self, world: World, running: RunningNode) -> None:
        self._world = world
        self._name = running.spec.name
        self._daemon = Daemon(world, running)

    async def start(self) -> None:
        await self._set_link(up=True)
        await self._daemon.start()

    async def end(self, number: signal.Signals) -> None:
        # A node that is switched off has its daemon end while there is a network; a power cut leaves no time for that.
        if number != signal.SIGKILL:
            await self._daemon.end(number)
        await self._set_link(up=False)
        await self._daemon.end(signal.SIGKILL)

    async def report(self) -> ThingReport:
        daemon = await self._daemon.report()
        up = self._world.switch.now.link(self._name).up
        return ThingReport(name=self._name, state=daemon.state, problems=daemon.problems, link="up" if up else "down")

    async def _set_link(self, *, up: bool) -> None:
        wanted = self._world.switch.now.changed([self._name], Change(up=up))
        await self._world.switch.set(wanted, self._world.lab.nodes)


class _Store:
    def __init__(self, world: World, store: EtcdStore) -> None:
        self._world = world
        self._store = store

    async def start(self) -> None:
        await self._store.start_again()

    async def end(self, number: signal.Signals) -> None:
        if self._store.child is not None:
            await _end(self._world, self._store.child, number, STORE)

    async def report(self) -> ThingReport:
        return ThingReport(name=STORE, state=await self._store.state())


def _thing(world: World, name: str) -> _Thing:
    """`ConfigError` names what there is, or says why it cannot be turned in this lab."""
    if name == STORE:
        if isinstance(world.store, EtcdStore):
            return _Store(world, world.store)
        if world.lab.store == "mesh":
            seen, hint = "this lab has no store: its nodes are a mesh", "Stop daemons: node1/weftd."
            raise ConfigError(Problem("LAB-001", STORE, seen, hint=hint))
        seen = "this lab's store is Kubernetes' API, which cannot be stopped here"
        hint = f"'weft lab partition{world.lab.option} {next(iter(world.nodes))} {STORE}' takes it away from a node."
        raise ConfigError(Problem("LAB-001", STORE, seen, hint=hint))
    of, slash, part = name.partition("/")
    running = world.node(of)
    if slash and part != DAEMON:
        raise ConfigError(Problem("LAB-001", name, f"no part {part!r} of a node", expected=f"{of} or {of}/{DAEMON}"))
    if world.lab.kubelets:
        seen = "weft is a pod here, which the node's kubelet starts again"
        hint = f"'weft lab link{world.lab.option} {of} --down' takes the node off the network."
        raise ConfigError(Problem("LAB-001", name, seen, hint=hint))
    return Daemon(world, running) if slash else _Node(world, running)


async def _end(world: World, child: Child, number: signal.Signals, name: str) -> None:
    child.signal(number)
    ended, _ = await asyncio.wait((child.ended,), timeout=_PATIENCE)
    if not ended:
        hint = f"'weft lab kill{world.lab.option} {name}' ends it."
        seen = f"it has not ended {_PATIENCE:.0f} s after {number.name}"
        raise Unavailable(Problem("LAB-002", name, seen, hint=hint))
