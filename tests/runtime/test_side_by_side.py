"""The same conflists by Debian's plugins and by ours: results, kernel state and reachability are the same.

Each runs on a node of its own that is otherwise the same: the addresses too, so that what they answer can be compared
as it stands. In the second part each takes over from the other in the middle of a pod's life.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from tests.runtime import kernelview, traces
from tests.runtime.conflist import DEBIAN, Attachment, Runner
from tests.runtime.machine import Machine
from tests.runtime.runtimenode import MachineDaemon
from tests.support import namespaces, published
from tests.support.lab import WEFT
from tests.support.published import PORT, Answering, Inside
from tests.support.weftd import DUAL, VXLAN, Cluster, Underlay, eventually, public_v4, public_v6
from weft.cni.install.conflist import CONFLIST

NUMBER = 21
PORTS = tuple(
    {"hostPort": 8080, "containerPort": PORT, "protocol": protocol, "hostIP": ""} for protocol in ("tcp", "udp")
)
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
HOST_LOCAL = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10"}], [{"subnet": "fd09::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
}
BRIDGE = {"type": "bridge", "bridge": "br0", "isGateway": True, "hairpinMode": True, "mtu": 1400, "ipam": HOST_LOCAL}


def conflist(*plugins: dict[str, Any], version: str) -> dict[str, Any]:
    return {"cniVersion": version, "name": "tests", "plugins": [dict(plugin) for plugin in plugins]}


FLANNEL = [*CONFLIST["plugins"]]
CONFLISTS = {
    "flannel-0.3.1": conflist(*FLANNEL, version="0.3.1"),
    "flannel-1.0.0": conflist(*FLANNEL, version="1.0.0"),
    "bridge": conflist(BRIDGE, PORTMAP, version="0.4.0"),
    "ipMasq": conflist(
        BRIDGE | {"ipMasq": True, "ipam": HOST_LOCAL | {"dataDir": "/var/lib/cni/other"}}, PORTMAP, version="1.0.0"
    ),
    "iptables": conflist(BRIDGE | {"ipMasq": True}, PORTMAP | {"backend": "iptables"}, version="1.0.0"),
}
ALL = pytest.mark.parametrize("network", CONFLISTS.values(), ids=CONFLISTS.keys())


# What ours do otherwise than Debian's 1.1.1, and why: last part of the place, theirs, ours.
KNOWN = {
    "txqlen": (None, 1000),  # the newer reference's value (cni.md §3.10)
    "keep_addr_on_down": ("0", "1"),  # as the newer reference (B34)
    "dns": ({}, None),  # accepted either way (cni.md §1.15)
    "mcast_snooping": (1, 0),  # decision 0016
    "nodad": (None, True),  # nothing to wait for: DAD is off in the container, and the gateway is ours alone
}


@pytest.fixture(scope="module")
def cluster(underlay: Underlay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(underlay, tmp_path_factory.mktemp("side"))
    cluster.configure(VXLAN, DUAL)
    yield cluster
    cluster.close()


_numbers = count(1)


class Node:
    """A node as any other of this file, with weftd on it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.underlay = cluster.underlay
        self.daemon = MachineDaemon(cluster.underlay, folder / f"{next(_numbers)}", NUMBER, prefix=cluster.prefix)
        self.machine: Machine = self.daemon.machine
        self.close = self.daemon.close

    def pod(self, name: str, *, ports: tuple[dict[str, Any], ...] = ()) -> Attachment:
        """A network namespace that is not attached yet."""
        self.machine.run("ip", "netns", "add", name)
        # Nobody else has the addresses: Debian's plugins need not wait.
        self.machine.run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        return Attachment(id=f"id-{name}", netns=f"/run/netns/{name}", ports=ports)

    @contextmanager
    def answering(self, pod: Attachment) -> Iterator[None]:
        with Answering(self.machine.path(pod.netns), pod.id):
            yield

    def inside(self, pod: Attachment) -> Inside:
        """Return what calls a function in a pod's network namespace."""

        def call(function: Callable[[], str]) -> str:
            with self.machine.path(pod.netns).open("rb") as namespace:
                return namespaces.run_in(namespace.fileno(), function)

        return call

    def answers(self, *pods: Attachment) -> dict[str, str]:
        """Who answers at the published ports, and whom it sees: asked from everywhere, at every address."""
        outside, own = self.underlay.switch.call, self.machine.netns.call
        v4, v6 = public_v4(NUMBER), public_v6(NUMBER)
        clients = {"outside": outside, "node": own, **{pod.id: self.inside(pod) for pod in pods}}
        questions = [(name, address) for name in clients for address in (v4, v6)] + [("node", "127.0.0.1")]
        return {
            f"{name} {address} {'udp' if udp else 'tcp'}": published.ask(clients[name], address, 8080, udp=udp)
            for name, address in questions
            for udp in (False, True)
        }

    def published(self) -> list[str]:
        """Who answers at the published ports, over TCP and UDP, to somebody outside."""
        outside, address = self.underlay.switch.call, public_v4(NUMBER)
        return [published.ask(outside, address, 8080, udp=udp).partition(" ")[0] for udp in (False, True)]


