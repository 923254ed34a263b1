"""A diagnosis in words."""

import xml.etree.ElementTree as ET
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from weft.diag import junit
from weft.diag.doctor import forms
from weft.diag.doctor.forms import DoctorReport, PacketsReport
from weft.diag.finding import Answer, Command, Diagnosis, Finding
from weft.diag.sight.node import Lost, Proof
from weft.model.errors import Problem
from weft.model.value import replace

IP = ip_address("10.244.1.2")

FAULT = Finding(
    problem=Problem(code="KERN-002", where="sysctl", seen="it is 0", hint="Set it"),
    fix=(Command(("sysctl", "-w", "a=1"), "sets a"),),
)
WARNING = Finding(problem=Problem(code="CT-001", where="table", seen='"nearly" full'), weight="warning")
MIXED = Diagnosis(
    answers=(
        Answer(check="one", about="one is well"),
        Answer(check="two", about="two is well", findings=(WARNING, FAULT)),
        Answer(check="three", about="three is well", unseen="rules: no nft"),
    )
)


def test_for_people():
    assert list(forms.lines(MIXED, None, verbose=False)) == [
        "fault    KERN-002 sysctl: it is 0. Set it",
        "           sysctl -w a=1",
        'warning  CT-001 table: "nearly" full',
        "not seen three: rules: no nft",
        "3 checks: 1 fault, 1 warning, 1 check could not see what it needs; no packet was sent, so nothing is proved",
    ]
    assert next(forms.lines(MIXED, None, verbose=True)) == "ok       one: one is well"


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, ""),
        ({"silent": ("a", "b")}, "; no answer is due from a, b"),
        (
            {"silent": ("a", "b", "c", "d"), "more": 7},
            "; no answer is due from a, b, c …; 7 more pods and peers were not tried",
        ),
        ({"lost": (Lost(source=IP, target=IP, forbidden=True),)}, "; 1 more is refused by a policy"),
        ({"lost": (Lost(source=IP, target=IP, forbidden=True),) * 2}, "; 2 more are refused by policies"),
    ],
)
def test_what_packets_have_proved(changes: dict[str, Any], said: str):
    proof = Proof(tried=12, arrived=12, pods=3, peers=4, **changes)
    well = Diagnosis(answers=MIXED.answers[:1])
    packets, summed = forms.lines(well, proof, verbose=False)
    assert packets == f"packets: 12 of 12 arrived: 3 pods here, 4 peers{said}"
    assert summed == "1 check: 0 faults, 0 warnings"
    assert forms.report(well, proof).packets == PacketsReport(tried=12, arrived=12, pods=3, peers=4)
    assert forms.report(well, replace(proof, tried=0)).packets is None


def test_as_json():
    data = msgspec.json.decode(msgspec.json.encode(forms.report(MIXED)))
    assert [(each["check"], each["code"], each["weight"], each["fix"]) for each in data["findings"]] == [
        ("two", "CT-001", "warning", []),
        ("two", "KERN-002", "fault", ["sysctl -w a=1"]),
    ]
    assert data["checks"][2] == {"check": "three", "about": "three is well", "found": 0, "unseen": "rules: no nft"}


def test_a_report_is_read_as_it_was_written():
    found = msgspec.json.decode(msgspec.json.encode(forms.report(MIXED)), type=DoctorReport)
    assert found == forms.report(MIXED)
    assert [each.problem for each in found.findings] == [WARNING.problem, FAULT.problem]


def test_as_junit():
    suite = ET.fromstring(forms.junit(MIXED))  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == ["one", "two", "three"]
    [failure] = suite.iter("failure")
    assert (failure.get("type"), failure.get("message")) == ("KERN-002", "KERN-002 sysctl: it is 0. Set it")


def test_what_others_put_into_names_makes_no_report_unreadable():
    case = junit.Case(group="g", name="a\x00\ud800", failures=(("FW-002", "rule 'drop comment \"\x1b[31m<&\"'"),))
    [failure] = ET.fromstring(junit.suite("s", [case])).iter("failure")  # noqa: S314 - our own
    assert failure.get("message") == "rule 'drop comment \"\\x1b[31m<&\"'"


def test_as_sarif():
    [run] = forms.sarif(MIXED)["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["CT-001", "KERN-002"]
    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [
        ("KERN-002", "error"),
        ("CT-001", "warning"),
    ]
