"""podman with CNI on two nodes with weftd, with weft's plugins: flannel's conflist, and one that podman makes."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runtime import traces
from tests.runtime.podman import Pod, Podman
from tests.runtime.runtimenode import MachineDaemon
from tests.support import published
from tests.support.published import PORT, Answering
from tests.support.weftd import Cluster, Underlay
from weft.cni.install.conflist import CONFLIST

_LAST_WITH_CNI = 4  # major version
PUBLISHED = ("--publish", f"8080:{PORT}/tcp", "--publish", f"8053:{PORT}/udp")


@dataclass(frozen=True)
class Node:
    """A node with weftd and podman."""

    daemon: MachineDaemon
    podman: Podman

    def answering(self, pod: Pod) -> Answering:
        return Answering(self.daemon.machine.path(pod.netns), pod.name)


@pytest.fixture(scope="module")
def nodes(underlay: Underlay, tmp_path_factory: pytest.TempPathFactory, bin_dir: Path) -> Iterator[list[Node]]:
    """Two nodes. Their first pod makes what all others share; node 1 has also a network of podman's own, `own`."""
    version = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    if int(version.partition(".")[0]) > _LAST_WITH_CNI:
        pytest.skip("this podman has no CNI")
    folder = tmp_path_factory.mktemp("podman")
    cluster = Cluster(underlay, folder)
    cluster.configure()
    with ExitStack() as stack:
        daemons = []
        for number in (11, 12):
            daemons.append(MachineDaemon(underlay, folder / f"node{number}", number, prefix=cluster.prefix))
            stack.callback(daemons[-1].close)
            daemons[-1].spawn()
        made = []
        for daemon in daemons:
            podman = Podman(daemon.machine, bin_dir=bin_dir, network=CONFLIST)
            podman("network", "create", "--subnet", "10.8.0.0/24", "own")
            daemon.wait_ready()
            for network in ("cbr0", "own"):
                podman.remove(podman.pod("first", *PUBLISHED, "--network", network))
            made.append(Node(daemon, podman))
        yield made


@pytest.fixture
def node(nodes: list[Node]) -> Iterator[Node]:
    """One of the nodes; once its pods are removed, nothing may be left of what the test did."""
    machine, podman = nodes[0].daemon.machine, nodes[0].podman
    before = traces.look(machine)
    yield nodes[0]
    for each in nodes:
        for what in (["pod"], []):
            each.podman(*what, "rm", "--all", "--force", "--time", "0")
    assert not podman("ps", "--all", "--quiet")
    traces.gone_back(machine, before)


def reaches(node: Node, pod: Pod, address: str) -> bool:
    return "1 packets received" in node.podman.exec(pod, "ping", "-c", "1", "-W", "3", address)


def told(underlay: Underlay, node: Node) -> list[str]:
    """Who answers at a node's published ports."""
    asked = (
        published.ask(underlay.switch.call, node.daemon.public_v4, port, udp=udp)
        for port, udp in ((8080, False), (8053, True))
    )
    return [answer.partition(" ")[0] for answer in asked]


def test_pods_reach_each_other_on_a_node_and_across(nodes, node):
    one, two = node.podman.pod("one"), node.podman.pod("two")
    far = nodes[1].podman.pod("far")
    for pod in (two, far):
        assert reaches(node, one, pod.ips["cbr0"])
    assert reaches(nodes[1], far, one.ips["cbr0"])
    assert f"default via {node.daemon.v4[1]} dev eth0" in node.podman.exec(one, "ip", "route")


def test_published_ports_answer_until_the_pod_is_removed(node, underlay):
    pod = node.podman.pod("web", *PUBLISHED)
    with node.answering(pod):
        assert told(underlay, node) == ["web", "web"]
        assert node.podman.exec(pod, "nc", str(node.daemon.public_v4), "8080").startswith("web ")
        node.podman.remove(pod)
    assert told(underlay, node) == ["", ""]


def test_a_network_of_podmans_own(node, underlay):
    # Made by `podman network create`: bridge, portmap, firewall, tuning; the address is asked for by capability.
    web = node.podman.pod("web", "--network", "own", "--ip", "10.8.0.77", *PUBLISHED)
    other = node.podman.pod("other", "--network", "own")
    assert web.ips == {"own": "10.8.0.77"}
    assert reaches(node, other, "10.8.0.77")
    assert reaches(node, web, "172.31.0.254")
    with node.answering(web):
        assert told(underlay, node) == ["web", "web"]


def test_a_pod_of_two_networks(node, underlay):
    # podman gives each network's plugins the same ports: of two attachments of one container the first has them.
    pod = node.podman.pod("both", "--network", "cbr0", "--network", "own", *PUBLISHED)
    flannel, own = (node.podman.pod(name, "--network", name) for name in ("cbr0", "own"))
    assert set(pod.ips) == {"cbr0", "own"}
    assert reaches(node, pod, flannel.ips["cbr0"])
    assert reaches(node, pod, own.ips["own"])
    with node.answering(pod):
        assert told(underlay, node) == ["both", "both"]
    node.podman.remove(pod)
    assert told(underlay, node) == ["", ""]
    assert reaches(node, flannel, str(node.daemon.v4[1]))
    assert reaches(node, own, "10.8.0.1")


def test_a_container_moves_to_another_network_with_its_ports(node, underlay):
    podman, machine = node.podman, node.daemon.machine
    options = ("--detach", "--cgroup-parent", machine.cgroup, "--network", "cbr0", "--name", "mover")
    podman("run", *options, *PUBLISHED, "localhost/busybox:1")
    path = podman("inspect", "--format", "{{.NetworkSettings.SandboxKey}}", "mover")
    with Answering(machine.path(path), "mover"):
        assert told(underlay, node) == ["mover", "mover"]
        podman("network", "connect", "own", "mover")
        assert "inet 10.8.0." in podman("exec", "mover", "ip", "address", "show", "eth1")
        assert told(underlay, node) == ["mover", "mover"]
        podman("network", "disconnect", "cbr0", "mover")
        links = podman("exec", "mover", "ip", "link")
        assert "eth1" in links
        assert "eth0" not in links
        assert told(underlay, node) == ["mover", "mover"]


def test_pods_outlive_weftd_and_go_without_it(node, underlay):
    pod = node.podman.pod("web", *PUBLISHED)
    with node.answering(pod):
        node.daemon.kill()
        try:
            assert told(underlay, node) == ["web", "web"]
            node.podman.remove(pod)
            assert told(underlay, node) == ["", ""]
        finally:
            node.daemon.start()
