"""The container runtime of a lab's nodes: `weft.cni.runtime.library`, with plugins that are started inside the node.

As containerd does it: loopback first, then the first network of the node's directory; attachments are remembered in
the node's `/var/lib/cni`, where `weft cni` finds them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
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
from weft.lab.inside.filesystem import PLUGINS
from weft.lab.spec import Pod
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


class Sandbox(Value):
    """A container of a pod, as plugins know it. `netns` is a path in the node."""

    id: str
    netns: str
    pod: Pod

    def conf(self, interface: str) -> RuntimeConf:
        """Return what plugins are told of it, with the arguments that Kubernetes' runtimes pass."""
        pod = ("K8S_POD_NAMESPACE", "lab"), ("K8S_POD_NAME", self.pod.name), ("K8S_POD_INFRA_CONTAINER_ID", self.id)
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
    """One node's. `networks` and `cache` are its `/etc/cni/net.d` and `/var/lib/cni` as the lab sees them."""

    def __init__(self, run: Run, *, networks: Path, cache: Path) -> None:
        self._run = run
        self._networks = networks
        self._cache = Cache(directory=cache)

    async def attach(self, sandbox: Sandbox) -> Outcome:
        """Add the container to loopback and to the network. On failure nothing stays. `Unavailable`."""
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
        """Take the container off the network and off loopback. `Unavailable` if a plugin refuses."""
        runtime, network = self._runtime(), self._network(sandbox.pod.network)

        def work() -> None:
            runtime.delete(network, sandbox.conf(_INTERFACE))
            runtime.delete(_LOOPBACK, sandbox.conf("lo"))

        await _told(network, work)

    def _network(self, name: str) -> NetworkList:
        """Return the network of this name, or without one the first of the directory, as a runtime chooses it."""
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
            raise ConfigError(Problem(code="LAB-002", where="--network", seen=seen, expected=expected))
        seen = "; ".join(wrong) or "no network is configured there"
        raise Unavailable(_problem(str(self._networks), seen))

    def _runtime(self) -> Runtime:
        """Return a runtime for use in a thread; its steps are taken by the event loop that is running now."""
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
    return Problem(code=code, where=where, seen=seen)
