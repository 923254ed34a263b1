"""The legs of a trace of a lab, and where probes that were counted at its devices were lost."""

from typing import Any

import pytest

from weft.diag.tracing.hops import Hop, Way
from weft.lab.tracing.legs import End, Leg, counted, legs
from weft.lab.tracing.outcome import Outcome, outcome, parted
from weft.model.errors import Problem

POD1 = End(node="node1", address="10.244.1.2", pod="pod1", host_end="veth1")
POD2 = End(node="node2", address="10.244.2.2", pod="pod2", host_end="veth2")
NODE2 = End(node="node2", address="172.31.0.12")
DROPPED = Problem(code="FW-002", where="forward", seen="dropped by a rule")


def hops(*devices: str) -> tuple[Hop, ...]:
    """`what:device`, or what alone."""
    pairs = (each.partition(":") for each in devices)
    return tuple(Hop(what=what, seen="", device=device) for what, _, device in pairs)


OUT = Way(hops=hops("from the pod by:cni0", "route", "out by:flannel.1", "outer packet by:eth0"), end="sent")
IN = Way(hops=hops("received by:eth0", "unwrapped by:flannel.1", "out by:cni0"), end="delivered")
FIRST: Any = ("node1", {"there": OUT, "back": IN})
KNOWN: Any = [FIRST, ("node2", {"there": IN, "back": OUT})]


def steps(found: list[Leg]) -> list[str]:
    return [f"{leg.place} {hop.device}" for leg in found for hop in leg.way.hops if hop.device]


THERE = [
    *("pod1 eth0", "node1 veth1", "node1 cni0", "node1 flannel.1", "node1 eth0"),
    *("node2 eth0", "node2 flannel.1", "node2 cni0", "node2 veth2", "pod2 eth0"),
]


def test_between_pods_all_devices_are_passed_there_and_back():
    found = legs(POD1, POD2, KNOWN)
    assert steps(found) == [*THERE, *reversed(THERE)]
    assert [(leg.place, leg.direction) for leg in found] == [
        *(("pod1", "there"), ("node1", "there"), ("node2", "there"), ("pod2", "there")),
        *(("pod2", "back"), ("node2", "back"), ("node1", "back"), ("pod1", "back")),
    ]


def test_to_a_node_and_on_one_node():
    assert (POD1.place, NODE2.place) == ("pod1", "node2")
    assert steps(legs(POD1, NODE2, KNOWN))[:8] == THERE[:8]
    same = Way(hops=hops("from the pod by:veth1", "out by:veth2"), end="delivered")
    back = Way(hops=hops("from the pod by:veth2", "out by:veth1"), end="delivered")
    other = End(node="node1", address="10.244.1.3", pod="pod3", host_end="veth2")
    found = legs(POD1, other, [("node1", {"there": same, "back": back})])
    assert steps(found) == [
        *(
            "pod1 eth0",
            "node1 veth1",
            "node1 veth2",
            "pod3 eth0",
            "pod3 eth0",
            "node1 veth2",
            "node1 veth1",
            "pod1 eth0",
        )
    ]


def test_the_legs_end_where_the_packet_does():
    dropped = Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED)
    found = legs(POD1, POD2, [FIRST, ("node2", {"there": dropped, "back": OUT})])
    assert steps(found) == THERE[:6]


def tried(seen: int, lost_at: int, *, known: Any = None, answers: bool = True, hidden: tuple[int, ...] = ()) -> Outcome:
    """Three probes, of which `seen` alone pass the device of this number and those behind it."""
    found = legs(POD1, POD2, known or KNOWN)
    numbers = iter(range(99))

    def at(*_: Any) -> int:
        number = next(numbers)
        return 0 if number in hidden else 3 if number < lost_at else seen

    found = [counted(leg, at) for leg in found]
    reached = seen if lost_at < 20 else 3
    return outcome(found, sent=3, reached=reached, answers=answers)


def test_all_is_well_even_where_a_cipher_hides_probes():
    assert tried(0, 20) == Outcome(verdict="it arrives, and the answer comes back", well=True, leg=7)
    assert parted([counted(leg, lambda *_: 3) for leg in legs(POD1, POD2, KNOWN)], 3) is None
    assert tried(0, 7, hidden=(4, 5)).verdict.startswith("FW-002 node2: sent 3 by flannel.1 of node2, cni0 of node2")


@pytest.mark.parametrize(
    "lost_at, said",
    [
        (0, "FW-002 pod1: pod1 sent 0 by eth0"),
        (1, "CHECK-001 pod pod1: sent 3 by eth0 of pod1, veth1 of node1 received 0"),
        (3, "FW-002 node1: sent 3 by cni0 of node1, flannel.1 of node1 received 0"),
        (4, "REACH-001 node1: sent 3 by flannel.1 of node1, eth0 of node1 received 0"),
        (5, "REACH-001 node1 to node2: sent 3 by eth0 of node1, eth0 of node2 received 0"),
        (6, "REACH-001 node2: sent 3 by eth0 of node2, flannel.1 of node2 received 0"),
        (9, "CHECK-001 pod pod2: sent 3 by veth2 of node2, eth0 of pod2 received 0"),
        (10, "FW-002 pod2: pod2 received 3 and answered 0"),
        (15, "REACH-001 node2 to node1: sent 3 by eth0 of node2, eth0 of node1 received 0"),
    ],
)
def test_the_first_device_that_did_not_see_them(lost_at: int, said: str):
    found = tried(0, lost_at)
    assert found.verdict.startswith(said)
    assert not found.well
    assert found.leg == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 6][lost_at]


def test_some_are_lost():
    assert tried(2, 5).verdict.startswith("REACH-001 node1 to node2: sent 3 by eth0 of node1, eth0 of node2 received 2")


def test_a_datagram_need_not_be_answered():
    assert tried(0, 10, answers=False) == Outcome(verdict="it arrives; pod2 does not answer", well=True, leg=7)


def test_what_was_predicted_to_be_dropped():
    dropped = [
        FIRST,
        ("node2", {"there": Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED), "back": OUT}),
    ]
    assert tried(0, 6, known=dropped).verdict == f"the packet is dropped on node2: {DROPPED}"
    assert tried(0, 20, known=dropped).verdict == (
        f"3 of 3 answers came back, and the packet was predicted to be dropped on node2: {DROPPED}"
    )
    back = [
        ("node1", {"there": OUT, "back": Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED)}),
        KNOWN[1],
    ]
    assert tried(0, 16, known=back).verdict == f"the answer is dropped on node1: {DROPPED}"


def test_what_was_not_told():
    known = [("node1", {"there": Way(hops=OUT.hops, end="undecided"), "back": IN}), KNOWN[1]]
    assert tried(0, 3, known=known).verdict.startswith("it was not told by what was read; FW-002 node1: sent 3")
    found = [counted(leg, lambda *_: 3) for leg in legs(POD1, POD2, KNOWN)]
    assert outcome(found, sent=3, reached=2, answers=True).verdict.startswith("2 of 3 answers came back, and no device")
