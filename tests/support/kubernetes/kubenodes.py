"""Real nodes of Kubernetes, with no pod network until a test applies one: weft's manifest, or flannel's.

    with kube_nodes() as nodes:
        nodes.install(WEFT)
        nodes.api.post(PODS, pod("a", node="node1"))

Each node has its containerd, kubelet and kube-proxy, in namespaces of a lab; all of them end with it.
"""

import base64
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tests.support import flanneld
from tests.support.checkout import CHECKOUT
from tests.support.kubernetes import apiserver
from tests.support.kubernetes.kubeapi import Api, ApiError, Json
from tests.support.lab import new_name
from tests.support.waiting import looks
from tests.support.weftd import eventually
from weft.cni.install.installation import Tree
from weft.lab import places
from weft.lab.commands import start
from weft.lab.commands.choose import find
from weft.lab.commands.ending import down
from weft.lab.inside import underlay
from weft.lab.kubernetes import images
from weft.lab.kubernetes.images import Image
from weft.lab.spec import net_conf, regular
from weft.model.net import Family

NAMESPACE: Final = "kube-flannel"
DAEMON_SET: Final = "kube-flannel-ds"
PODS: Final = "/api/v1/namespaces/default/pods"
NODES: Final = "/api/v1/nodes"
SECONDS: Final = 600.0  # of patience for what takes seconds where nothing else runs
_PLUGINS: Final = "/usr/lib/cni"  # Debian's, the reference's own
_DAEMONS: Final = ("flanneld", "weftd")
_SERVERS: Final = ("containerd", "kubelet", "kube-proxy")
# All that a power cut takes from a node: links but those of the machine that it is, rules, and what is in memory.
_POWER_CUT: Final = """
for link in $(ip -o link | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/' | grep -vx -e lo -e eth0); do
    ip link delete "$link" 2>/dev/null || true
done
nft flush ruleset
for command in iptables ip6tables; do
    for table in filter nat mangle; do $command-legacy -t $table -F && $command-legacy -t $table -X; done
done 2>/dev/null
ip route flush proto 165 2>/dev/null
ip route flush proto boot scope global 2>/dev/null
grep -o ' /run/[^ ]*' /proc/self/mounts | sort -r | xargs -r -n1 umount -l 2>/dev/null
rm -rf /run/netns/* /run/containerd /run/flannel/* /run/weft /run/cni /run/xtables.lock
"""


@dataclass(frozen=True)
class Network:
    """A pod network that a manifest installs; `images` are what nodes need for it beside the lab's."""

    name: str
    objects: Callable[[], list[Json]]
    images: Callable[[], list[Image]] = list
    plugins: bool = False  # whether nodes need the reference's plugins


def _with_uplink(objects: list[Json]) -> list[Json]:
    for each in objects:
        if each["kind"] == "DaemonSet":
            each["spec"]["template"]["spec"]["containers"][0]["args"].append(f"--iface={underlay.UPLINK}")
    return objects


def _manifest(path: Path) -> Callable[[], list[Json]]:
    return lambda: _with_uplink(list(yaml.safe_load_all(path.read_text())))


def _flannels_image() -> list[Image]:
    tree = images.firewall(Tree())
    tree.program(flanneld.place(flanneld.DAEMON), "/opt/bin/flanneld")
    tree.program(flanneld.place(flanneld.PLUGIN), "/flannel")
    tree.program(Path("/bin/cp"))
    image = Image(names=(flanneld.IMAGE,), tree=tree, command=("/opt/bin/flanneld",), environ=("PATH=/usr/sbin:/bin",))
    return [image]


WEFT: Final = Network("weft", _manifest(CHECKOUT / "deploy" / "kubernetes.yaml"))
FLANNEL: Final = Network(
    "flannel", _manifest(Path(__file__).with_name("kube-flannel.yaml")), images=_flannels_image, plugins=True
)


