"""A lab with a segment behind a NAT: what passes it, what does not, and that the doctor names it."""

import json
from itertools import combinations
from pathlib import Path

from tests.support.lab import Lab, lab, write_file
from tests.support.weftd import eventually

NODES = [{"name": "left", "pods": 1}, *({"name": name, "pods": 1, "segment": 2} for name in ("far", "beside"))]


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
        assert checked["conclusion"].startswith("every lost packet is from left to others")
        found = diagnosis(running, "left")
        assert "addresses that are no peer's: 172.31.0.1" in found.pop("NAT-001")
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
