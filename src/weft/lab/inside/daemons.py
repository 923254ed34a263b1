"""Waits until the daemons of all nodes know each other, however they were started."""

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from weft.lab.inside import node
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Processes
from weft.model.errors import Problem, Unavailable
from weft.model.net import Net
from weft.model.text import counted

_PATIENCE: Final = 30.0  # seconds until a start counts as failed, and
_PATIENCE_PER_NODE: Final = 1.0
_LOOK_AGAIN: Final = 0.01  # seconds; all routes come within milliseconds of the last daemon's readiness

Note = Callable[[str], None]


async def joined(nodes: Sequence[RunningNode], inside: Inside, processes: Processes, note: Note) -> None:
    """Wait until each node has a lease and a route to every other. `Unavailable` names one that has not.

    Between segments there may be none, with a back end that needs neighbours for it.
    """
    subnets: set[Net] = set()
    apart = len({running.spec.segment for running in nodes}) > 1
    try:
        async with asyncio.timeout(_PATIENCE + _PATIENCE_PER_NODE * len(nodes)):
            for number, running in enumerate(nodes, 1):
                await node.daemon_ready(running, processes)
                note(f"ready: {number} of {counted(len(nodes), 'daemon')}")
            subnets = {net for running in nodes for net in running.subnet_env().subnets}
            for running in nodes:
                while not await running.knows(subnets, inside, apart=apart):  # noqa: ASYNC110 - nothing tells us when
                    await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        raise Unavailable(await _late(nodes, subnets, inside, processes, apart=apart)) from None
    if len(nodes) > 1:
        note(f"every node {'knows' if apart else 'has a route to'} every other")


async def _late(
    nodes: Sequence[RunningNode], subnets: AbstractSet[Net], inside: Inside, processes: Processes, *, apart: bool
) -> Problem:
    for running in nodes:
        name = running.spec.name
        if not running.lease.is_set():
            seen = f"no subnet.env in time:\n{processes.last_words(name)}"
        elif not await running.knows(subnets, inside, apart=apart):
            seen = f"ready, but without a route to a peer:\n{processes.last_words(name)}"
        else:
            continue
        return Problem(code="LAB-002", where=f"weftd of {name}", seen=seen)
    return Problem(code="LAB-002", where="weftd", seen="all are ready, a moment too late")
