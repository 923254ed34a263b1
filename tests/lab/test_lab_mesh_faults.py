"""Each fault that a lab of a mesh can have is named by the doctor, and packets go another way where there is one."""

import json
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually
from weft.lab.faults import FAULTS
from weft.lab.meshfaults import MESH

WAYS = ("vxlan-blocked", "vxlan-blocked-in", "udp-blocked")


@pytest.fixture(scope="module")
def mesh() -> Iterator[Lab]:
    with lab("--store", "mesh", "--nodes", "3", "--pods", "1") as running:
        yield running


def codes(running: Lab, node: str) -> set[str]:
    found = json.loads(running.run(node, "weft", "doctor", "-o", "json", check=False))["findings"]
    return {each["code"] for each in found}


def speak(running: Lab) -> bool:
    """Paths that no pod uses are asked once a minute only."""
    return running.reached("pod1-1", "pod2-1")[4]


def test_a_mesh_without_a_fault_is_well(mesh: Lab):
    assert not codes(mesh, "node1") | codes(mesh, "node2") | codes(mesh, "node3")


@pytest.mark.parametrize("name", WAYS)
def test_what_blocks_a_way_is_named_at_both_ends_and_packets_go_by_another(mesh: Lab, name: str):
    mesh.weft("break", "node1", name)
    try:
        for node in ("node1", "node2"):
            eventually(lambda node=node: speak(mesh) and "MESH-008" in codes(mesh, node), seconds=60)
    finally:
        mesh.weft("break", "node1", name, "--mend")
    eventually(lambda: speak(mesh) and not codes(mesh, "node1") | codes(mesh, "node2"), seconds=120)


def test_a_relay_that_is_switched_off_is_named_by_others(mesh: Lab):
    mesh.weft("break", "node3", "relay-killed")
    try:
        eventually(lambda: "LEASE-005" in codes(mesh, "node1"), seconds=30)
        assert speak(mesh)
    finally:
        mesh.weft("break", "node3", "relay-killed", "--mend")
    eventually(lambda: mesh.weft("pingall", check=False).returncode == 0 and not codes(mesh, "node1"), seconds=60)


def test_a_ring_of_its_own_is_named_on_both_sides(mesh: Lab):
    mesh.weft("break", "node2", "ring-forked")
    try:
        for node in ("node1", "node2"):
            eventually(lambda node=node: "MESH-003" in codes(mesh, node), seconds=30)
        assert speak(mesh), "packets flow"
    finally:
        mesh.weft("break", "node2", "ring-forked", "--mend")
    eventually(lambda: not codes(mesh, "node1") | codes(mesh, "node2"), seconds=240)


def test_an_old_snapshot_of_a_disk_is_named_and_does_no_harm(mesh: Lab):
    mesh.weft("break", "node2", "state-rolled-back")
    eventually(lambda: codes(mesh, "node2") == {"MESH-004"}, seconds=30)
    mesh.weft("pingall")


def test_every_fault_of_a_mesh_is_among_all(mesh: Lab):
    assert [each for each in FAULTS if each.backends == ("mesh",)] == [*MESH]
    assert mesh.weft("break", "node1", "port-blocked", check=False).returncode == 2, "which is vxlan's"
