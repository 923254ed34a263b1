"""The lab's store when that is Kubernetes' API: etcd, API server and controller manager in the lab's namespaces."""

import asyncio
import base64
import json
from pathlib import Path
from socket import socket
from typing import Any, Final

import msgspec
import yaml

from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS
from weft.lab.inside import filesystem, underlay
from weft.lab.inside.etcd import EtcdStore
from weft.lab.inside.processes import Child, Processes
from weft.lab.inside.relay import relay
from weft.lab.kubernetes import programs
from weft.lab.kubernetes.programs import CERTIFICATE, HOME, PORT, WEFT, Accounts, openssl
from weft.lab.manifests import listed
from weft.lab.places import KUBECONFIG
from weft.lab.spec import Lab, Node
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.value import Secret, Value, replace

Object = dict[str, Any]

API: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
ADMIN: Final = "admin"
_PATIENCE: Final = 60.0  # seconds
_READY: Final = "/readyz"
_LOOK_AGAIN: Final = 0.02  # seconds; it does not say when it is ready
_ENOUGH: Final = ("node-ipam-controller",)  # where no kubelet runs pods
# The roles that the API makes for Kubernetes' own programs, for which it waits a second and takes half of one.
_NET_CONF: Final = "net-conf.json"
_CONFIG_MAP: Final = "/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg"
_ROLES: Final = ("rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes")


class _ConfigMap(Value):
    data: dict[str, str]


