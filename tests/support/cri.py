"""The Container Runtime Interface as a kubelet speaks it, one call after the other.

A call that the runtime refuses raises `grpclib.GRPCError` with the runtime's words.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grpclib.client import Channel

from tests.support import cri_pb2 as pb
from tests.support.cri_grpc import RuntimeServiceStub

SECONDS: Final = 60


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
        answer = self._call("Status", pb.StatusRequest())
        return {condition.type: condition.status for condition in answer.status.conditions}

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
            linux=pb.LinuxPodSandboxConfig(cgroup_parent=cgroup),
        )
        made = self._call("RunPodSandbox", pb.RunPodSandboxRequest(config=config)).pod_sandbox_id
        answer = self._status(made)
        network = answer.status.network
        return Sandbox(
            id=made,
            ips=(network.ip, *(more.ip for more in network.additional_ips)),
            netns=_network_namespace(json.loads(answer.info["info"])),
            config=config,
        )

    def container(self, sandbox: Sandbox, image: str, *, name: str = "main") -> str:
        """Create and start a container that joins a sandbox and does what its image says; returns its id."""
        attempt = sandbox.config.metadata.attempt
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt), image=pb.ImageSpec(image=image)
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
        return bool(self._status(sandbox).status.state == pb.SANDBOX_READY)

    def sandboxes(self) -> dict[str, str]:
        """All sandboxes: id and name."""
        return {item.id: item.metadata.name for item in self._call("ListPodSandbox", pb.ListPodSandboxRequest()).items}

    def stop(self, sandbox: str) -> None:
        self._call("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))

    def remove(self, sandbox: str) -> None:
        self._call("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    def _status(self, sandbox: str) -> Any:
        return self._call("PodSandboxStatus", pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True))

    def _call(self, method: str, request: Any) -> Any:
        async def ask() -> Any:
            async with Channel(path=str(self.socket)) as channel:
                return await getattr(RuntimeServiceStub(channel), method)(request, timeout=SECONDS)

        return asyncio.run(ask())


def _network_namespace(info: Any) -> str:
    """The path in the runtime specification of a sandbox, which containerd tells when it is asked for more."""
    namespaces = info["runtimeSpec"]["linux"]["namespaces"]
    return str(next(namespace["path"] for namespace in namespaces if namespace["type"] == "network"))
