"""Waits until the daemons of all nodes know each other, and the ways between them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weft.beside.tasks import awaited
from weft.lab.inside import control, node
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Processes
from weft.lab.links import Cut
from weft.model.errors import Problem, Unavailable
from weft.model.net import Net
from weft.model.node.nodestate import NodeState
from weft.model.text import counted

if TYPE_CHECKING:
    from weft.lab.kubernetes.kubelets import Kubelets

_LOOK_AGAIN: Final = 0.01  # seconds; all routes come within milliseconds of the last daemon's readiness
_MEETING_SECONDS: Final = 0.1  # nodes of a mesh look for ways for seconds
_PROGRESS_SECONDS: Final = 0.5  # between two looks whether there is any progress
SECONDS: Final = 45.0  # Kubernetes waits 40 s before it starts a container a third time
_UNSEEN: Final = object()

T = TypeVar("T")
Note = Callable[[str], None]


async def joined(
    nodes: Sequence[RunningNode], inside: Inside, processes: Processes, note: Note, pods: "Kubelets | None"
) -> None:
    """Wait until each node has a lease and a route to every other, as long as there is progress.

    `pods` starts the daemons where they are pods. `Unavailable` names a node that lacks a route; between segments, some
    back ends have none.
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
        await patiently(join(), progress)
    except TimeoutError:
        if late := await _late(nodes, inside, apart=apart):
            name, lacks = late
            words = await pods.words(name) if pods else processes.last_words(name)
            seen = f"{lacks}, and nothing has changed for {SECONDS:.0f} s:\n{words}"
            raise Unavailable(Problem("LAB-002", name, seen)) from None
    if len(nodes) > 1:
        note(f"every node {'knows' if apart else 'has a route to'} every other")


async def met(
    nodes: Mapping[str, RunningNode], apart: Collection[Cut], inside: Inside, note: Note, *, sealed: bool
) -> None:
    """Wait until each node of a mesh has found a way to every other.

    That is one by another node to those that it does not reach itself. Where packets are `sealed`, it has answered to
    the others: before, WireGuard has not met there. `Unavailable` names two between which there is none.
    """

    async def unmet() -> list[tuple[str, str]]:
        states = {name: await control.state(inside, each.room, each.process) for name, each in nodes.items()}
        subnets = {name: {str(net) for net in each.subnet_env().subnets} for name, each in nodes.items()}
        straight = [
            (cut.source, cut.target) for cut in apart if not _by_another(states[cut.source], subnets[cut.target])
        ]
        unproved = [(name, each) for name, state in states.items() if sealed for each in _unproved(state)]
        return straight + unproved

    async def found() -> None:
        while await unmet():  # noqa: ASYNC110 - nothing tells us when
            await asyncio.sleep(_MEETING_SECONDS)

    try:
        await patiently(found(), unmet)
    except TimeoutError:
        source, target = (await unmet())[0]
        seen = f"it has found no way to {target}, and nothing has changed for {SECONDS:.0f} s"
        raise Unavailable(Problem("LAB-002", source, seen)) from None
    note("every node has found a way to every other")


def _unproved(state: NodeState | None) -> list[str]:
    """The peers to which packets go straight, though none has come back."""
    peers = () if state is None or state.mesh is None else state.mesh.peers
    straight = [peer for peer in peers if not peer.us and not peer.relays]
    return [peer.name for peer in straight if all(path.answered is None for path in peer.paths)]


def _by_another(state: NodeState | None, subnets: AbstractSet[str]) -> bool:
    peers = () if state is None else state.peers
    return any(peer.way.startswith("via ") and not subnets.isdisjoint(peer.subnets) for peer in peers)


def _subnets(nodes: Sequence[RunningNode]) -> AbstractSet[Net]:
    return {net for running in nodes if running.lease.is_set() for net in running.subnet_env().subnets}


async def _late(nodes: Sequence[RunningNode], inside: Inside, *, apart: bool) -> tuple[str, str] | None:
    subnets = _subnets(nodes)
    for running in nodes:
        if not running.lease.is_set():
            return running.spec.name, "no subnet.env"
        if unknown := await running.unknown(subnets, inside, apart=apart):
            return running.spec.name, f"no way to {', '.join(sorted(map(str, unknown)))}"
    return None


class Patience:
    """Over once what is watched has stayed the same for `seconds`."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last: object = _UNSEEN
        self._since = clock()

    def check(self, progress: object) -> None:
        """`TimeoutError` if nothing has changed for too long."""
        now = self._clock()
        if progress != self._last:
            self._last, self._since = progress, now
        elif now - self._since > self._seconds:
            raise TimeoutError


async def patiently(work: Coroutine[Any, Any, T], progress: Callable[[], Awaitable[object]]) -> T:
    """`TimeoutError` once `progress` has stayed the same for too long."""
    patience = Patience()
    task = awaited(work)
    try:
        while not task.done():
            patience.check(await progress())
            await asyncio.wait((task,), timeout=_PROGRESS_SECONDS)
        return task.result()
    finally:
        task.cancel()
