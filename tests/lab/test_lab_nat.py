"""A lab with segments behind NATs: what passes them, what does not, and that the doctor names one."""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

from tests.support.lab import WEFT, Lab, lab, write_file
from tests.support.waiting import in_time
from tests.support.weftd import eventually

NODES = [{"name": "left", "pods": 1}, *({"name": name, "pods": 1, "segment": 2} for name in ("far", "beside"))]


# Sends to several targets from WireGuard's port for some seconds, and prints from where anything has come.
TALK = """
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("", 51820))
sock.settimeout(0.1)
heard, end = set(), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for target in sys.argv[2:]:
        host, port = target.split(":")
        sock.sendto(b"x", (host, int(port)))
    try:
        heard.add("%s:%s" % sock.recvfrom(9)[1])
    except TimeoutError:
        pass
print(*sorted(heard))
"""


def talk(running: Lab, what: dict[str, Sequence[str]], seconds: float = 2.0) -> dict[str, str]:
    """Who hears from where, of nodes that all send at once to some targets; each begins a little later."""
    with ThreadPoolExecutor() as threads:
        said = {
            node: threads.submit(running.run, node, sys.executable, "-c", TALK, str(seconds + late / 2), *targets)
            for late, (node, targets) in enumerate(what.items())
        }
        return {node: each.result().strip() for node, each in said.items()}


def test_two_behind_nats_of_their_own_meet_though_one_sends_before_the_other():
    with lab("--nodes", "3", "--pods", "0", "--nat", "cone") as running:
        two, three = "172.31.0.2:40002", "172.31.0.3:40003"
        running.run("node2", sys.executable, "-c", TALK, "0.3", three)  # which node3 has not asked for
        assert talk(running, {"node2": [three], "node3": [two]}) == {"node2": three, "node3": two}
        beyond = "172.31.0.11:51820"
        assert talk(running, {"node1": [], "node2": [beyond], "node3": [beyond]})["node1"] == f"{two} {three}"
        running.weft("partition", "node2", "node3")
        heard = talk(running, {"node1": [], "node2": [three, beyond], "node3": [two, beyond]})
        assert heard == {"node1": f"{two} {three}", "node2": "", "node3": ""}


def test_a_hard_nat_takes_another_port_for_each_target(tmp_path: Path):
    nodes = ["one", "other", {"name": "far", "segment": 2}]
    with lab(write_file(tmp_path, nodes=nodes, pods=0, nat=[{"segment": 2, "kind": "hard"}])) as running:
        heard = talk(running, {"one": [], "other": [], "far": ["172.31.0.11:51820", "172.31.0.12:51820"]})
        assert heard["one"].startswith("172.31.0.2:")
        assert heard["other"].startswith("172.31.0.2:")
        assert heard["one"] != heard["other"]


def ways(running: Lab, node: str) -> dict[str, str]:
    """The way from a node to each other one, by its name."""
    peers = json.loads(running.run(node, WEFT, "peers", "-o", "json"))
    return {peer["id"].rpartition("-")[0]: peer["way"] for peer in peers}


def test_n8_two_of_a_mesh_behind_nats_of_their_own_meet_and_go_by_a_third_until_then():
    with lab("--store", "mesh", "--nodes", "3", "--pods", "1", "--nat", "cone") as running:
        start = time.monotonic()
        eventually(lambda: running.weft("pingall", check=False).returncode == 0, seconds=30)
        eventually(lambda: ways(running, "node2")["node3"] == ways(running, "node3")["node2"] == "direct", seconds=60)
        assert in_time(start, 15)
        running.weft("pingall")
        running.weft("kill", "node2/weftd")
        running.weft("start", "node2/weftd")
        running.weft("pingall")
        assert ways(running, "node2") == {"node1": "direct", "node3": "direct"}


def test_n8_two_of_a_mesh_behind_hard_nats_go_by_a_third(tmp_path: Path):
    nodes = ["one", "other", {"name": "far", "segment": 2}, {"name": "away", "segment": 3}]
    nat = [{"segment": segment, "kind": "hard"} for segment in (2, 3)]
    with lab(write_file(tmp_path, nodes=nodes, pods=1, nat=nat, store="mesh")) as running:
        for node, other in (("far", "away"), ("away", "far")):
            eventually(
                lambda node=node, other=other: ways(running, node)[other].endswith("(direct): nat-hard"), seconds=30
            )
        running.weft("pingall")


def diagnosis(running: Lab, node: str) -> dict[str, str]:
    """What the doctor of a node finds: what it has seen, by code."""
    said = running.run(node, "weft", "doctor", "-o", "json", check=False)
    return {finding["code"]: finding["seen"] for finding in json.loads(said)["findings"]}


def test_a_node_outside_names_the_nat(tmp_path: Path):
    with lab(write_file(tmp_path, nodes=NODES, nat=[2])) as running:
        assert running.reached("pod2-1", "pod3-1") == {4: True}
        assert running.reached("far", "left") == {4: True}
        assert running.reached("left", "far") == {4: False}
        cells = running.json("ping", "pod2-1", "pod1-1", "-c", "1", check=False)["cells"]
        assert [(cell["fault"] != "", cell["seen"]) for cell in cells] == [(True, "10.244.2.2")]
        # Datagrams of pods pass it whole in the one direction, in VXLAN with its outer checksum.
        checked = json.loads(running.weft("check", "--quick", "-o", "json", check=False).stdout)
        assert checked["conclusion"].startswith("every packet through the pod network from left to others is lost")
        found = diagnosis(running, "left")
        assert "addresses that are no peer's: 172.31.0.2" in found.pop("NAT-001")
        assert not found


def test_wireguard_passes_it(tmp_path: Path):
    backend = {"Type": "wireguard", "PersistentKeepaliveInterval": 1}
    network = {"Network": "10.244.0.0/16", "Backend": backend}
    with lab(write_file(tmp_path, nodes=NODES, nat=[2], network=network)) as running:
        # A node that offers its key before the other knows it offers it again after five seconds, and only the nodes
        # behind the NAT can begin.
        for one, other in combinations(("pod1-1", "pod2-1", "pod3-1"), 2):
            eventually(lambda one=one, other=other: running.reached(one, other) == {4: True}, seconds=30)
        assert running.weft("pingall").returncode == 0
        assert not diagnosis(running, "far")
