"""Waits until the daemons of all nodes know each other, however they were started."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from weft.lab.inside import node, patience
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Processes
from weft.model.errors import Problem, Unavailable
from weft.model.net import Net
from weft.model.text import counted

_LOOK_AGAIN: Final = 0.01  # seconds; all routes come within milliseconds of the last daemon's readiness

Note = Callable[[str], None]


class Pods(Protocol):
    """What starts the daemons where they are pods."""

    async def progress(self) -> object:
        """Return how far they are: another value after each step."""
        ...

    async def words(self, node: str) -> str:
        """Return what is to be said of a node's daemon."""
        ...


async def joined(
    nodes: Sequence[RunningNode], inside: Inside, processes: Processes, note: Note, pods: Pods | None
) -> None:
    """Wait until each node has a lease and a route to every other, as long as there is any progress.

    `Unavailable` names one that has not. Between segments there may be no route, with a back end that needs neighbours
    for it.
    """
    apart = len({running.spec.segment for running in nodes}) > 1

    async def join() -> None:
        for number, running in enumerate(nodes, 1):
            await node.daemon_ready(running, processes)
            note(f"ready: {number} of {counted(len(nodes), 'daemon')}")
        subnets = _subnets(nodes)
        for running in nodes:
            while await running.unknown(subnets, inside, apart=apart):  # noqa: ASYNC110 - nothing tells us when
                await asyncio.sleep(_LOOK_AGAIN)

    async def progress() -> object:
        return await pods.progress() if pods else None, [await running.joins(inside) for running in nodes]

    try:
        await patience.patiently(join(), progress)
    except TimeoutError:
        words = pods.words if pods else _last_words(processes)
        if late := await _late(nodes, inside, words, apart=apart):
            raise Unavailable(late) from None
    if len(nodes) > 1:
        note(f"every node {'knows' if apart else 'has a route to'} every other")


def _subnets(nodes: Sequence[RunningNode]) -> AbstractSet[Net]:
    return {net for running in nodes if running.lease.is_set() for net in running.subnet_env().subnets}


def _last_words(processes: Processes) -> Callable[[str], Awaitable[str]]:
    async def words(name: str) -> str:
        return processes.last_words(name)

    return words


async def _late(
    nodes: Sequence[RunningNode], inside: Inside, words: Callable[[str], Awaitable[str]], *, apart: bool
) -> Problem | None:
    """Return what the first node lacks that lacks something, and what is to be said of its daemon."""
    subnets = _subnets(nodes)
    for running in nodes:
        name = running.spec.name
        if not running.lease.is_set():
            lacks = "no subnet.env"
        elif unknown := await running.unknown(subnets, inside, apart=apart):
            lacks = f"no way to {', '.join(sorted(map(str, unknown)))}"
        else:
            continue
        seen = f"{lacks}, and nothing has changed for {patience.SECONDS:.0f} s:\n{await words(name)}"
        return Problem(code="LAB-002", where=name, seen=seen)
    return None
