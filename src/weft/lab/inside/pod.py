"""A running pod: a pause process that holds its namespaces, attached by the node's plugins."""

import secrets
import signal
from collections.abc import Mapping
from functools import partial
from typing import Final

from weft.cni.runtime.library import Outcome, Ran
from weft.lab.inside import filesystem
from weft.lab.inside.children import Child
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Processes
from weft.lab.inside.runtime import NodeRuntime, Sandbox
from weft.lab.report import PodReport
from weft.lab.spec import Pod
from weft.model.attachment import Cidr
from weft.model.value import Value

# Every Debian has it, it weighs 1 MB, and as it is not the first process of its pid namespace signals end it.
_PAUSE: Final = ("sleep", "infinity")


class RunningPod(Value, frozen=False):
    """A pod. `outcome` is what the last plugin answered to ADD, None while it is attached."""

    spec: Pod
    room: Room
    sandbox: Sandbox
    pause: Child
    outcome: Outcome | None = None

    @property
    def addresses(self) -> tuple[Cidr, ...]:
        """Its addresses, with their prefix lengths."""
        return tuple(ip.address for ip in self.outcome.result.ips) if self.outcome else ()

    @property
    def host_end(self) -> str:
        """The host's end of its link, where the plugins have said it: a bridge comes before it."""
        interfaces = self.outcome.result.interfaces if self.outcome else ()
        return next((each.name for each in reversed(interfaces) if not each.sandbox), "")

    def report(self) -> PodReport:
        """Return what there is to see of it."""
        return PodReport(
            name=self.spec.name,
            node=self.spec.node,
            addresses=list(map(str, self.addresses)),
            id=self.sandbox.id,
            netns=self.sandbox.netns,
            host_end=self.host_end,
            ports=self.spec.ports,
        )


async def start(pod: Pod, node: RunningNode, inside: Inside, processes: Processes) -> RunningPod:
    """Start a pod on `node` and attach it. On failure nothing of it stays."""
    room, netns = await inside.run(node.room, partial(filesystem.make_pod, pod.name, inside.proc))
    pause = await processes.children.start(room, _PAUSE, environ=processes.environ)
    sandbox = Sandbox(id=secrets.token_hex(32), netns=netns, pod=pod)
    running = RunningPod(spec=pod, room=room, sandbox=sandbox, pause=pause)
    try:
        running.outcome = await _runtime(node, processes).attach(sandbox)
    except BaseException:
        await _end_sandbox(running, node, inside)
        raise
    return running


async def stop(pod: RunningPod, node: RunningNode, inside: Inside, processes: Processes) -> None:
    """Detach a pod, then end it."""
    await _runtime(node, processes).detach(pod.sandbox)
    await _end_sandbox(pod, node, inside)


def _runtime(node: RunningNode, processes: Processes) -> NodeRuntime:
    async def run(program: str, variables: Mapping[str, str], stdin: bytes) -> Ran:
        return await processes.answer(node.room, [program], variables, stdin)

    return NodeRuntime(run, networks=node.networks, cache=node.attachments)


async def _end_sandbox(pod: RunningPod, node: RunningNode, inside: Inside) -> None:
    await inside.run(node.room, partial(filesystem.forget_pod, pod.sandbox.netns))
    pod.pause.signal(signal.SIGKILL)
    await pod.pause.ended
    pod.room.close()
