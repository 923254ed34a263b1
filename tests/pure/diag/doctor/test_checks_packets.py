"""What the doctor finds by packets of pods that were tried: what is lost, and what a trace has seen of it."""

from ipaddress import ip_address
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    MUTE,
    POD_IP,
    WELL,
    codes,
    find,
    links,
    probed,
)
from weft.diag.checks import CHECKS
from weft.diag.finding import ask
from weft.diag.sight.node import (
    Lost,
    Proof,
)
from weft.model.errors import Problem
from weft.model.value import replace


def lost(cause: Problem | None, *, peer: str = "10.244.2.0/24", target: str = "10.244.2.0", **changes: Any) -> Lost:
    return Lost(source=POD_IP, target=ip_address(target), peer=peer, cause=cause, **changes)


def proved(*found: Lost, tried: int = 4, pods: int = 1) -> dict[str, Any]:
    return {"proof": Proof(tried=tried, arrived=tried - len(found), pods=pods, peers=1, lost=found)}


XFRM = Problem(code="XFRM-001", where="node1", seen="a policy of IPsec drops them")
UNKNOWN = Problem(code="REACH-001", where="node1 to node2", seen="eth0 sent 3, nothing came back")


def test_what_a_trace_has_seen_stands_in_place_of_what_silence_suggests():
    [found] = find(probes=MUTE, **proved(lost(XFRM)))
    assert (found.problem, found.weight) == (XFRM, "fault")
    # Of another peer that answers nobody either it says nothing, of one beside answering ones it does.
    far = tuple(replace(each, peer="10.244.9.0/24") for each in MUTE)
    assert codes(probes=(*MUTE, *far), **proved(lost(XFRM))) == ["XFRM-001"]
    near = replace(probed("overlay"), peer="10.244.8.0/24")
    assert codes(probes=(*MUTE, *far, near), **proved(lost(XFRM))) == ["LEASE-005", "XFRM-001"]


def test_where_a_trace_has_not_seen_why_the_silent_peer_is_judged_as_before():
    assert codes(probes=MUTE, **proved(lost(UNKNOWN))) == ["LEASE-005"]
    assert codes(**proved(lost(UNKNOWN))) == ["REACH-001"]  # it answers the node, and not its pods


def test_what_is_lost_among_pods_is_told_once():
    wall = Problem(code="FW-002", where="forward", seen="dropped by a rule")
    beside = [lost(wall, peer="", target=f"10.244.1.{number}") for number in (3, 4)]
    [found] = find(**proved(*beside, pods=2))
    assert (found.problem, found.weight) == (wall, "fault")
    # Where others arrive the rule may be a policy's of another program.
    [found] = find(**proved(*beside, pods=3))
    assert found.weight == "warning"
    assert not find(**proved(lost(wall, peer="", forbidden=True)))


def test_what_policies_refuse_is_no_finding_traced_or_not():
    refused = lost(None, forbidden=True)
    assert not find(**proved(refused, lost(None, peer="", forbidden=True)))
    [found] = find(**proved(refused, lost(None)))
    assert found.problem.seen == "1 packet of 4 did not arrive"


def test_what_was_not_traced_is_counted():
    [found] = find(**proved(lost(None)))
    assert (found.problem.code, found.problem.seen) == ("LOST-001", "1 packet of 4 did not arrive")
    assert codes(**proved(lost(None), lost(XFRM))) == ["XFRM-001"]
    assert codes(probes=MUTE, **proved(lost(None))) == ["LEASE-005"]


def test_what_a_check_has_said_no_packet_says_again():
    cause = Problem(code="VTEP-003", where="link flannel.1", seen="it is down")
    [found] = find(**links("flannel.1", up=False), **proved(lost(cause)))
    assert found.problem.hint != cause.hint
    assert codes(**links("flannel.1", up=False), **proved(lost(UNKNOWN))) == ["VTEP-003"]
    # What is lost on this node is no silence of the peer's.
    assert codes(probes=MUTE, **proved(lost(UNKNOWN, here=True))) == ["REACH-001"]


@pytest.mark.parametrize("proof", [None, Proof(tried=0, arrived=0, pods=0, peers=0)])
def test_without_packets_nothing_is_proved(proof: Proof | None):
    [answer] = [each for each in ask(CHECKS, replace(WELL, proof=proof)).answers if each.unseen]
    assert (answer.check, answer.findings) == ("packets", ())
