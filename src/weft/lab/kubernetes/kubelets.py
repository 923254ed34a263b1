"""Nodes of Kubernetes: containerd, kubelet and kube-proxy in each node of a lab, which then runs weft as a pod."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from weft.lab import cgroups
from weft.lab.inside import filesystem, underlay
from weft.lab.inside.daemons import patiently
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Child, Processes, listens
from weft.lab.kubernetes import images, programs
from weft.lab.kubernetes.programs import CERTIFICATE, KEY
from weft.lab.kubernetes.store import KubernetesStore
from weft.lab.spec import Lab
from weft.model.errors import Problem, Unavailable
from weft.model.text import counted
from weft.model.value import Value

_SOCKET: Final = "/run/containerd/containerd.sock"
_KUBELET: Final = "/var/lib/kubelet"
_TAIL: Final = 600  # bytes of a log that an error shows
_LOOK_AGAIN: Final = 0.05  # seconds
_CONTAINERD: Final = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{filesystem.PLUGINS}"
conf_dir = "{filesystem.NETWORKS}"
"""

Note = Callable[[str], None]


class _Condition(Value):
    type: str
    status: str
    message: str = ""


class _NodeStatus(Value):
    conditions: tuple[_Condition, ...] = ()


class _Meta(Value):
    name: str


class Node(Value):
    metadata: _Meta
    status: _NodeStatus = _NodeStatus()

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def words(self) -> str:
        return next((each.message for each in self.status.conditions if each.type == "Ready"), "")


class Nodes(Value):
    items: list[Node]


class _Waiting(Value):
    reason: str = ""
    message: str = ""


class _Terminated(Value, rename="camel"):
    reason: str = ""
    exit_code: int = 0


class _ContainerState(Value):
    waiting: _Waiting | None = None
    running: dict[str, str] | None = None
    terminated: _Terminated | None = None

    @property
    def words(self) -> str:
        if self.waiting is not None:
            return f"{self.waiting.reason}: {self.waiting.message}".rstrip(": ")
        if self.terminated is not None:
            return f"{self.terminated.reason}, status {self.terminated.exit_code}"
        return "runs" if self.running is not None else "not started"


class _Container(Value, rename="camel"):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = _ContainerState()


class PodStatus(Value, rename="camel"):
    phase: str = ""
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()

    @property
    def words(self) -> str:
        containers = [*self.init_container_statuses, *self.container_statuses]
        return "; ".join(f"{each.name}: {each.state.words}" for each in containers) or self.phase


class _PodSpec(Value, rename="camel"):
    node_name: str = ""


class Pod(Value):
    spec: _PodSpec
    status: PodStatus = PodStatus()


class Pods(Value):
    items: list[Pod]


