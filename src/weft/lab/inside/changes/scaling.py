"""Adds nodes to a lab, or takes its last ones away with their pods, daemon, lease and link."""

import signal
from contextlib import suppress
from typing import Final

from weft.lab import spec
from weft.lab.inside import node, underlay
from weft.lab.inside.changes.stopping import Daemon
from weft.lab.inside.cluster import World
from weft.lab.inside.daemons import Note
from weft.lab.inside.etcd import EtcdStore
from weft.lab.inside.node import RunningNode
from weft.lab.links import STORE
from weft.lab.network import misfits, understand
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.value import replace

_WHERE: Final = "weft lab scale"


async def scale(world: World, count: int, pods: int | None, note: Note) -> None:
    """New nodes have `pods` each, or as many as the first node.

    `ConfigError` without room for them, `Unavailable` without a store: then nothing is done. If a new node fails, no
    new one stays; a node that cannot be taken away stays, with those before it.
    """
    store = world.store
    if not isinstance(store, EtcdStore):
        seen = f"nodes of a lab with --store {world.lab.store} are made with it"
        raise ConfigError(Problem("LAB-001", _WHERE, seen, expected="a lab on etcd"))
    if (state := await store.state()) != "ready":
        hint = f"'weft lab start{world.lab.option} {STORE}' starts it."
        where, expected = f"{_WHERE}: {STORE}", "ready: nodes get and give up their leases there"
        raise Unavailable(Problem("STORE-001", where, state, expected=expected, hint=hint))
    there = world.lab.nodes
    if count > len(there):
        await _grow(world, store, count - len(there), pods, note)
    for unwanted in reversed(there[count:]):
        await _take_away(world, store, world.nodes[unwanted.name])
        note(f"{unwanted.name} is gone")


async def _grow(world: World, store: EtcdStore, more: int, pods: int | None, note: Note) -> None:
    first = world.lab.nodes[0].name
    each = sum(pod.spec.node == first for pod in world.pods.running.values()) if pods is None else pods
    nodes, new = spec.nodes_and_pods(more, each, start=world.lab.nodes[-1].index + 1)
    _check(world, nodes, new)
    try:
        await world.grow(nodes, new, note)
    except BaseException:
        with suppress(WeftError, OSError):  # what cannot be taken away either is seen by `ps`
            for made in reversed(nodes):
                if made.name in world.nodes:
                    await _take_away(world, store, world.nodes[made.name])
        raise


def _check(world: World, nodes: tuple[spec.Node, ...], pods: tuple[spec.Pod, ...]) -> None:
    taken = world.names()
    problems = [
        Problem("LAB-001", _WHERE, f"the name {name!r} is taken", expected="names that are free")
        for name in [node.name for node in nodes] + [pod.name for pod in pods]
        if name in taken
    ]
    now = tuple(running.spec for running in world.pods.running.values())
    grown = replace(world.lab, nodes=(*world.lab.nodes, *nodes), pods=(*now, *pods))
    problems += misfits(understand(world.lab.network), grown, _WHERE)
    if problems:
        raise ConfigError(*problems)


async def _take_away(world: World, store: EtcdStore, running: RunningNode) -> None:
    """Its lease goes last, so that no other node gets its subnet while a pod has it."""
    name = running.spec.name
    async with world.leaving(name):
        await Daemon(world, running).end(signal.SIGTERM)
        if running.lease.is_set():
            with suppress(FileNotFoundError):  # nothing tells which it had: it expires
                await store.forget(running.subnet_env().subnets)
        await world.switch.set(world.switch.now.without(name), world.lab.nodes)
        await world.forget(name)
    underlay.unplug(world.rtnl, running.spec.index)
    await node.end(running)
