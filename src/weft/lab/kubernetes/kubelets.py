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
from weft.lab.inside.children import Child
from weft.lab.inside.node import RunningNode
from weft.lab.inside.processes import Processes
from weft.lab.kubernetes import ourimage, programs, server
from weft.lab.kubernetes.access import CERTIFICATE, KEY
from weft.lab.kubernetes.store import KubernetesStore
from weft.lab.spec import Lab
from weft.model.errors import Problem, Unavailable
from weft.model.text import counted

_SOCKET: Final = "/run/containerd/containerd.sock"
_KUBELET: Final = "/var/lib/kubelet"
_IMAGES: Final = Path("/run/lab/images")
_PATIENCE: Final = 120.0  # seconds
_LOOK_AGAIN: Final = 0.05  # seconds
_CONTAINERD: Final = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{ourimage.PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{filesystem.PLUGINS}"
conf_dir = "{filesystem.NETWORKS}"
"""

Note = Callable[[str], None]


class Kubelets:
    """The nodes' runtimes and kubelets. The images are made while the store starts."""

    def __init__(self, processes: Processes, lab: Lab, store: KubernetesStore) -> None:
        self._processes = processes
        self._lab = lab
        self._store = store

    async def load(self, nodes: Iterable[RunningNode]) -> None:
        """Start the nodes' runtimes, and give each the images of weft and of a pod's sandbox."""
        nodes = list(nodes)
        _IMAGES.mkdir()
        making = asyncio.create_task(asyncio.to_thread(ourimage.write_all, _IMAGES))
        for running in nodes:
            directory = filesystem.node_directory(running.spec.name, "containerd")
            (directory / "config.toml").write_text(_CONTAINERD)
            await self._start(running, "containerd", "--config=/var/lib/containerd/config.toml", "--log-level=warn")
        files = await making
        await asyncio.gather(*(self._import(running, files) for running in nodes))

    async def start(self, nodes: Iterable[RunningNode], note: Note) -> None:
        """Start kubelet and kube-proxy on each node, and wait until Kubernetes calls them ready."""
        for running in nodes:
            self._prepare(running)
            name = running.spec.name
            kubelet = (f"--config={_KUBELET}/config.json", f"--kubeconfig={_KUBELET}/kubeconfig")
            addresses = ",".join(str(underlay.address(family, running.spec.index).ip) for family in self._lab.families)
            await self._start(running, "kubelet", *kubelet, f"--hostname-override={name}", f"--node-ip={addresses}")
            await self._start(running, "kube-proxy", *self._proxy(name))
        await self._ready(note)

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
            "clusterDNS": [server.DNS[family] for family in self._lab.families[:1]],
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

    async def _import(self, running: RunningNode, files: Iterable[Path]) -> None:
        command = [programs.find("ctr", self._processes.environ), f"--address={_SOCKET}", "--namespace=k8s.io"]
        command += ["images", "import", "--snapshotter=overlayfs"]
        for file in files:
            # The node does not see the file: it is its input.
            ran = await self._processes.answer(running.room, [*command, "-"], {}, file.read_bytes())
            if ran.exit:
                words = ran.stderr.decode(errors="replace").strip()
                where = f"containerd of {running.spec.name}"
                raise Unavailable(Problem(code="LAB-002", where=where, seen=words))

    async def _start(self, running: RunningNode, name: str, *arguments: str) -> Child:
        command = [programs.find(name, self._processes.environ), *arguments]
        return await self._processes.logged(f"{running.spec.name}-{name}", running.room, command)

    async def _ready(self, note: Note) -> None:
        said = 0
        try:
            async with asyncio.timeout(_PATIENCE):
                while said < len(self._lab.nodes):
                    ready = sum(node.ready for node in await self._nodes())
                    if ready > said:
                        note(f"Ready: {ready} of {counted(len(self._lab.nodes), 'node')}")
                    said = max(ready, said)
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            raise self._late(await self._nodes()) from None

    async def _nodes(self) -> list["_Node"]:
        return msgspec.json.decode(await self._store.get("/api/v1/nodes"), type=_Nodes).items

    def _late(self, nodes: Iterable["_Node"]) -> Unavailable:
        there = {node.metadata.name: node for node in nodes}
        for wanted in self._lab.nodes:
            found = there.get(wanted.name)
            if found is None:
                words = self._processes.last_words(f"{wanted.name}-kubelet")
                return _failed(wanted.name, f"its kubelet has not registered it:\n{words}")
            if not found.ready:
                return _failed(wanted.name, found.words or "it says nothing of itself")
        return _failed("nodes", "they became ready too late")


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def words(self) -> str:
        return next((each.message for each in self.status.conditions if each.type == "Ready"), "")


class _Nodes(msgspec.Struct, frozen=True):
    items: list[_Node]


def _failed(where: str, seen: str) -> Unavailable:
    return Unavailable(Problem(code="LAB-002", where=where, seen=seen))
