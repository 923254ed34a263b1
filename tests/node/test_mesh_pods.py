"""Pods on a mesh of real daemons: attached by upstream's plugin, with addresses that come back, under flushed rules."""

import shutil
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from tests.node.meshnode import MeshNode, created
from tests.node.plugincalls import Runtime
from tests.support import flanneld
from tests.support.netns import Netns
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import Cluster, eventually
from weft.cni import build
from weft.cni.install.executables import install
from weft.model.net import Ip


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path / "bin").bin_dir


def attached(runtime: Runtime, name: str, pod: Netns) -> Ip:
    """The address that it gets."""
    answer = runtime.ask("ADD", name, pod)
    assert "ips" in answer, answer
    return ip_interface(answer["ips"][0]["address"]).ip


def rules(node: MeshNode) -> str:
    return node.netns.run("nft -s list ruleset; iptables-save | grep ^-A", check=False)


def test_n7_what_a_third_party_flushes_of_the_firewall_is_put_back(cluster: Cluster):
    nodes = created(cluster, 1, 2, 3, more=("--ip-masq", "--mesh-relay=false"))
    here, there, _ = (node.pod() for node in nodes)
    eventually(lambda: "FLANNEL" in rules(nodes[0]) and nodes[0].ready)
    before = [rules(node) for node in nodes]
    with nothing_lost(here, there, there.ips[0]):
        for node in nodes:
            node.netns.run("nft flush ruleset")
        for node, was in zip(nodes, before, strict=True):
            eventually(lambda node=node, was=was: rules(node) == was, seconds=20)


def test_n9_a_pod_that_comes_again_is_reached_at_the_same_address_and_at_another(
    cluster: Cluster, tmp_path: Path, bin_dir: Path
):
    one, two = created(cluster, 1, 2)
    far, pod = one.pod(), Netns()
    two.pods.append(pod)
    runtime = Runtime(two, tmp_path / "runtime", bin_dir)
    first = attached(runtime, "web", pod)
    assert reaches(far, first)
    for times in range(2):
        runtime.ask("DEL", "web", pod)
        for last in (runtime.folder / "nets" / "cbr0").glob("last_reserved_ip.*"):
            last.unlink()  # after which host-local does not begin
        assert attached(runtime, "web", pod) == first, times
        assert reaches(far, first, seconds=2), "though it was another link's before"
    runtime.ask("DEL", "web", pod)
    second = attached(runtime, "web", pod)
    assert second != first
    assert reaches(far, second, seconds=2)
    assert not reaches(far, first, seconds=0.5)
    for node in (one, two):
        left = [line for line in node.ip("neigh show").splitlines() if line.startswith(f"{first} ")]
        assert not any("lladdr" in line for line in left), left


@pytest.mark.skipif(flanneld.built() is None, reason=f"{flanneld.HINT} builds upstream's plugin")
def test_n10_upstreams_plugin_attaches_pods_by_our_subnet_env(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    shutil.copy(flanneld.place(flanneld.PLUGIN), bin_dir / "flannel")
    nodes = created(cluster, 1, 2, 3)
    pods = [Netns() for _ in nodes]
    ips = []
    for node, pod in zip(nodes, pods, strict=True):
        node.pods.append(pod)
        runtime = Runtime(node, tmp_path / node.name, bin_dir)
        runtime.version = "0.3.1"  # as in upstream's manifest
        ips.append(attached(runtime, f"on-{node.name}", pod))
        assert ips[-1] in node.v4
        assert f"mtu {node.env['FLANNEL_MTU']}" in pod.run("ip link show eth0")
    for pod in pods:
        assert all(reaches(pod, ip_address(ip)) for ip in ips)
