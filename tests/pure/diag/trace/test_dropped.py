"""What the kernel's monitor says of probes that were lost for a reason that nothing else shows."""

from collections.abc import Sequence

import pytest

from tests.pure.diag.trace.probing import NUMBERS, following
from weft.diag.trace.dropped import explained
from weft.diag.trace.probe_report import TraceReport
from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.wire.icmp import marked_request

UNSEEN = Problem("LOST-001", "node1", "cni0 of node1 received 3, flannel.1 sent 0", hint="They vanish there")
PROBE = following().probe


def drops(
    reason: str, numbers: Sequence[int] = NUMBERS, device: str = "cni0", function: str = "ip_forward"
) -> list[Drop]:
    """Of the numbered probes, and of a packet of somebody else."""
    header = bytes(14) + b"\x45" + bytes(19)
    frames = [*(header + marked_request(4, number) for number in numbers), header + marked_request(4, 99)]
    return [Drop(reason=reason, function=function, device=device, protocol=0x0800, frame=each) for each in frames]


def report(problem: Problem | None) -> TraceReport:
    return TraceReport(
        source="a",
        target="b",
        legs=[],
        tried=3,
        reached=0,
        elsewhere=0,
        verdict=str(problem),
        well=problem is None,
        last=0,
        problem=problem,
    )


def test_the_kernels_reason_has_its_code_if_all_probes_met_it():
    found = explained(report(UNSEEN), PROBE, drops("IP_INADDRERRORS"))
    assert found.verdict == str(found.problem)
    assert found.verdict.startswith(
        "KERN-002 node1: the kernel forwards nothing to where they go:"
        " IP_INADDRERRORS in ip_forward, which came in by cni0, as the kernel tells."
    )


@pytest.mark.parametrize(
    "told, said",
    [
        # A copy may have met it.
        (drops("IP_RPFILTER", NUMBERS[:2]), "dropped: IP_RPFILTER in ip_forward, which came in by cni0, as"),
        (drops("UNHANDLED_PROTO", device=""), "dropped: UNHANDLED_PROTO in ip_forward, as the kernel tells"),
        (drops("", device=""), "dropped: no reason is given in ip_forward, as the kernel tells"),
    ],
)
def test_what_is_no_proof_is_said_and_has_no_code_of_its_own(told: list[Drop], said: str):
    found = explained(report(UNSEEN), PROBE, told)
    assert found.problem is not None
    assert (found.problem.code, found.problem.where, found.problem.hint) == ("LOST-001", "node1", "")
    assert found.problem.seen.startswith(f"{UNSEEN.seen}; {said}")


def test_a_known_reason_comes_before_one_that_says_nothing():
    found = explained(report(UNSEEN), PROBE, [*drops("NOT_SPECIFIED"), *drops("XFRM_POLICY")])
    assert found.problem is not None
    assert found.problem.code == "XFRM-001"


def test_answers_that_have_come_to_their_end_are_not_dropped():
    assert explained(report(UNSEEN), PROBE, drops("NOT_SPECIFIED", function="icmp_rcv")) == report(UNSEEN)


@pytest.mark.parametrize("problem", [None, Problem("FW-002", "node1", "a rule drops them"), UNSEEN])
def test_other_packets_and_other_causes_change_nothing(problem: Problem | None):
    told = drops("IP_RPFILTER", []) if problem is UNSEEN else drops("IP_RPFILTER")
    assert explained(report(problem), PROBE, told) == report(problem)