class KubernetesStore:
    """With weft's account and rights from its own manifest, and the lab's nodes."""

    def __init__(self, processes: Processes, lab: Lab, outside: socket | None = None) -> None:
        """`outside` is a listening socket of the machine, by which programs there reach the API."""
        self.where = f"https://{underlay.endpoint(lab.families, PORT)}"
        self.accounts = Accounts(self.where)
        self.network = parse_netconf(lab.network, backends=BACKENDS)
        self._etcd = EtcdStore(processes, lab)
        self._processes = processes
        self._lab = lab
        self._outside = outside
        self._address = underlay.address(lab.families[0]).ip
        self._api: Child | None = None
        self.serves = asyncio.Event()  # administrators and kubelets, who need no roles
        self.answers = asyncio.Event()  # everybody

    async def start(self) -> None:
        """Make certificate and tokens while etcd starts."""
        HOME.mkdir()
        await self._etcd.start()
        nodes = [f"system:node:{node.name}" for node in self._lab.nodes]
        self.accounts.write([ADMIN, WEFT, programs.CONTROLLERS, programs.SCHEDULER, "system:kube-proxy", *nodes])
        families = self._lab.families
        first = [programs.FIRST[family] for family in families]
        await self.run(*openssl(self._program("openssl"), first, families, len(self._lab.nodes)))

    async def ready(self) -> None:
        """Put weft's manifest and the nodes there once the API answers."""
        await self._etcd.ready()
        command = programs.api(self._program(API), self._etcd.where, self._lab.families)
        self._api = await self._processes.logged(API, None, command)
        await self._answered(self._api, f"{_READY}?{'&'.join(f'exclude=poststarthook/{hook}' for hook in _ROLES)}")
        self.serves.set()
        entries = [] if self._lab.bare else _objects(self._lab)
        if not self._lab.kubelets:
            entries = [entry for entry in entries if entry["kind"] != "DaemonSet"] + _nodes(self._lab)
        if entries:
            await self.create(entries)
        await self._answered(self._api, _READY)
        self.answers.set()
        if self._lab.kubelets and self._lab.policies:
            namespaces_first = sorted(self._lab.policies, key=lambda each: each["kind"] != "Namespace")
            await self._kubectl("apply", namespaces_first)
        await self._start_controllers()
        if self._outside is not None:
            await relay(self._outside, str(self._address), PORT)
            host, port = self._outside.getsockname()[:2]
            self._processes.leave(KUBECONFIG, self.kubeconfig(ADMIN, f"https://{host}:{port}"))

    async def _start_controllers(self) -> None:
        only = () if self._lab.kubelets else _ENOUGH
        config = self.accounts.file(programs.CONTROLLERS)
        command = programs.controllers(self._program(CONTROLLERS), config, self.network, only=only)
        await self._processes.logged(CONTROLLERS, None, command)
        if self._lab.kubelets:
            command = programs.scheduler(self._program(SCHEDULER), self.accounts.file(programs.SCHEDULER))
            await self._processes.logged(SCHEDULER, None, command)

    async def create(self, entries: list[Object]) -> None:
        await self._kubectl("create", entries)

    async def _kubectl(self, verb: str, entries: list[Object]) -> None:
        kubectl = (self._program("kubectl"), f"--kubeconfig={self.accounts.file(ADMIN)}")
        await self.run(*kubectl, verb, "--validate=false", "-f", "-", stdin=json.dumps(listed(entries)))

    async def run(self, *command: str, stdin: str = "") -> None:
        """`Unavailable` with what it said if it fails."""
        ran = await self._processes.answer(None, command, {}, stdin.encode())
        if ran.exit:
            raise Unavailable(Problem("LAB-002", Path(command[0]).name, ran.stderr.decode(errors="replace").strip()))

    async def state(self) -> str:
        if self._api is not None and self._api.ended.done():
            return f"exited {self._api.ended.result()}"
        return "ready" if await self._is_ready(_READY) else "silent"

    async def configuration(self) -> str:
        """The ConfigMap's, or that of each node's file."""
        if not self._lab.kubelets:
            return self._lab.network
        held = msgspec.json.decode(await self.get(_CONFIG_MAP), type=_ConfigMap)
        return held.data.get(_NET_CONF, self._lab.network)

    async def configure(self, network: str) -> None:
        """`ConfigError` where it is in the ConfigMap."""
        if self._lab.kubelets:
            hint = "'kubectl -n kube-flannel edit configmap kube-flannel-cfg' changes it there."
            seen = "the network configuration of Kubernetes nodes is a ConfigMap"
            raise ConfigError(Problem("LAB-001", "weft lab config set", seen, hint=hint))
        self._lab = replace(self._lab, network=network)
        for node in self._lab.nodes:
            self.prepare(node)

    def flags(self, node: Node) -> list[str]:  # noqa: ARG002 - the same for all
        return ["--kube-subnet-mgr", f"--kubeconfig-file={filesystem.KUBE_FLANNEL}/kubeconfig"]

    def prepare(self, node: Node) -> None:
        """The network configuration and a kubeconfig of weft's account."""
        directory = filesystem.node_directory(node.name, "kube-flannel")
        (directory / _NET_CONF).write_text(self._lab.network)
        config = directory / "kubeconfig"
        config.touch(mode=0o600)
        config.write_text(self.kubeconfig(WEFT))

    def kubeconfig(self, user: str, server: str = "") -> str:
        """With the certificate in it, for what does not see the lab's files."""
        authority = base64.b64encode(CERTIFICATE.read_bytes()).decode()
        return self.accounts.kubeconfig(user, server=server, authority={"certificate-authority-data": authority})

    async def _answered(self, api: Child, path: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await self._is_ready(path):
                    if api.ended.done():
                        raise self._failed(f"it ended with status {api.ended.result()}")
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            raise self._failed(f"not ready for {_PATIENCE:.0f} s") from None

    async def _is_ready(self, path: str) -> bool:
        try:
            await self.get(path)
        except Unavailable:
            return False
        return True

    async def get(self, path: str) -> bytes:
        """As administrator. Raises `Unavailable`."""
        # Late: while etcd starts.
        from weft.cluster.kube.access import Access, Pem
        from weft.cluster.kube.client import Client
        from weft.cluster.kube.credentials import Fixed

        credentials = Fixed(token=Secret(self.accounts.token(ADMIN)))
        client = Client(Access(url=self.where, ca=Pem(file=str(CERTIFICATE)), credentials=credentials))
        try:
            return await client.get(path)
        finally:
            client.close()

    def _failed(self, seen: str) -> Unavailable:
        return Unavailable(Problem("STORE-001", "the lab's API server", f"{seen}:\n{self._processes.last_words(API)}"))

    def _program(self, name: str) -> str:
        return programs.find(name, self._processes.environ)


def manifest(name: str = "weft") -> str:
    """deploy/kubernetes.yaml, or another of deploy/: copies lie beside this module."""
    return Path(__file__).with_name(f"{name}.yaml").read_text()


def _objects(lab: Lab) -> list[Object]:
    """deploy/kubernetes.yaml with this lab's network and its nodes' uplink, and what policies need."""
    found: list[Object] = list(yaml.safe_load_all(manifest()))
    flags = [f"--iface={underlay.UPLINK}"]
    if lab.kubelets and lab.policies is not None:
        flags.append("--network-policy=enforce")
        found += yaml.safe_load_all(manifest("network-policy"))
    for entry in found:
        if entry["kind"] == "ConfigMap":
            entry["data"]["net-conf.json"] = lab.network
        if entry["kind"] == "DaemonSet":
            [container] = entry["spec"]["template"]["spec"]["containers"]
            container["args"] += flags
    return found


def _nodes(lab: Lab) -> list[Object]:
    """As a kubelet would register them."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}},
            "spec": {},
        }
        for node in lab.nodes
    ]
