"""Everyone reaches everyone with their own address, for every back end and family; and pingall notices when not."""

import json
import signal
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import BACKENDS, FAMILIES, lab, network, write_file
from tests.support.weftd import eventually


def entries(running, *command):
    return json.loads(running.run("node1", *command) or "[]")


def assert_tunnel(running, family, peer, index):
    """Peer's subnet is reached through its VTEP: route, neighbour, FDB entry (flannel.md §6.2)."""
    device = "flannel.1" if family == 4 else "flannel-v6.1"
    subnet = ip_interface(peer["subnets"][index]).network
    base = str(subnet.network_address)
    [route] = entries(running, "ip", f"-{family}", "-j", "route", "show", str(subnet))
    assert (route["gateway"], route["dev"], route["flags"]) == (base, device, ["onlink"])
    [neighbour] = entries(running, "ip", f"-{family}", "-j", "neigh", "show", base, "dev", device)
    assert neighbour["state"] == ["PERMANENT"]
    fdb = entries(running, "bridge", "-j", "fdb", "show", "dev", device)
    [entry] = [entry for entry in fdb if entry["mac"] == neighbour["lladdr"]]
    assert (entry["dst"], entry["state"], entry["flags"]) == (peer["underlay"][index], "permanent", ["self"])


def assert_direct(running, family, peer, index):
    """Peer's subnet is reached through its own address on the underlay."""
    subnet = str(ip_interface(peer["subnets"][index]).network)
    [route] = entries(running, "ip", f"-{family}", "-j", "route", "show", subnet)
    assert (route["gateway"], route["dev"]) == (peer["underlay"][index], "eth0")


@pytest.mark.spec("flannel.md §6.2/peer-v4", cases=("vxlan-4", "vxlan-46"))
@pytest.mark.spec("flannel.md §6.2/peer-v6", cases=("vxlan-6", "vxlan-46"))
@pytest.mark.spec("flannel.md §6.2/peer-direct", "flannel.md §6.2/DirectRouting", cases="*irect*")
@pytest.mark.spec("flannel.md §6.3/peer-added", cases="host-gw-*")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_everyone_reaches_everyone_with_their_own_address(backend, family, tmp_path):
    with lab(write_file(tmp_path, nodes=3, pods=2, network=network(backend, family))) as running:
        report = running.json("pingall")
        # 6 pods to 5 others, 3 nodes to 6 pods, in each family
        assert report["tried"] == report["reached"] == (6 * 5 + 3 * 6) * len(family)
        assert {cell["family"] for cell in report["cells"]} == set(map(int, family))
        addresses = {pod["name"]: {str(ip_interface(a).ip) for a in pod["addresses"]} for pod in running.ps()["pods"]}
        for cell in report["cells"]:
            if cell["source"] in addresses:
                assert cell["seen"] in addresses[cell["source"]]
        look = assert_tunnel if backend == "vxlan" else assert_direct
        for index, number in enumerate(family):
            look(running, int(number), running.node("node2"), index)


@pytest.fixture(scope="module")
def pair():
    with lab("--nodes", "2") as running:
        yield running


def faults(report):
    return {(cell["source"], cell["target"]): cell["fault"] for cell in report["cells"] if cell["fault"]}


@pytest.fixture
def stopped(pair):
    """node1 without repair: its daemon does not run for now."""
    pid = str(pair.node("node1")["pid"])
    pair.run("node1", "kill", f"-{signal.SIGSTOP.name[3:]}", pid)
    yield pair
    pair.run("node1", "kill", f"-{signal.SIGCONT.name[3:]}", pid)