def pod(name: str, *, node: str = "", host: bool = False, image: str = images.PAUSE, **labels: str) -> Json:
    """A pod that waits; on a `node` it does not ask the scheduler, nor whether the node is ready.

    As `host` it is in the node's own network.
    """
    container = {"name": "wait", "image": image, "imagePullPolicy": "IfNotPresent"}
    spec: Json = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
    }
    if node:
        spec["nodeName"] = node
    if host:
        spec["hostNetwork"] = True
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@dataclass
class KubeNodes:
    """Nodes that run."""

    api: Api
    kubeconfig: Path
    inits: dict[str, int]  # the first process of each node
    network: Network  # that was applied last
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)  # which end with the lab
    _commands: dict[tuple[str, str], tuple[list[str], dict[str, str]]] = field(default_factory=dict)

    def enter(self, node: str) -> list[str]:
        """Return what runs a command in a node."""
        kinds = ("--mount", "--net", "--pid", "--uts", "--ipc")
        return ["nsenter", f"--target={self.inits[node]}", *kinds, "--"]

    def run(self, node: str, *command: str, stdin: str = "", check: bool = True) -> str:
        """Return what a command prints in a node."""
        ran = subprocess.run(
            [*self.enter(node), *command], input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert not check or ran.returncode == 0, f"{node}: {' '.join(command)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        command = [str(apiserver.programs() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        ran = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS + 60)
        assert not check or ran.returncode == 0, f"kubectl {' '.join(arguments)}: {ran.stderr}"
        return ran.stdout

    # What networks are installed

    def prepare(self, network: Network) -> None:
        """Give the nodes the images that a network needs, and the reference's plugins."""
        with tempfile.TemporaryDirectory() as folder:
            for image in network.images():
                file = Path(folder, "image.tar")
                image.write(file)
                for node in self.inits:
                    with file.open("rb") as stdin:
                        command = ["ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", "-"]
                        subprocess.run([*self.enter(node), *command], stdin=stdin, check=True, capture_output=True)
        if network.plugins:
            for node in self.inits:
                self.run(node, "sh", "-c", f"cp -n {_PLUGINS}/* /opt/cni/bin/")

    def apply(self, network: Network) -> None:
        """Run `kubectl apply -f` with a network's manifest."""
        self.network = network
        self.kubectl("apply", "-f", "-", stdin=as_list(network.objects()))

    def delete(self, network: Network) -> None:
        """Run `kubectl delete -f` with a network's manifest."""
        self.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=as_list(network.objects()))

    def install(self, network: Network) -> None:
        """Apply a network, and wait until it serves all nodes."""
        self.prepare(network)
        self.apply(network)
        self.rolled_out()
        eventually(lambda: self.ready() == set(self.inits), seconds=SECONDS)

    def rolled_out(self) -> None:
        """Wait until the daemons of all nodes are those of the present manifest, and ready."""
        self.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/{DAEMON_SET}", f"--timeout={SECONDS:.0f}s")

    def ready(self) -> set[str]:
        """The nodes that Kubernetes calls ready."""
        return {name for name, condition in self.conditions().items() if condition["status"] == "True"}

    def conditions(self) -> dict[str, Json]:
        """The condition Ready of each node."""
        found = self.api.get(NODES)["items"]
        return {
            node["metadata"]["name"]: condition
            for node in found
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready"
        }

    def set_image(self, image: str) -> None:
        """Have the DaemonSet want another image."""
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "kube-flannel", "image": image}]}}}}
        self.api.patch(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{DAEMON_SET}", patch)

    def words(self) -> str:
        """Return what there is and what was told of it, for a failure."""
        events = self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False).splitlines()
        return "\n".join([self.kubectl("get", "nodes,pods", "-A", "-o", "wide", check=False), *events[-30:]])

    def drop_daemon_pods(self) -> None:
        """Delete the pods of the network's daemon on all nodes; the DaemonSet makes others."""
        for each in self.daemon_pods().values():
            with suppress(ApiError):
                self.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{each}", gracePeriodSeconds=1)

    def daemon_pods(self) -> dict[str, str]:
        """The pod of the network's daemon on each node."""
        pods = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return {each["spec"]["nodeName"]: each["metadata"]["name"] for each in pods if "nodeName" in each["spec"]}

    # What befalls nodes

    def processes(self, node: str, name: str) -> list[int]:
        """The numbers, here, of the processes of that name in a node."""
        network, found = Path(f"/proc/{self.inits[node]}/ns/net").readlink(), []
        for pid in _all_processes():
            entry = Path(f"/proc/{pid}")
            with suppress(OSError):  # it has ended
                if (entry / "comm").read_text().strip() == name[:15] and (entry / "ns/net").readlink() == network:
                    found.append(pid)
        return found

    def kill(self, node: str, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to all processes of that name in a node; returns how many there were."""
        if name in _SERVERS:
            self._remember(node, name)
        found = self.processes(node, name)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGCONT:
            for each in self.started:  # an nsenter stops itself with what it has started
                each.send_signal(number)
        return len(found)

    def daemons(self, node: str) -> list[int]:
        """The numbers of the processes of the network's daemon in a node that are in a pod."""
        own = _space(self.inits[node])
        found = (pid for name in _DAEMONS for pid in self.processes(node, name))
        return sorted(pid for pid in found if _space(pid) not in (own, ""))

    def kill_daemon(self, node: str, *, container: bool = True) -> list[int]:
        """Kill the daemon's container in a node with all that is in it, or the daemon alone; returns the processes."""
        daemons = self.daemons(node)
        spaces = {_space(pid) for pid in daemons} - {""}
        killed = [pid for pid in _all_processes() if _space(pid) in spaces] if container else daemons[-1:]
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return killed

    def start(self, node: str, name: str) -> None:
        """Start a containerd, kubelet or kube-proxy again as the lab had started it, unless it runs."""
        if self.processes(node, name):
            return
        command, environ = self._commands[node, name]
        running = subprocess.Popen(
            [*self.enter(node), *command],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.started.append(running)
        eventually(lambda: self.processes(node, name), seconds=SECONDS)

    def reboot(self, node: str) -> None:
        """Cut a node's power and give it back: all that it had in memory is gone, its disk is as it was."""
        for name in _SERVERS:
            self._remember(node, name)
        self.run(node, "sh", "-c", "kill -9 -1", check=False)
        eventually(lambda: not self.processes(node, "containerd-shim"), seconds=SECONDS)
        self.run(node, "sh", "-c", _POWER_CUT)
        self.start(node, "containerd")
        eventually(lambda: self.run(node, "ls", "/run/containerd/containerd.sock", check=False), seconds=SECONDS)
        self.start(node, "kubelet")
        self.start(node, "kube-proxy")

    def _remember(self, node: str, name: str) -> None:
        for pid in self.processes(node, name):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
                pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
            except OSError:
                continue
            if command:
                self._commands[node, name] = command, dict(pair.split("=", 1) for pair in pairs if "=" in pair)


@contextmanager
def kube_nodes(
    count: int = 3, *, nft: bool = False, path: Sequence[Path] = (), families: Sequence[Family] = (4,)
) -> Iterator[KubeNodes]:
    """Start nodes; programs in `path` come before those of Debian, as another containerd's."""
    environ = dict(os.environ) | {"WEFT_KUBERNETES": str(apiserver.programs())}
    environ["PATH"] = ":".join([*map(str, path), environ["PATH"]])
    name, network = new_name(), net_conf(backend="vxlan", families=families, nft=nft)
    lab = regular(name=name, network=network, families=families, nodes=count, pods=0, store="kubernetes", kubelets=True)
    base, started = places.home(environ), []
    start.up(msgspec.structs.replace(lab, bare=True), base, environ, note=lambda _: None)
    try:
        with nodes_of(name) as nodes:
            started = nodes.started
            eventually(lambda: len(nodes.conditions()) == count, seconds=SECONDS)
            yield nodes
    finally:
        down(find(name, base))
        for process in started:
            process.wait()


@contextmanager
def nodes_of(lab: str) -> Iterator[KubeNodes]:
    """Find the nodes of a lab of Kubernetes that is up."""
    place = places.home(os.environ) / lab
    with tempfile.TemporaryDirectory() as folder:
        config = place / "kubeconfig"
        yield KubeNodes(_api(config, Path(folder)), config, _inits(place), WEFT)


def _api(config: Path, folder: Path) -> Api:
    read = yaml.safe_load(config.read_text())
    [cluster], [user] = read["clusters"], read["users"]
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    return Api(cluster["cluster"]["server"], str(authority), user["user"]["token"])


def _inits(place: Path) -> dict[str, int]:
    """The first process of each node, by the node's name."""
    supervisor = int((place / "pid").read_text().split()[0])
    tasks = Path(f"/proc/{supervisor}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    firsts = [pid for pid in children if _spaces(pid)[-1] == "1"]
    names = [["nsenter", f"--target={pid}", "--uts", "hostname"] for pid in firsts]
    said = [subprocess.run(name, capture_output=True, text=True, check=True).stdout.strip() for name in names]
    return dict(sorted(zip(said, firsts, strict=True)))


def _all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _space(pid: int) -> str:
    """The pid namespace of a process, "" when it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _spaces(pid: int) -> list[str]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in status if line.startswith("NSpid:"))


def as_list(objects: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def wait_gone(api: Api, path: str, seconds: float = SECONDS) -> None:
    """Wait until a list of objects is empty."""
    for _ in looks(seconds):
        if not (left := [each["metadata"]["name"] for each in api.get(path)["items"]]):
            return
    raise AssertionError(f"still there: {left}")
