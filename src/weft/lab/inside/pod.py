"""A running pod: a pause process holds its namespaces, the node's plugins attach it.

The runtime is `weft.cni.runtime.library`, as containerd uses it: loopback first, then the first network of the node's
directory. Attachments are remembered in the node's /var/lib/cni, where `weft cni` finds them.
"""

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from weft.cni.runtime.library import (
    Cache,
    CniError,
    NetworkList,
    Outcome,
    Ran,
    Runtime,
    RuntimeConf,
    Step,
    load_all,
    parse_list,
)
from weft.lab.inside import filesystem
from weft.lab.inside.filesystem import PLUGINS
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Child, Processes
from weft.lab.report import PodReport
from weft.lab.spec import Pod
from weft.model.attachment import Cidr
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_of
from weft.model.value import Value, replace
from weft.wire.cni import failure

T = TypeVar("T")

_INTERFACE: Final = "eth0"
# What containerd and CRI-O run before the network's own list.
_LOOPBACK: Final = parse_list(b'{"name": "cni-loopback", "cniVersion": "0.3.1", "plugins": [{"type": "loopback"}]}')

# Runs a program in the node: its path, the CNI variables, what it reads.
Run = Callable[[str, Mapping[str, str], bytes], Awaitable[Ran]]
# Every Debian has it, it weighs 1 MB, and as it is not the first process of its pid namespace signals end it.
_PAUSE: Final = ("sleep", "infinity")


class Sandbox(Value):
    """A container as plugins know it. `netns` is a path in the node."""

    id: str
    netns: str
    pod: Pod

    def conf(self, interface: str) -> RuntimeConf:
        """With the arguments that Kubernetes' runtimes pass."""
        names = ("K8S_POD_NAMESPACE", self.pod.namespace), ("K8S_POD_NAME", self.pod.name)
        pod = *names, ("K8S_POD_INFRA_CONTAINER_ID", self.id)
        asked = (("IP", self.pod.ip),) if self.pod.ip and interface == _INTERFACE else ()
        ports = [
            {"hostPort": each.outside, "containerPort": each.inside, "protocol": each.protocol.lower()}
            for each in self.pod.ports
        ]
        return RuntimeConf(
            container_id=self.id,
            netns=self.netns,
            ifname=interface,
            args=(("IgnoreUnknown", "1"), *pod, *asked),
            capability_args={"portMappings": ports} if ports else {},
        )


class NodeRuntime:
    """`networks` and `cache` are a node's `/etc/cni/net.d` and `/var/lib/cni` as the lab sees them."""

    def __init__(self, run: Run, *, networks: Path, cache: Path) -> None:
        self._run = run
        self._networks = networks
        self._cache = Cache(directory=cache)

    async def attach(self, sandbox: Sandbox) -> Outcome:
        """To loopback and to the network. On failure nothing stays. `Unavailable`."""
        runtime, network = self._runtime(), self._network(sandbox.pod.network)

        def work() -> Outcome:
            try:
                runtime.add(_LOOPBACK, sandbox.conf("lo"))
                return runtime.add(network, sandbox.conf(_INTERFACE))
            except CniError:
                # Each plugin by itself: one that refuses keeps none of the others from being asked.
                for listed, interface in ((network, _INTERFACE), (_LOOPBACK, "lo")):
                    for plugin in reversed(listed.plugins):
                        with suppress(CniError):  # the first failure is the one to tell
                            runtime.delete(replace(listed, plugins=(plugin,)), sandbox.conf(interface))
                raise

        return await _told(network, work)

    async def detach(self, sandbox: Sandbox) -> None:
        """`Unavailable` if a plugin refuses."""
        runtime, network = self._runtime(), self._network(sandbox.pod.network)

        def work() -> None:
            runtime.delete(network, sandbox.conf(_INTERFACE))
            runtime.delete(_LOOPBACK, sandbox.conf("lo"))

        await _told(network, work)

    def _network(self, name: str) -> NetworkList:
        """Without a name the first of the directory, as a runtime chooses it."""
        names, wrong = [], []
        for path, network in load_all(self._networks):
            if not isinstance(network, NetworkList):
                wrong.append(f"{path.name}: {network}")
            elif not name or network.name == name:
                return network
            else:
                names.append(network.name)
        if name and names:
            seen, expected = f"no network {name!r} is configured on the node", one_of(names, name)
            raise ConfigError(Problem("LAB-002", "--network", seen, expected=expected))
        raise Unavailable(_problem(str(self._networks), "; ".join(wrong) or "no network is configured there"))

    def _runtime(self) -> Runtime:
        """For use in a thread; its steps run in the present event loop."""
        loop = asyncio.get_running_loop()

        async def start(step: Step) -> Ran:
            variables = {"CNI_PATH": str(PLUGINS), **step.variables}
            return await self._run(str(PLUGINS / step.plugin), variables, step.stdin)

        def run(step: Step) -> Ran:
            try:
                return asyncio.run_coroutine_threadsafe(start(step), loop).result()
            except FileNotFoundError:
                raise failure(f'failed to find plugin "{step.plugin}" in path [{PLUGINS}]') from None

        return Runtime(run=run, cache=self._cache)


async def _told(network: NetworkList, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except CniError as error:
        raise Unavailable(_problem(f"network {network.name}", str(error))) from error


def _problem(where: str, seen: str) -> Problem:
    code = "CNI-001" if "failed to find plugin" in seen else "LAB-002"
    return Problem(code, where, seen)


class RunningPod(Value, frozen=False):
    """`outcome` is what the last plugin answered to ADD, None while it is being attached."""

    spec: Pod
    room: Room
    sandbox: Sandbox
    pause: Child
    outcome: Outcome | None = None

    @property
    def addresses(self) -> tuple[Cidr, ...]:
        return tuple(ip.address for ip in self.outcome.result.ips) if self.outcome else ()

    @property
    def host_end(self) -> str:
        """The last interface outside: a bridge comes before it."""
        interfaces = self.outcome.result.interfaces if self.outcome else ()
        return next((each.name for each in reversed(interfaces) if not each.sandbox), "")

    def report(self) -> PodReport:
        return PodReport(
            name=self.spec.name,
            node=self.spec.node,
            addresses=list(map(str, self.addresses)),
            id=self.sandbox.id,
            netns=self.sandbox.netns,
            host_end=self.host_end,
            ports=self.spec.ports,
            namespace=self.spec.namespace,
            labels=self.spec.labels,
        )


async def start(pod: Pod, node: RunningNode, inside: Inside, processes: Processes) -> RunningPod:
    """On failure nothing of it stays."""
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
