"""The Container Runtime Interface as a kubelet speaks it, one call after the other.

A call that the runtime refuses raises `grpclib.GRPCError` with the runtime's words.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grpclib import GRPCError, Status
from grpclib.client import Channel

from tests.runtime import cri_pb2 as pb
from tests.runtime.cri_grpc import RuntimeServiceStub

SECONDS: Final = 60
_NAMESPACES: Final = pb.NamespaceOption(pid=pb.CONTAINER)  # as kubelets ask for, unless a pod shares its processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of the host that leads to the sandbox."""

    host: int
    sandbox: int
    protocol: int = pb.TCP
    ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A pod: its id, its addresses, its network namespace's path on the node, and what it was made of."""

    id: str
    ips: tuple[str, ...]
    netns: str
    config: pb.PodSandboxConfig


class Cri:
    """The runtime behind a socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def conditions(self) -> dict[str, bool]:
        """Tell `RuntimeReady` and `NetworkReady`."""
        return {condition.type: condition.status for condition in self._conditions()}

    def reasons(self) -> str:
        """Tell why conditions are not met."""
        return " ".join(condition.message for condition in self._conditions())

    def run(self, name: str, *, cgroup: str, ports: Sequence[Port] = (), attempt: int = 0) -> Sandbox:
        """RunPodSandbox: the pause container, attached by the plugins."""
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, uid=name, namespace="tests", attempt=attempt),
            hostname=name,
            port_mappings=[
                pb.PortMapping(
                    protocol=port.protocol, container_port=port.sandbox, host_port=port.host, host_ip=port.ip
                )
                for port in ports
            ],
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=cgroup,
                security_context=pb.LinuxSandboxSecurityContext(namespace_options=_NAMESPACES),
            ),
        )
        made = self._call("RunPodSandbox", pb.RunPodSandboxRequest(config=config)).pod_sandbox_id
        info = json.loads(self._status(made).info["info"])
        return Sandbox(id=made, ips=self.ips(made), netns=_network_namespace(info), config=config)

    def container(self, sandbox: Sandbox, image: str, *, name: str = "main") -> str:
        """Create and start a container that joins a sandbox and does what its image says; returns its id."""
        attempt = sandbox.config.metadata.attempt
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=pb.ImageSpec(image=image),
            linux=pb.LinuxContainerConfig(
                security_context=pb.LinuxContainerSecurityContext(namespace_options=_NAMESPACES)
            ),
        )
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox.id, config=config, sandbox_config=sandbox.config)
        made = self._call("CreateContainer", request).container_id
        self._call("StartContainer", pb.StartContainerRequest(container_id=made))
        return str(made)

    def exec(self, container: str, *command: str) -> str:
        """Return what a command prints in a container. It must succeed."""
        ran = self._call("ExecSync", pb.ExecSyncRequest(container_id=container, cmd=command, timeout=SECONDS))
        assert ran.exit_code == 0, f"{command} ended with {ran.exit_code}: {ran.stdout!r} {ran.stderr!r}"
        return str(ran.stdout.decode())

    def ready(self, sandbox: str) -> bool:
        try:
            return bool(self._status(sandbox).status.state == pb.SANDBOX_READY)
        except GRPCError as error:
            if error.status == Status.NOT_FOUND:
                return False
            raise

    def ips(self, sandbox: str) -> tuple[str, ...]:
        """The addresses of a sandbox."""
        network = self._status(sandbox).status.network
        return (network.ip, *(more.ip for more in network.additional_ips))

    def sandboxes(self) -> dict[str, str]:
        """All sandboxes: id and name."""
        return {item.id: item.metadata.name for item in self._call("ListPodSandbox", pb.ListPodSandboxRequest()).items}

    def stop(self, sandbox: str) -> None:
        self._call("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))

    def remove(self, sandbox: str) -> None:
        self._call("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    def _conditions(self) -> list[pb.RuntimeCondition]:
        return list(self._call("Status", pb.StatusRequest()).status.conditions)

    def _status(self, sandbox: str) -> Any:
        return self._call("PodSandboxStatus", pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True))

    def _call(self, method: str, request: Any) -> Any:
        async def ask() -> Any:
            async with Channel(path=str(self.socket)) as channel:
                return await getattr(RuntimeServiceStub(channel), method)(request, timeout=SECONDS)

        return asyncio.run(ask())


def _network_namespace(info: Any) -> str:
    """The path in the runtime specification of a sandbox, which runtimes tell when they are asked for more."""
    namespaces = info["runtimeSpec"]["linux"]["namespaces"]
    return str(next(namespace["path"] for namespace in namespaces if namespace["type"] == "network"))
