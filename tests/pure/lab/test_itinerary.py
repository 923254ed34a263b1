"""What a trace of a lab is asked for, by names, and where it goes on."""

from typing import Any

import pytest

from tests.pure.lab.test_commands import report
from weft.diag.tracing.hops import Way
from weft.lab.report import EndpointReport, LabReport, ServiceReport
from weft.lab.tracing.itinerary import Goal, end_at, end_of, goal, next_node
from weft.lab.tracing.legs import End
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
    return found


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
        ("node2:30080", 4, False, Goal(address="172.31.0.12", ends=(POD1, POD2), port=30080)),
        ("node2:30080", 4, True, Goal(address="172.31.0.12", ends=(NODE2,), port=30080, udp=True)),
        ("web:80", 4, False, Goal(address="10.96.0.11", ends=(POD1, POD2), port=80)),
        ("web:80", 6, False, Goal(address="fd31:96::b", ends=(end_of(lab(), "pod2-1", 6, asking="x"),), port=80)),
        ("dns:53", 4, False, Goal(address="10.96.0.11", ends=(POD1, POD2), port=53, udp=True)),
    ],
)
def test_goals(target: str, family: int, udp: bool, expected: Goal):
    assert goal(lab(), target, family, udp=udp) == expected


@pytest.mark.parametrize(
    "target, said",
    [
        ("web", "FLAG-001 weft lab trace: web: Service web without a port; expected web:80"),
        ("web:81", "FLAG-001 weft lab trace: web:81: Service web has no port 81; expected web:80"),
        ("pod2-1:", "FLAG-001 weft lab trace: pod2-1:: port ''; expected 1 to 65535"),
        ("pod2-1:65536", "FLAG-001 weft lab trace: pod2-1:65536: port '65536'; expected 1 to 65535"),
        ("pod9:80", "LAB-002 weft lab trace: pod9: no node or pod of this name has an IPv4 address"),
    ],
)
def test_what_means_nothing(target: str, said: str):
    with pytest.raises(ConfigError) as caught:
        goal(lab(), target, 4, udp=False)
    assert str(caught.value.problems[0]).startswith(said)


def test_the_next_node():
    assert next_node(lab(), Way(hops=(), end="sent", to="172.31.0.12")) == "node2"
    assert next_node(lab(), Way(hops=(), end="sent", to="172.31.0.1")) is None
    assert next_node(lab(), Way(hops=(), end="delivered")) is None
