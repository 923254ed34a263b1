"""What the doctor finds of a mesh: detours, other rings, passwords, and who is gone."""

from ipaddress import ip_address
from typing import Any

from tests.pure.diag.doctor.sights import (
    PEER,
    ROUTES,
    STATE,
    TROUBLE,
    VXLAN,
    WELL,
    at_input,
    probed,
)
from tests.pure.diag.rules.test_verdict import DROP, field
from weft.diag.checks import CHECKS
from weft.diag.finding import Finding, ask
from weft.model.errors import Problem
from weft.model.kernel.reported import AddressInfo
from weft.model.node.meshstate import MeshPeer, MeshRing, MeshSaid, MeshState
from weft.model.value import replace

RING = "4f2a91c3" * 4


MESH = MeshState(
    id="node1-a", key="a", ring=MeshRing(id=RING, network="", blocks=3, unknown=0), usable=True, agreed=True
)


def in_a_mesh(*ways: str, **changes: Any) -> list[Finding]:
    """What is found on a node with so many peers."""
    reached = [replace(PEER, id=f"node{number}", way=way) for number, way in enumerate(ways, 2)]
    daemon = replace(STATE, peers=reached, mesh=replace(MESH, **changes))
    return ask(CHECKS, replace(WELL, daemon=daemon)).findings


def test_the_best_ways_are_well():
    assert not in_a_mesh("vxlan", "vxlan")


def test_a_detour_is_named_with_its_reason():
    one, several, unknown = in_a_mesh(
        "via node9-c (vxlan): port-filtered", "direct: one-way", "vxlan", "direct: one-way", "vxlan: odd"
    )
    assert {(each.problem.code, each.weight) for each in (one, several, unknown)} == {("MESH-008", "warning")}
    assert (one.problem.where, one.problem.seen) == (
        "peer node2",
        "packets go via node9-c (vxlan): no echo comes back by a better way (port-filtered)",
    )
    assert several.problem.where == "2 peers (node3, node5)"
    assert several.problem.seen.startswith("packets go by direct: the other node says")
    assert unknown.problem.seen == "packets go by vxlan: the daemon knows no better way (odd)"


def test_of_many_detours_ten_are_named():
    [found] = in_a_mesh(*["direct: mtu"] * 12)
    assert found.problem.where.startswith("12 peers (node2, ")
    assert found.problem.where.endswith(", node11 and more)")


def test_another_ring_is_a_fault_and_peers_that_are_in_none_are_not():
    [found] = in_a_mesh(strangers={"": ["node7"], RING: ["node8"], "00" * 16: ["node2-b", "node3-c"]})
    assert (found.problem.code, found.weight) == ("MESH-003", "fault")
    assert found.problem.seen == "node2-b, node3-c are in ring 00000000"
    assert not in_a_mesh(strangers={"00" * 16: ["node2-b"]}, ring=None)


def test_another_password_is_a_fault_of_a_node_that_has_no_link():
    refusing = Problem(code="MESH-002", where="mesh", seen="192.0.2.1:51820: it has another password")
    unreached = {"192.0.2.1:51820": refusing, "192.0.2.2:51820": replace(refusing, code="MESH-001")}
    [found] = in_a_mesh(unreached=unreached)
    assert (found.problem, found.weight) == (refusing, "fault")
    linked = MeshPeer(id="node2-b", name="node2", key="b", us=False, linked=True)
    assert [each.weight for each in in_a_mesh(unreached=unreached, peers=(linked,))] == ["warning"]


def test_what_the_mesh_has_complained_of_lately_is_said_once_each():
    old = Problem(code="MESH-009", where="the ring", seen="ours is another's")
    again = replace(TROUBLE, code="MESH-004", where="mesh.json")
    said = (
        MeshSaid(seconds=4000.0, text="", problem=old),
        MeshSaid(seconds=300.0, text="", problem=replace(again, seen="before")),
        MeshSaid(seconds=120.0, text="", problem=again),
        MeshSaid(seconds=60.0, text="", problem=replace(old, code="MESH-003")),
        MeshSaid(seconds=9.0, text="a grant"),
    )
    [found] = in_a_mesh(said=said)
    assert (found.problem.code, found.problem.seen, found.weight) == (
        "MESH-004",
        "2 min 0 s ago: it is outside",
        "warning",
    )


def test_the_address_at_which_a_mesh_asks_a_path_is_no_strangers():
    asked = (*WELL.addresses, AddressInfo(index=VXLAN, ip=ip_address("10.244.250.7"), prefixlen=32))
    assert [each.problem.code for each in ask(CHECKS, replace(WELL, addresses=asked)).findings] == ["HOST-001"]
    assert not ask(CHECKS, replace(WELL, addresses=asked, daemon=replace(STATE, mesh=MESH))).findings


def test_what_blocks_a_better_way_alone_is_a_warning():
    daemon = replace(STATE, mesh=MESH, peers=[replace(PEER, way="via node3-c (vxlan): port-filtered")])
    found = ask(CHECKS, replace(WELL, daemon=daemon, rules=at_input(field("udp", "dport", 8472), DROP))).findings
    assert [(each.problem.code, each.weight) for each in found] == [("REACH-001", "warning"), ("MESH-008", "warning")]
    assert found[0].problem.hint.startswith("Packets between pods go another way now. Have the program")


def test_who_is_gone_from_a_mesh_goes_by_a_command():
    gone = (probed("overlay", answered=False), probed("underlay", answered=False))
    [found] = ask(CHECKS, replace(WELL, probes=gone, daemon=replace(STATE, mesh=MESH))).findings
    assert found.problem.code == "LEASE-005"
    assert "stays until you type 'weft mesh rmpeer'" in found.problem.hint


def test_what_a_mesh_has_measured_is_no_loss():
    probes = (probed("overlay"), probed("large", answered=False), probed("underlay"))
    assert [each.problem.code for each in ask(CHECKS, replace(WELL, probes=probes)).findings] == ["MTU-001"]
    measured = (*ROUTES[:2], replace(ROUTES[2], mtu=1380), *ROUTES[3:])
    assert not ask(CHECKS, replace(WELL, probes=probes, routes=measured)).findings