def test_pingall_fails_when_a_peers_fdb_entry_is_gone(stopped):
    [entry] = [e for e in entries(stopped, "bridge", "-j", "fdb", "show", "dev", "flannel.1") if "dst" in e]
    stopped.run("node1", "bridge", "fdb", "del", entry["mac"], "dev", "flannel.1", "dst", entry["dst"])
    try:
        ran = stopped.weft("pingall", "-o", "json", check=False)
        assert ran.returncode == 1
        report = json.loads(ran.stdout)
        # what node1 sends to node2's pods is lost, and so is what it answers to them
        there = [(a, b) for a in ("pod1-1", "pod1-2", "node1") for b in ("pod2-1", "pod2-2")]
        back = [(a, b) for a in ("pod2-1", "pod2-2", "node2") for b in ("pod1-1", "pod1-2")]
        assert faults(report) == dict.fromkeys(there + back, "lost")
        seen = {(cell["source"], cell["target"]): bool(cell["seen"]) for cell in report["cells"]}
        assert not any(seen[way] for way in there)
        assert all(seen[way] for way in back)
        assert "pod1-1 -> pod2-1" in stopped.weft("pingall", check=False).stdout
    finally:
        stopped.run("node1", "bridge", "fdb", "replace", entry["mac"], "dev", "flannel.1", "dst", entry["dst"])
    assert stopped.json("pingall")["reached"] == report["tried"]


def test_pingall_fails_when_an_address_is_translated(stopped):
    rule = ["POSTROUTING", "-s", "10.244.0.0/16", "-o", "flannel.1", "-j", "MASQUERADE"]
    stopped.run("node1", "iptables", "-t", "nat", "-I", *rule)
    try:
        ran = stopped.weft("pingall", "-o", "json", check=False)
        assert ran.returncode == 1
        assert faults(json.loads(ran.stdout)) == {
            (a, b): "translated" for a in ("pod1-1", "pod1-2") for b in ("pod2-1", "pod2-2")
        }
        assert "is not an address of the source" in stopped.weft("pingall", check=False).stdout
    finally:
        stopped.run("node1", "iptables", "-t", "nat", "-D", *rule)


def test_pingall_of_fewer_than_two_pods_proves_nothing_and_says_so():
    with lab("--nodes", "1", "--pods", "1") as running:
        ran = running.weft("pingall", check=False)
        assert ran.returncode == 2
        assert "LAB-002 pingall: a lab with 1 pod; expected two pods at least" in ran.stderr
        running.weft("run", "second", "--node", "node1")
        assert running.json("pingall")["tried"] == 2 + 2


def test_rules_by_nft():
    with lab("--nodes", "2", "--nft") as running:
        assert "flannel-ipv4" in running.run("node1", "nft", "list", "tables")
        assert running.json("pingall")["reached"] == 4 * 3 + 2 * 4


def test_the_machines_iptables_and_nft_see_nothing_of_the_lab(pair):
    # `pair` is up while we look at the namespace that this test runs in.
    import subprocess

    rules = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    assert "flannel" not in rules


def test_nodes_of_wireguard_have_met_when_a_lab_is_up():
    with lab("--backend", "wireguard", "--nodes", "4", "--pods", "1") as running:
        for node in ("node1", "node2", "node3", "node4"):
            lines = running.run(node, "wg", "show", "flannel-wg", "latest-handshakes").splitlines()
            assert len(lines) == 3
            assert all(int(line.split()[1]) for line in lines), lines


@pytest.mark.parametrize("backend", ["udp", "wireguard", "ipsec"])
def test_everyone_reaches_everyone_through_processes(backend: str, tmp_path: Path):
    options = {"Type": "ipsec", "PSK": "0123456789abcdef" * 6} if backend == "ipsec" else {"Type": backend}
    net = network(backend, "4") | {"Backend": options}
    with lab(write_file(tmp_path, nodes=3, pods=2, network=net)) as running:
        # Two peers of WireGuard that begin a handshake at the same moment try again after five seconds.
        report = eventually(lambda: _all_reached(running.json("pingall", check=False)), seconds=20)
        assert report["tried"] == 6 * 5 + 3 * 6


def test_a_lab_whose_nodes_need_no_routes_comes_up(tmp_path: Path):
    net = network("alloc", "4")
    with lab(write_file(tmp_path, nodes=2, pods=2, network=net)) as running:
        address = {pod["name"]: str(ip_interface(pod["addresses"][0]).ip) for pod in running.ps()["pods"]}
        assert running.run("pod1-1", "ping", "-c", "1", "-W", "5", address["pod1-2"])
        assert not running.run("node1", "ip", "route", "show", "proto", "165")


def _all_reached(report: dict[str, Any]) -> dict[str, Any] | None:
    return report if report["reached"] == report["tried"] else None
