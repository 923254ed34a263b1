"""What a trace of a lab is asked for, by names, and where it goes on."""

from typing import Any

import pytest
from msgspec import structs

from tests.pure.lab.test_commands import report
from weft.diag.check.trial import EndpointReport
from weft.diag.trace.hops import Addressed, End, Way
from weft.lab.itinerary import Goal, end_at, end_of, family_of, goal, next_node, translated
from weft.lab.report import LabReport, ServiceReport
from weft.model.errors import ConfigError

POD1 = End(node="node1", address="10.244.1.2", pod="pod1-1")
POD2 = End(node="node2", address="10.244.2.2", pod="pod2-1")
NODE2 = End(node="node2", address="172.31.0.12")


def service(**changes: Any) -> ServiceReport:
    fields: dict[str, Any] = {
        "name": "web",
        "protocol": "TCP",
        "addresses": ["10.96.0.11", "fd31:96::b"],
        "port": 80,
        "target_port": 8080,
        "node_port": 30080,
        "pods": ["pod*"],
        "endpoints": [
            EndpointReport(pod="pod1-1", node="node1", address="10.244.1.2"),
            EndpointReport(pod="pod2-1", node="node2", address="10.244.2.2"),
            EndpointReport(pod="pod2-1", node="node2", address="fd00:2::2"),
            EndpointReport(pod="gone", node="node2", address="10.244.2.9"),
        ],
    }
    return ServiceReport(**fields | changes)


def lab() -> LabReport:
    found = report()
    found.services.extend([service(), service(name="dns", protocol="UDP", port=53, node_port=0)])
    found.outside.extend(["172.31.0.1", "fd31::1"])
    return found


def begin(family: int = 4, pod: str = "pod1-1") -> End:
    return end_of(lab(), pod, family, asking="x")


def outside(address: str, device: str = "underlay") -> End:
    return End(node="outside", address=address, device=device)


def test_ends_by_name_and_by_address():
    assert end_of(lab(), "pod2-1", 4, asking="x") == end_at(lab(), "10.244.2.2") == POD2
    assert end_of(lab(), "node2", 4, asking="x") == NODE2
    assert end_of(lab(), "pod2-1", 6, asking="x").address == "fd00:2::2"
    assert end_at(lab(), "10.244.9.9") is None
    with pytest.raises(ConfigError) as caught:
        end_of(lab(), "node2", 6, asking="x")
    assert "no node or pod of this name has an IPv6 address; expected one of node1, node2, pod1-1, pod2-1" in str(
        caught.value
    )


@pytest.mark.parametrize(
    "target, family, udp, expected",
    [
        ("pod2-1", 4, False, Goal(address="10.244.2.2", ends=(POD2,))),
        ("pod2-1:30080", 4, False, Goal(address="10.244.2.2", ends=(POD2,), port=30080)),
        ("node2:53", 4, True, Goal(address="172.31.0.12", ends=(NODE2,), port=53, udp=True)),
        ("node2:30080", 4, False, Goal(address="172.31.0.12", ends=(POD1, POD2), port=30080, service="web")),
        ("node2:30080", 4, True, Goal(address="172.31.0.12", ends=(NODE2,), port=30080, udp=True)),
        ("web:80", 4, False, Goal(address="10.96.0.11", ends=(POD1, POD2), port=80, service="web")),
        (
            "web:80",
            6,
            False,
            Goal(address="fd31:96::b", ends=(end_of(lab(), "pod2-1", 6, asking="x"),), port=80, service="web"),
        ),
        ("dns:53", 4, False, Goal(address="10.96.0.11", ends=(POD1, POD2), port=53, udp=True, service="dns")),
        ("10.244.2.2", 4, False, Goal(address="10.244.2.2", ends=(POD2,))),
        ("172.31.0.12:30080", 4, False, Goal(address="172.31.0.12", ends=(POD1, POD2), port=30080, service="web")),
        ("10.96.0.11:80", 4, False, Goal(address="10.96.0.11", ends=(POD1, POD2), port=80, service="web")),
        ("outside", 4, False, Goal(address="172.31.0.1", ends=(outside("172.31.0.1"),))),
        ("outside", 6, False, Goal(address="fd31::1", ends=(outside("fd31::1"),))),
        ("outside:30080", 4, False, Goal(address="172.31.0.1", ends=(outside("172.31.0.1"),), port=30080)),
        ("172.31.0.1:53", 4, True, Goal(address="172.31.0.1", ends=(outside("172.31.0.1"),), port=53, udp=True)),
        ("[fd31::1]:80", 6, False, Goal(address="fd31::1", ends=(outside("fd31::1"),), port=80)),
        ("[fd31::1]", 6, False, Goal(address="fd31::1", ends=(outside("fd31::1"),))),
        ("198.51.100.7:80", 4, False, Goal(address="198.51.100.7", ends=(), port=80)),
        ("fd77::1", 6, False, Goal(address="fd77::1", ends=())),
    ],
)
def test_goals(target: str, family: int, udp: bool, expected: Goal):
    assert goal(lab(), begin(family), target, udp=udp) == expected