@pytest.fixture
def make_node(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[], Node]]:
    """Makes nodes, one after the other: the one before is closed."""
    with ExitStack() as stack:

        def make() -> Node:
            stack.close()
            node = Node(cluster, tmp_path)
            stack.callback(node.close)
            node.daemon.start()
            return node

        yield make


def addresses(result: Mapping[str, Any]) -> set[str]:
    return {ip["address"] for ip in result["ips"]}


def bridge_of(network: Mapping[str, Any]) -> str:
    return str(network["plugins"][0].get("bridge", "cni0"))


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result without the MACs, and with the host's veth under one name."""
    for interface in result["interfaces"]:
        assert interface.pop("mac")
        if interface["name"].startswith("veth"):
            interface["name"] = "veth"
    return result


def life(node: Node, bin_dir: Path, network: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be seen of two pods that a directory's plugins attach, one with ports, and after they have gone."""
    runner, bridge = Runner(node.machine, bin_dir, flannel=bin_dir == DEBIAN), bridge_of(network)
    web, other = node.pod("web", ports=PORTS), node.pod("other")
    results = {pod.id: runner.add(network, pod) for pod in (web, other)}
    seen: dict[str, Any] = {
        "results": {name: plain(json.loads(json.dumps(result))) for name, result in results.items()},
        "containers": [kernelview.container(node.machine, name) for name in ("web", "other")],
        "hosts": [kernelview.host(node.machine, name, bridge) for name in ("web", "other")],
        "rules": rules(node.machine),
        "forwarding": node.machine.run("sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"),
        "files": files(node.machine),
    }
    with node.answering(web):
        seen["answers"] = node.answers(web, other)
        runner.delete(network, web, results[web.id])
        seen["silence"] = node.answers(other)
    runner.delete(network, other, results[other.id])
    seen["files after"] = files(node.machine)
    return seen


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Where two values are not the same, down to the smallest part: the place, what Debian's have, what ours have."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            yield from differences(theirs.get(key), ours.get(key), f"{where}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(*pair, f"{where}/{index}")
    elif theirs != ours:
        yield where, (theirs, ours)


def rules(machine: Machine) -> list[str]:
    """The rules that plugins have made for pods, but for ports, which we keep otherwise unless told."""
    saved = machine.run("iptables-save", "-t", "nat") + machine.run("ip6tables-save", "-t", "nat")
    return [line for line in saved.splitlines() if "CNI-" in line and "CNI-DN-" not in line and "HOSTPORT" not in line]


def files(machine: Machine) -> dict[str, str]:
    """What is kept below /var/lib/cni."""
    root = machine.path("/var/lib/cni")
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@ALL
def test_both_do_the_same(make_node, bin_dir, network):
    theirs = life(make_node(), DEBIAN, network)
    ours = life(make_node(), bin_dir, network)
    assert any(theirs["answers"].values())
    found = {where: pair for where, pair in differences(theirs, ours) if KNOWN.get(where.rpartition("/")[2]) != pair}
    assert not found, pformat(found)


class Directory:
    """A node's bin directory, which goes from one to the other and back. `runner` uses what is in it."""

    def __init__(self, node: Node, path: Path) -> None:
        self._machine = node.machine
        self._path = path
        shutil.copytree(DEBIAN, path)
        self.runner = Runner(self._machine, path, flannel=True)

    def to_weft(self) -> None:
        self._machine.run(WEFT, "cni", "install", "--bin-dir", str(self._path))
        self.runner = Runner(self._machine, self._path)

    def to_debian(self) -> None:
        self._machine.run(WEFT, "cni", "handback", "--bin-dir", str(self._path))
        self.runner = Runner(self._machine, self._path, flannel=True)


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    return make_node()


@pytest.fixture
def directory(node: Node, tmp_path: Path) -> Directory:
    """Debian's plugins."""
    return Directory(node, tmp_path / "bin")


def looked_at(node: Node, network: Mapping[str, Any], runner: Runner) -> traces.Traces:
    """What is on a node without pods, once the plugins have made what all pods share."""
    warm = node.pod("warm", ports=PORTS)
    runner.delete(network, warm, runner.add(network, warm))
    return traces.look_without_pods(node.machine)


@pytest.mark.parametrize(
    "start, moves",
    [("debian", ["weft"]), ("weft", ["debian"]), ("weft", ["debian", "weft"])],
    ids=["to weft", "to Debian", "to Debian and back"],
)
@pytest.mark.parametrize("network", [CONFLISTS["flannel-0.3.1"], CONFLISTS["iptables"]], ids=["flannel", "iptables"])
def test_the_other_takes_over_in_the_middle_of_a_life(node, directory, network, start, moves):
    web, other = node.pod("web", ports=PORTS), node.pod("other")
    before = looked_at(node, network, directory.runner)
    go = {"weft": directory.to_weft, "debian": directory.to_debian}
    if start == "weft":
        go["weft"]()
    result = directory.runner.add(network, web)
    with node.answering(web):
        for move in moves:
            assert node.published() == [web.id, web.id]
            go[move]()
        assert node.published() == [web.id, web.id]
        new = directory.runner.add(network, other)
        assert not addresses(result) & addresses(new)
        if network["cniVersion"] != "0.3.1":
            # Debian's portmap looks for the rules of either family in both tables (cni.md §5.3).
            directory.runner.check(network, web, result, without=["portmap"] if moves[-1] == "debian" else [])
        directory.runner.delete(network, web, result)
        assert node.published() == ["", ""]
    directory.runner.delete(network, other, new)
    # What only weft keeps goes with its next sweep.
    node.machine.run(WEFT, "ipam", "gc")
    traces.gone_back(node.machine, before)


def test_a_pod_that_is_never_detached_goes_with_the_next_sweep(node, bin_dir):
    network = CONFLISTS["ipMasq"]
    lost, kept = node.pod("lost", ports=PORTS), node.pod("kept")
    runner = Runner(node.machine, bin_dir)
    before = looked_at(node, network, runner)
    runner.add(network, lost)
    result = runner.add(network, kept)
    node.machine.run("ip", "netns", "delete", "lost")
    before["files"].remove("run/netns/lost")
    eventually(lambda: "lost" in node.machine.run(WEFT, "ipam", "list", "--leaked"))
    node.machine.run(WEFT, "ipam", "gc")
    runner.check(network, kept, result)
    runner.delete(network, kept, result)
    traces.gone_back(node.machine, before)
