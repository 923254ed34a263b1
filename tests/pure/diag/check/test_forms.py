"""A check's report: summed up, for people and for CI systems."""

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from tests.pure.checks import Sent, tried
from weft.diag.check.causes import causes
from weft.diag.check.evidence import Evidence
from weft.diag.check.report import CheckReport, as_junit, as_text, summed_up
from weft.lab.trials import IN_A_LAB
from weft.model.errors import Problem

FORWARDING = Evidence(
    node="node2", by="doctor", problem=Problem(code="KERN-002", where="sysctl", seen="it is 0", hint="Set\nit")
)


def checked(*, nodes: int = 2, lost: bool = True) -> CheckReport:
    def loss(sent: Sent) -> bool:
        return lost and sent.crosses and sent.way == "overlay" and sent.end == "node2"

    everything = tried(loss, nodes=nodes, pods=1)
    found = causes(everything, "lost")
    return summed_up(IN_A_LAB, everything, found, [FORWARDING] if found else [])


WELL = """\
everything reaches everything: 52 trials, and none failed

TRIALS PASSED, FROM  node1  node2  WHAT
pod-loopback         3      3      a pod to itself at the loopback address, as its containers reach each other
pod-itself           3      3      a pod to its own address, which no other pod has
pod-pod-same         -      -      a pod to a pod of the same node
"""
BROKEN = """\
every packet through the pod network from node1 to node2 is lost: KERN-002 on node2, sysctl: it is 0
14 of 52 trials failed

"""
FAILURES = """
node2, by doctor: KERN-002 sysctl: it is 0. Set; it

pod-pod-other: 6 of 6 failed
  pod1-1 -> pod2-1 (10.244.2.2), ICMP by IPv4: nothing arrived
  pod1-1 -> pod2-1 (10.244.2.2), UDP by IPv4: nothing arrived
  pod1-1 -> pod2-1 (10.244.2.2), TCP by IPv4: nothing arrived
  and 3 more; -o json has all

pod-pod-mtu: 2 of 2 failed
  pod1-1 -> pod2-1 (10.244.2.2), UDP of 1450 bytes by IPv4: nothing arrived
  pod2-1 -> pod1-1 (10.244.1.2), UDP of 1450 bytes by IPv4: it arrived from own, and no answer came back

node-pod-other: 6 of 6 failed
"""
SHARES = """
DEMAND OF THE NETWORK MODEL                          TRIED  FAILED
every pod has its own address                        6      0
pods reach pods on all nodes without NAT             8      8
agents on a node reach the pods of that node         6      0
a pod sees itself under the address that others see  6      6

PROBLEM OF THE NETWORK MODEL  TRIED  FAILED
container to container        12     0
pod to pod                    40     14
pod to Service                -      -
external to Service           -      -
"""


def test_for_people():
    well, broken = "".join(as_text(checked(lost=False))), "".join(as_text(checked()))
    assert well.startswith(WELL)
    assert well.endswith("external to Service           -      -\n")
    assert broken.startswith(BROKEN)
    assert "\npod-pod-other        0 of 3  0 of 3  a pod to a pod of another node\n" in broken
    assert SHARES in broken
    assert FAILURES in broken


@pytest.mark.parametrize("nodes, wide", [(8, False), (9, True)])
def test_many_nodes_share_a_column(nodes: int, wide: bool):
    heading = "".join(as_text(checked(nodes=nodes, lost=False))).splitlines()[2].split()
    assert ("ALL" in heading) == wide
    assert ("node8" in heading) != wide


def test_as_json():
    data = json.loads(msgspec.json.encode(checked()))
    assert (data["tried"], data["failed"], len(data["trials"])) == (52, 14, 52)
    assert data["conclusion"].startswith("every packet through the pod network")
    assert data["causes"] == [
        {
            "sentence": "every packet through the pod network from node1 to node2 is lost",
            "nodes": ["node1", "node2"],
            "failed": 14,
            "passed": 0,
            "code": "KERN-002",
            "node": "node2",
            "seen": "KERN-002 sysctl: it is 0. Set\nit",
        }
    ]


def test_what_could_not_be_tried_is_said():
    everything = tried(lambda _: False, nodes=2, pods=1)
    assert "\nnot tried: web: taken\n" in "".join(
        as_text(summed_up(IN_A_LAB, everything, [], [], untried=["web: taken"]))
    )


def test_as_junit():
    suite = ET.fromstring(as_junit("weft lab check", checked()))  # noqa: S314 - our own
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("weft lab check", "52", "14")
    case = next(case for case in suite if case.find("failure") is not None)
    assert (case.get("classname"), case.get("name")) == ("weft.lab.check.pod-pod-other", "pod1-1 to pod2-1 icmp IPv4")
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("type") == "lost"
    assert failure.get("message") == "pod1-1 -> pod2-1 (10.244.2.2), ICMP by IPv4: nothing arrived"
    assert any(case.get("name") == "pod1-1 to pod2-1 udp 1450 bytes IPv4" for case in suite)
