"""A running pod: a pause process that holds its namespaces, attached by the node's plugins."""

import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from weft.lab import filesystem, runtime
from weft.lab.children import Child
from weft.lab.inside import Inside, Room
from weft.lab.node import RunningNode
from weft.lab.processes import Processes
from weft.lab.report import PodReport
from weft.lab.spec import Pod

# Every Debian has it, it weighs 1 MB, and as it is not the first process of its pid namespace signals end it.
_PAUSE: Final = ("sleep", "infinity")


@dataclass(slots=True, kw_only=True)
class RunningPod:
    """A pod. `result` is what the last plugin answered to ADD."""

    spec: Pod
    room: Room
    sandbox: runtime.Sandbox
    pause: Child
    result: runtime.Result

    def report(self) -> PodReport:
        """Return what there is to see of it."""
        return PodReport(
            name=self.spec.name,
            node=self.spec.node,
            addresses=[ip["address"] for ip in self.result["ips"]],
            id=self.sandbox.id,
            netns=self.sandbox.netns,
        )


async def start(pod: Pod, node: RunningNode, inside: Inside, processes: Processes) -> RunningPod:
    """Start a pod on `node` and attach it. On failure nothing of it stays."""
    network = runtime.network_of(node.networks)
    room, netns = await inside.run(node.room, partial(filesystem.make_pod, pod.name))
    pause = await processes.children.start(room, _PAUSE, environ=processes.environ)
    sandbox = runtime.Sandbox(id=secrets.token_hex(32), netns=netns, name=pod.name)
    running = RunningPod(spec=pod, room=room, sandbox=sandbox, pause=pause, result={})
    try:
        running.result = await runtime.attach(_runner(node, processes), network, sandbox)
    except BaseException:
        await _end_sandbox(running, node, inside)
        raise
    return running


async def stop(pod: RunningPod, node: RunningNode, inside: Inside, processes: Processes) -> None:
    """Detach a pod, then end it."""
    network = runtime.network_of(node.networks)
    await runtime.detach(_runner(node, processes), network, pod.sandbox, pod.result)
    await _end_sandbox(pod, node, inside)


def _runner(node: RunningNode, processes: Processes) -> runtime.Run:
    async def run(program: str, variables: Mapping[str, str], stdin: bytes) -> runtime.Ran:
        return await processes.answer(node.room, program, variables, stdin)

    return run


async def _end_sandbox(pod: RunningPod, node: RunningNode, inside: Inside) -> None:
    await inside.run(node.room, partial(filesystem.forget_pod, pod.sandbox.netns))
    pod.pause.signal(signal.SIGKILL)
    await pod.pause.ended
    pod.room.close()
