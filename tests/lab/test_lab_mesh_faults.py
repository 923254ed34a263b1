"""Each fault that a lab of a mesh can have is named by the doctor, and packets go another way where there is one."""

import json
from collections.abc import Iterator

import pytest

from tests.support.lab import WEFT, Lab, lab
from tests.support.weftd import eventually
from weft.lab.faults import FAULTS
from weft.lab.meshfaults import MESH

# Between the node and node1, the first that it reaches.
WAYS = {"node2": "vxlan-blocked", "node3": "vxlan-blocked-in", "node4": "udp-blocked", "node5": "large-dropped"}


@pytest.fixture(scope="module")
def mesh() -> Iterator[Lab]:
    with lab("--store", "mesh", "--nodes", "6", "--pods", "1") as running:
        yield running


def codes(running: Lab, *nodes: str) -> set[str]:
    reports = (json.loads(running.run(node, WEFT, "doctor", "-o", "json", check=False)) for node in nodes)
    return {each["code"] for report in reports for each in report["findings"]}


def speak(running: Lab) -> bool:
    """Paths that no pod uses are asked once a minute only."""
    return all(running.reached("pod1-1", f"pod{node[-1]}-1")[4] for node in WAYS)


def ways(running: Lab) -> dict[str, str]:
    """To node1, without the names of nodes between."""
    found = {}
    for node in WAYS:
        peers = json.loads(running.run(node, WEFT, "peers", "-o", "json"))
        [way] = [peer["way"] for peer in peers if peer["public"] == ["172.31.0.11"]]
        found[node] = "via" + way[way.index(" (") :] if way.startswith("via") else way
    return found


def test_what_blocks_ways_is_named_and_packets_go_by_others(mesh: Lab):
    assert not codes(mesh, "node1", "node2"), "a mesh without a fault is well"
    for node, name in WAYS.items():
        mesh.weft("break", node, name)
    expected = {
        "node2": "direct: port-filtered",
        "node3": "direct: port-filtered",
        "node4": "via (vxlan): port-filtered",
        "node5": "vxlan: mtu",
    }
    eventually(lambda: speak(mesh) and ways(mesh) == expected, seconds=90)
    assert "MESH-008" in codes(mesh, "node1")
    assert all("MESH-008" in codes(mesh, node) for node in WAYS)
    for node, name in WAYS.items():
        mesh.weft("break", node, name, "--mend")
    back = {**dict.fromkeys(WAYS, "vxlan"), "node5": ways(mesh)["node5"]}  # its size is tried again once a minute
    eventually(lambda: speak(mesh) and ways(mesh) | {"node5": back["node5"]} == back, seconds=90)


def test_a_relay_that_is_switched_off_is_named_by_others(mesh: Lab):
    mesh.weft("break", "node6", "relay-killed")
    try:
        eventually(lambda: "LEASE-005" in codes(mesh, "node1"), seconds=30)
        assert speak(mesh)
    finally:
        mesh.weft("break", "node6", "relay-killed", "--mend")
    eventually(lambda: mesh.weft("pingall", check=False).returncode == 0, seconds=60)


def test_a_ring_of_its_own_is_named_on_both_sides(mesh: Lab):
    mesh.weft("break", "node2", "ring-forked")
    try:
        eventually(lambda: "MESH-003" in codes(mesh, "node1") & codes(mesh, "node2"), seconds=30)
        assert speak(mesh), "packets flow"
    finally:
        mesh.weft("break", "node2", "ring-forked", "--mend")
    eventually(lambda: "MESH-003" not in codes(mesh, "node1", "node2"), seconds=60)


def test_an_old_snapshot_and_a_copy_of_a_disk_are_named(mesh: Lab):
    mesh.weft("break", "node2", "state-rolled-back")
    mesh.weft("break", "node6", "disk-cloned")
    eventually(lambda: "MESH-004" in codes(mesh, "node2") & codes(mesh, "node6"), seconds=60)
    eventually(lambda: speak(mesh), seconds=30)


def test_every_fault_of_a_mesh_is_among_all(mesh: Lab):
    assert [each for each in FAULTS if each.backends == ("mesh",)] == [*MESH]
    assert mesh.weft("break", "node1", "port-blocked", check=False).returncode == 2, "which is vxlan's"
