"""A cluster goes from flannel to weft, back, to the chart and away, by the commands of the page, with pods running."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import kubepods
from tests.lab.kubepods import answering
from tests.support.checkout import CHECKOUT
from tests.support.kubernetes import apiserver
from tests.support.kubernetes.kubenodes import FLANNEL, PODS, WEFT, KubeNodes, kube_nodes, wait_gone
from tests.support.weftd import eventually

pytestmark = pytest.mark.timeout(1800)  # for a machine that is busy with other work

PAGE = CHECKOUT / "docs" / "howto" / "move-a-cluster.md"
RING = {"first1": "first2", "first2": "first3", "first3": "first1"}
PORTS = {"node1": 9001, "node2": 9002, "node3": 9003}


def commands(section: str) -> list[str]:
    """The commands below a heading of the page."""
    below = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", below, re.MULTILINE | re.DOTALL)
    found = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert found, section
    return found


class Cluster:
    """Nodes with the reference's plugins, as a distribution has them, and a user who types commands."""

    def __init__(self, nodes: KubeNodes, directory: Path) -> None:
        self.nodes, self.directory = nodes, directory
        (directory / "deploy").symlink_to(CHECKOUT / "deploy")
        (directory / "kube-flannel.yml").symlink_to(CHECKOUT / "tests" / "support" / "kubernetes" / "kube-flannel.yaml")
        nodes.prepare(FLANNEL)

    def type(self, *lines: str) -> str:
        environ = os.environ | {"KUBECONFIG": str(self.nodes.kubeconfig)}
        environ["PATH"] = f"{apiserver.programs()}:{environ['PATH']}"
        said = []
        for line in lines:
            ran = subprocess.run(
                ["sh", "-c", line],
                cwd=self.directory,
                env=environ,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
            assert ran.returncode == 0, f"$ {line}\n{ran.stdout}{ran.stderr}"
            said.append(ran.stdout)
        return "".join(said)

    def first_pods(self) -> None:
        """A pod with a port of its node on each node."""
        pods = [answering(f"first{node[-1]}", node, port) for node, port in PORTS.items()]
        kubepods.start(self.nodes, *pods)
        self.is_well()

    @contextmanager
    def no_packet_is_lost(self) -> Iterator[None]:
        with kubepods.pinging(self.nodes, RING) as lost:
            yield
        assert set(lost.values()) == {0}, lost

    def new_pods(self, name: str) -> float:
        """Start a pod on each node; returns after how many seconds the last one runs."""
        return kubepods.start(self.nodes, *(answering(f"{name}{node[-1]}", node) for node in PORTS))

    def end_pods(self, name: str) -> None:
        pods = [f"{name}{node[-1]}" for node in PORTS]
        self.nodes.kubectl("delete", "pod", *pods, "--timeout=60s")

    def is_well(self) -> None:
        """All pods reach all, ports of nodes lead to theirs, and nothing is held that no pod has."""
        assert kubepods.lost_pairs(self.nodes) == []
        for node, port in PORTS.items():
            eventually(
                lambda node=node, port=port: kubepods.at_port(self.nodes, node, port) == f"first{node[-1]}", seconds=60
            )
        eventually(lambda: self.held() == self.used(), seconds=30)

    def held(self) -> dict[str, set[str]]:
        """The addresses that host-local has given on each node."""
        script = "cd /var/lib/cni/networks/cbr0 && ls | grep -E '^[0-9.]+$'"
        return {node: set(self.nodes.run(node, "sh", "-c", script, check=False).split()) for node in PORTS}

    def used(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {node: set() for node in PORTS}
        for each in self.nodes.api.get("/api/v1/pods")["items"]:
            if not each["spec"].get("hostNetwork") and "podIP" in each["status"]:
                found[each["spec"]["nodeName"]].add(each["status"]["podIP"])
        return found

    def programs(self, node: str) -> dict[str, str]:
        """Whose the plugins of a node are, in a word, by their size: weft's client is small."""
        script = "cd /opt/cni/bin && stat -c '%n %s %h' bridge flannel host-local loopback portmap"
        lines = (line.split() for line in self.nodes.run(node, "sh", "-c", script).splitlines())
        return {name: "weft's" if int(size) < 1 << 20 else "another's" for name, size, _ in lines}

    def nothing_of_weft_runs(self) -> None:
        """No daemon of weft's, and no stand-in, which ends some seconds after its last call."""
        script = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c -e ^weft.cni -e ^/opt/bin/flanneld; true"

        def others(node: str) -> bool:
            return int(self.nodes.run(node, "sh", "-c", script)) == len({node} & self.nodes.daemon_pods().keys())

        for node in PORTS:
            eventually(lambda node=node: others(node), seconds=60)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with kube_nodes() as nodes:
        yield Cluster(nodes, tmp_path)


REFERENCE = {
    "bridge": "another's",
    "flannel": "another's",
    "host-local": "another's",
    "loopback": "another's",
    "portmap": "another's",
}


def test_from_flannel_to_weft_and_back_without_any_preparation(cluster: Cluster):
    cluster.type(commands("From weft's manifest to flannel's")[0])
    cluster.nodes.rolled_out()
    cluster.first_pods()

    with cluster.no_packet_is_lost():
        cluster.type(*commands("From flannel's manifest to weft's"))
        cluster.new_pods("second")
    cluster.is_well()
    for node in PORTS:
        assert set(cluster.programs(node).values()) == {"weft's"}
    kubepods.start(cluster.nodes, answering("port", "node1", 9100))

    apply, rollout, *hand_back = commands("From weft's manifest to flannel's")
    with cluster.no_packet_is_lost():
        cluster.type(apply)
        took = cluster.new_pods("third")
        cluster.type(rollout)
        took = max(took, cluster.new_pods("fourth"))
    cluster.is_well()
    assert cluster.programs("node1") == {**dict.fromkeys(REFERENCE, "weft's"), "flannel": "another's"}
    cluster.end_pods("third")

    with cluster.no_packet_is_lost():
        said = cluster.type(*hand_back)
        assert said.count("bridge: put back") == len(PORTS)
        cluster.new_pods("fifth")
    cluster.is_well()
    assert cluster.programs("node1") == REFERENCE
    assert kubepods.at_port(cluster.nodes, "node1", 9100) == "port"
    cluster.nothing_of_weft_runs()
    for node in PORTS:
        assert "weft" not in cluster.nodes.run(node, "nft", "list", "tables")
    cluster.nodes.kubectl("delete", "pods", "--all", "--timeout=120s")
    wait_gone(cluster.nodes.api, PODS)
    eventually(lambda: not any(cluster.held().values()), seconds=30)
    for node in PORTS:
        assert "CNI-DN-" not in cluster.nodes.run(node, "iptables-save", "-t", "nat")
    print(f"new pods while flannel takes weft's place: the last after {took:.1f} s")


def another_network_works(nodes: KubeNodes) -> None:
    """As Multus has it: a second network of the node, with the same plugins, and none of flannel's."""
    bridge = {"type": "bridge", "bridge": "br1", "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}}
    listed = {"name": "second", "cniVersion": "1.0.0", "plugins": [bridge]}
    nodes.run("node1", "tee", "/etc/cni/net.d/20-second.conflist", stdin=json.dumps(listed))
    nodes.run("node1", "ip", "netns", "add", "second")
    for verb in ("add", "check", "del"):
        weft = "/var/lib/weft/node/current/bin/weft"
        nodes.run("node1", weft, "cni", verb, "--path", "/opt/cni/bin", "second", "/run/netns/second")
    nodes.run("node1", "ip", "netns", "delete", "second")
    assert nodes.run("node1", "ls", "/var/lib/cni/networks/second").split() == ["last_reserved_ip.0", "lock"]


def flannels_manifest_over_the_chart(cluster: Cluster) -> None:
    """What everybody does to go back, although a release of weft's chart is there; and back to that."""
    cluster.type("helm install weft deploy/chart --namespace kube-flannel")
    cluster.nodes.rolled_out()
    apply, rollout, *_ = commands("From weft's manifest to flannel's")
    with cluster.no_packet_is_lost():
        cluster.type(apply, rollout)
        cluster.new_pods("flannels")
    cluster.is_well()
    with cluster.no_packet_is_lost():
        cluster.type(*commands("From flannel's manifest back to the chart"))
        cluster.nodes.rolled_out()
        cluster.end_pods("flannels")
    cluster.is_well()
    daemon_set = cluster.nodes.api.get("/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds")
    assert [each["name"] for each in daemon_set["spec"]["template"]["spec"]["initContainers"]] == ["install-cni-plugin"]


def test_from_the_manifest_to_the_chart_and_away(cluster: Cluster):
    cluster.nodes.install(WEFT)
    cluster.first_pods()
    [take_over] = commands("From a manifest to the chart")
    with cluster.no_packet_is_lost():
        cluster.type(take_over)
        cluster.nodes.rolled_out()
        cluster.new_pods("second")
    cluster.is_well()

    delete, uninstall = commands("Remove weft")
    with cluster.no_packet_is_lost():
        cluster.type(uninstall)
        cluster.new_pods("third")
        cluster.end_pods("second")
    cluster.is_well()
    assert cluster.programs("node1") == {**REFERENCE, "flannel": "weft's"}
    cluster.nothing_of_weft_runs()

    flannels_manifest_over_the_chart(cluster)
    cluster.type(commands("From flannel's manifest to weft's")[0])
    cluster.nodes.rolled_out()
    with cluster.no_packet_is_lost():
        cluster.type(delete)
        wait_gone(cluster.nodes.api, "/api/v1/namespaces/kube-flannel/pods")
        cluster.new_pods("fourth")
        cluster.end_pods("third")
    cluster.is_well()
    another_network_works(cluster.nodes)
    cluster.nothing_of_weft_runs()
    with cluster.no_packet_is_lost():
        cluster.type(commands("From weft's manifest to flannel's")[0])
        cluster.nodes.rolled_out()
        cluster.new_pods("fifth")
    cluster.is_well()