@pytest.mark.parametrize(
    "target, said",
    [
        ("web", "FLAG-001 weft lab trace: web: Service web without a port; expected web:80"),
        ("web:81", "FLAG-001 weft lab trace: web:81: Service web has no port 81; expected web:80"),
        ("pod2-1:", "FLAG-001 weft lab trace: pod2-1:: port ''; expected 1 to 65535"),
        ("pod2-1:65536", "FLAG-001 weft lab trace: pod2-1:65536: port '65536'; expected 1 to 65535"),
        ("10.96.0.11", "FLAG-001 weft lab trace: 10.96.0.11: Service web without a port; expected web:80"),
        ("fd31::1", "FLAG-001 weft lab trace: fd31::1: pod1-1 is to send from its IPv4 address, 10.244.1.2; expected"),
        ("[fd31::1]:", "FLAG-001 weft lab trace: [fd31::1]:: port ''; expected 1 to 65535"),
        ("pod9:80", "LAB-002 weft lab trace: pod9: no node or pod of this name has an IPv4 address"),
    ],
)
def test_what_means_nothing(target: str, said: str):
    with pytest.raises(ConfigError) as caught:
        goal(lab(), begin(), target, udp=False)
    assert str(caught.value.problems[0]).startswith(said)


def test_a_service_that_a_node_has_no_rules_for():
    def seen(target: str, end: str, to: str) -> Way:
        asked = goal(lab(), begin(), target, udp=False)
        way = Way(hops=(), end=end, to="192.0.2.1", packet=Addressed(source="10.244.1.2", target=to))
        return translated(lab(), asked, "node1", way)

    lost = seen("web:80", "sent", "10.96.0.11")
    assert (lost.end, lost.to, lost.problem.code) == ("dropped", "", "SVC-001")
    assert lost.hops[-1].seen == "no rule of node1 leads to a pod of Service web"
    assert seen("web:80", "sent", "10.244.2.2").end == "sent"
    assert seen("web:80", "undecided", "10.96.0.11").end == "undecided"
    # A node's port is that node's own to translate.
    assert seen("node2:30080", "sent", "172.31.0.12").end == "sent"
    assert seen("node2:30080", "delivered", "172.31.0.12").problem.code == "SVC-001"
    assert seen("node2:53", "delivered", "172.31.0.12").end == "delivered"
    dropped = Way(hops=(), end="dropped")
    assert translated(lab(), goal(lab(), begin(), "web:80", udp=False), "node1", dropped) == dropped


def test_the_family_of_a_target():
    targets = ("pod2-1", "outside:53", "10.0.0.1:80", "[fd31::1]:80", "fd31::1")
    assert [family_of(target) for target in targets] == [0, 0, 4, 6, 6]


def test_outside_is_seen_at_the_switch_of_the_senders_segment():
    found = lab()
    found.nodes[0] = structs.replace(found.nodes[0], segment=2)
    assert goal(found, begin(), "outside", udp=False).ends == (outside("172.31.0.1", "underlay2"),)
    assert goal(found, begin(pod="pod2-1"), "outside", udp=False).ends == (outside("172.31.0.1"),)


def test_the_next_node():
    assert next_node(lab(), Way(hops=(), end="sent", to="172.31.0.12")) == "node2"
    assert next_node(lab(), Way(hops=(), end="sent", to="172.31.0.1")) is None
    assert next_node(lab(), Way(hops=(), end="delivered")) is None