class Kubelets:
    def __init__(self, processes: Processes, lab: Lab, store: KubernetesStore) -> None:
        self._processes = processes
        self._lab = lab
        self._store = store
        self._kubelets: dict[str, Child] = {}

    async def start(self, nodes: Iterable[RunningNode]) -> None:
        """Start the nodes' runtimes, which have the images already, and the rest once the API serves them."""
        nodes = list(nodes)
        root = await images.find(self._processes)
        await asyncio.gather(*(self._start_containerd(running, root) for running in nodes))

        await self._store.serves.wait()
        for running in nodes:
            self._prepare(running)
            name = running.spec.name
            kubelet = [f"--config={_KUBELET}/config.json", f"--kubeconfig={_KUBELET}/kubeconfig"]
            addresses = ",".join(str(underlay.address(family, running.spec.index).ip) for family in self._lab.families)
            kubelet += [f"--hostname-override={name}", f"--node-ip={addresses}"]
            self._kubelets[name] = await self._start(running, "kubelet", *kubelet)
        await self._store.answers.wait()
        for running in nodes:
            await self._start(running, "kube-proxy", *self._proxy(running.spec.name))

    async def _start_containerd(self, running: RunningNode, root: Path) -> None:
        directory = filesystem.node_directory(running.spec.name, "containerd")
        await self._store.run("cp", "--archive", f"{root}/.", str(directory))
        (directory / "config.toml").write_text(_CONTAINERD)
        flags = ("--config=/var/lib/containerd/config.toml", "--log-level=warn")
        containerd = await self._start(running, "containerd", *flags)
        await listens(containerd, _SOCKET, f"containerd of {running.spec.name}")  # else its kubelet gives up

    def _prepare(self, running: RunningNode) -> None:
        name = running.spec.name
        directory = filesystem.node_directory(name, "kubelet")
        for source in (CERTIFICATE, KEY):
            shutil.copy(source, directory / source.name)
        (directory / "manifests").mkdir()
        (directory / "config.json").write_text(json.dumps(self._config(name)))
        (directory / "kubeconfig").write_text(self._store.kubeconfig(f"system:node:{name}"))
        (directory / "kube-proxy.kubeconfig").write_text(self._store.kubeconfig("system:kube-proxy"))

    def _config(self, name: str) -> dict[str, Any]:
        everything = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": f"{_KUBELET}/{CERTIFICATE.name}",
            "tlsPrivateKeyFile": f"{_KUBELET}/{KEY.name}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.path(self._lab.name, name)}",
            "clusterDNS": [programs.DNS[family] for family in self._lab.families[:1]],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "enforceNodeAllocatable": [],
            "evictionHard": dict.fromkeys(everything, "0%"),
            "imageGCHighThresholdPercent": 100,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "oomScoreAdj": 0,
            "staticPodPath": f"{_KUBELET}/manifests",
            "volumePluginDir": f"{_KUBELET}/volumeplugins",
            "registerWithTaints": [],
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
        }

    def _proxy(self, name: str) -> list[str]:
        pools = (self._store.network.v4, self._store.network.v6)
        return [
            f"--kubeconfig={_KUBELET}/kube-proxy.kubeconfig",
            f"--hostname-override={name}",
            f"--cluster-cidr={','.join(str(pool.network) for pool in pools if pool is not None)}",
            f"--proxy-mode={'nftables' if self._lab.nftables else 'iptables'}",
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
            "--healthz-bind-address=0.0.0.0:10256",
        ]

    async def _start(self, running: RunningNode, name: str, *arguments: str) -> Child:
        command = [programs.find(name, self._processes.environ), *arguments]
        return await self._processes.logged(f"{running.spec.name}-{name}", running.room, command)

    async def ready(self, note: Note) -> None:
        """Wait until Kubernetes calls all nodes ready, as long as there is progress. `Unavailable`."""

        async def all_ready() -> None:
            said = 0
            while said < len(self._lab.nodes):
                self._check()
                ready = sum(node.ready for node in await self._nodes())
                if ready > said:
                    note(f"Ready: {ready} of {counted(len(self._lab.nodes), 'node')}")
                said = max(ready, said)
                await asyncio.sleep(_LOOK_AGAIN)

        try:
            await patiently(all_ready(), self.progress)
        except TimeoutError:
            if late := await self._late():
                raise late from None

    async def progress(self) -> object:
        """What the API says of nodes and of daemons' pods: another value after each step."""
        return [node.words for node in await self._nodes()], [pod.status for pod in await self._pods()]

    async def words(self, node: str) -> str:
        """What the API says of a node's daemon, and the end of its log."""
        pods = [pod for pod in await self._pods() if pod.spec.node_name == node]
        logs = filesystem.node_directory(node, "pods").glob(f"{images.NAMESPACE}_*/*/*.log")
        latest = sorted(logs, key=lambda log: log.stat().st_mtime_ns)[-1:]
        ends = [path.read_bytes()[-_TAIL:].decode(errors="replace") for path in latest]
        return "\n".join([*(pod.status.words for pod in pods), *ends]) or "the API has no pod of its daemon's on it"

    def _check(self) -> None:
        """`Unavailable` if a kubelet has ended: it would not come again by itself."""
        for name, kubelet in self._kubelets.items():
            if kubelet.ended.done():
                words = self._processes.last_words(f"{name}-kubelet")
                raise _failed(f"kubelet of {name}", f"it ended with status {kubelet.ended.result()}:\n{words}")

    async def _nodes(self) -> list[Node]:
        return msgspec.json.decode(await self._store.get("/api/v1/nodes"), type=Nodes).items

    async def _pods(self) -> list[Pod]:
        path = f"/api/v1/namespaces/{images.NAMESPACE}/pods"
        return msgspec.json.decode(await self._store.get(path), type=Pods).items

    async def _late(self) -> Unavailable | None:
        there = {node.metadata.name: node for node in await self._nodes()}
        for wanted in self._lab.nodes:
            found = there.get(wanted.name)
            if found is None:
                words = self._processes.last_words(f"{wanted.name}-kubelet")
                return _failed(wanted.name, f"its kubelet has not registered it:\n{words}")
            if not found.ready:
                words = found.words or "it says nothing of itself"
                return _failed(wanted.name, f"{words}\n{await self.words(wanted.name)}")
        return None


def _failed(where: str, seen: str) -> Unavailable:
    return Unavailable(Problem("LAB-002", where, seen))
