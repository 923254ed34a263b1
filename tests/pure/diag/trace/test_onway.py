"""What hangs on the links where probes were lost, and when it is named."""

from typing import Any

import pytest

from weft.diag.sight.node import Hanging
from weft.diag.trace.grown import by_probes, explained
from weft.diag.trace.hops import Hop, Leg, Way
from weft.diag.trace.onway import asked, named, shut
from weft.diag.trace.outcome import Answers, outcome
from weft.diag.trace.probes import ProbesSeen
from weft.model.errors import Problem

WAY = [("node1", "veth1"), ("node1", "veth2")]


def on(*found: tuple[str, str]) -> dict[str, list[Hanging]]:
    return {"node1": [Hanging(device=device, kind=kind, seen=f"it is {kind}") for device, kind in found]}


@pytest.mark.parametrize(
    "found, where",
    [
        (on(("veth1", "shut")), "port veth1 of node1"),
        (on(("veth1", "isolated"), ("veth2", "isolated")), "ports of node1"),
        (on(("veth1", "isolated"), ("veth9", "isolated"), ("veth9", "shut")), None),
        (on(("veth1", "locked"), ("veth2", "program")), None),
        ({}, None),
    ],
)
def test_ports_that_let_nothing_pass(found: Any, where: str | None):
    problem = shut(WAY, found)
    assert (problem and problem.where) == where
    assert problem is None or problem.code == "BRIDGE-007"


@pytest.mark.parametrize("kind, code", [("locked", "BRIDGE-007"), ("program", "PROG-001"), ("isolated", None)])
def test_what_may_have_taken_them(kind: str, code: str | None):
    problem = asked(WAY, on(("veth2", kind)))
    assert (problem and problem.code) == code


def test_a_counter_and_the_program_that_it_may_be_of():
    counted = explained("node1", {"Queue.clsact.veth1": 3, "Queue.tbf.eth0": 0}, 3)
    assert counted is not None
    assert (counted.code, counted.seen.partition(":")[0]) == (
        "PROG-001",
        "a filter or program of tc on veth1 drops them",
    )
    assert named(counted, WAY, on(("veth1", "program"))).seen.endswith("grew by 3; there is it is program")
    assert named(counted, WAY, {}) == counted
    queue = explained("node1", {"Queue.tbf.eth0": 3}, 3)
    assert queue is not None
    assert queue.code == "QDISC-001"
    assert named(queue, WAY, on(("veth1", "program"))) == queue
    assert explained("node1", {"Link.rx.eth0": 3}, 3) is None
    full = explained("node1", {"Queue.tbf.eth0": 900, "XfrmOutPolBlock": 900}, 3)
    assert full is not None
    assert full.code == "QDISC-001"


def test_what_grows_without_probes_is_no_reason():
    assert by_probes({"a": 4, "b": 4, "c": 4}, {"a": 1, "b": 3, "c": 5}, times=1.0) == {"a": 4, "b": 1}


def lost(*counts: int, **more: Any) -> str:
    devices = (("sent by", "eth0"), ("host end", "veth1"), ("host end", "veth2"))
    hops = tuple(Hop(what=what, seen="", device=device) for what, device in devices)
    counted = {device: count for (_, device), count in zip(devices, counts, strict=True)}
    leg = Leg(node="node1", direction="there", way=Way(hops=hops, end="sent"), counted=counted)
    return outcome([leg], Answers(sent=3, reached=0, seen=ProbesSeen(**more)), due=True).verdict


def test_a_port_ahead_takes_what_is_asked_before_the_first_probe_is_sent():
    assert lost(0, 0, 0, on_links=on(("veth2", "shut"))).startswith("BRIDGE-007 port veth2 of node1")
    assert lost(0, 0, 0, on_links=on(("veth2", "program"))).startswith("PROG-001 veth2 of node1")
    assert lost(3, 0, 0, on_links=on(("veth2", "program"))).startswith("LOST-001 node1")
    assert lost(3, 3, 0, on_links=on(("veth2", "program"))).startswith("PROG-001 veth2 of node1")
    assert lost(3, 3, 0, grown={"node1": {"Queue.tbf.veth2": 3}}).startswith("QDISC-001 node1")
    problem = Problem("LOST-001", "node1", "veth1 of node1 received 3, veth2 received 0")
    assert lost(3, 3, 0).startswith(str(problem))


def test_a_queue_that_drops_the_question_for_a_mac_is_named_though_it_drops_fewer_than_the_probes():
    assert lost(0, 0, 0, queues={"node1": {"Queue.tbf.veth1": 1}}).startswith(
        "QDISC-001 node1: the queueing discipline"
    )
    filtered = lost(0, 0, 0, queues={"node1": {"Queue.clsact.veth1": 1}}, on_links=on(("veth1", "program")))
    assert filtered.startswith("PROG-001 node1")
    assert "there is it is program" in filtered
    assert lost(0, 0, 0, queues={"node1": {"Queue.tbf.cali0": 1, "Ip.InDiscards": 1}}).startswith("LOST-001")
    assert lost(3, 1, 1, queues={"node1": {"Queue.tbf.veth1": 1}}).startswith("LOST-001")
