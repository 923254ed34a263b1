"""Rounds of the quiz in one lab: drawn, told, hinted at, answered, mended; and nothing tells too soon."""

import json
from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually
from weft.lab import protocol
from weft.lab import quiz as game
from weft.lab.commands import breaking
from weft.lab.commands.choose import ask, find
from weft.lab.commands.quiz import fitting
from weft.lab.fault import Fault
from weft.lab.quiz import DRAWABLE, Level


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2", "--pods", "1") as running:
        yield running


def seed_of(running: Lab, name: str, level: Level, node: str) -> int:
    """A number that draws a fault on a node of this lab."""
    faults = fitting(ask(find(running.name), protocol.Ps()), level)
    return next(
        seed for seed in range(10_000) if game.draw(faults, ["node1", "node2"], seed) == (DRAWABLE[name][0], node)
    )


def quiz(running: Lab, *words: str, check: bool = True) -> Any:
    """Play, and return what was said."""
    ran = running.weft("quiz", "-o", "json", *words, check=check)
    return json.loads(ran.stdout)


def doctor(running: Lab, node: str) -> list[str]:
    ran = running.weft("exec", node, "--", "weft", "doctor", "-o", "json", check=False)
    return [each["code"] for each in json.loads(ran.stdout)["findings"]]


def test_a_puzzle_that_is_solved(running: Lab):
    told = quiz(running, "start", "--seed", str(seed_of(running, "forward-dropped", "easy", "node2")))
    assert "pod1-1 does not reach pod2-1" in told["symptoms"]
    assert told["worth"] == 10
    shown = running.weft("ps").stdout + running.weft("quiz").stdout + running.weft("logs", "node2").stdout
    shown += running.weft("exec", "all", "--", "ps", "-ef").stdout
    shown += str(ask(find(running.name), protocol.AskNews({})).lab)
    assert "forward-dropped" not in shown
    assert "nft" not in shown
    assert running.weft("quiz", "start", check=False).returncode == 2
    assert [quiz(running, "hint")["number"] for _ in range(2)] == [1, 2]
    for answer, judgement in (
        (("KERN-002", "node2"), "wrong"),
        (("FW-001", "node2"), "near"),
        (("FW-002", "node1"), "wrong node"),
        (("FW-002",), "no node"),
    ):
        assert quiz(running, "check", *answer, check=False) == {"right": False, "judgement": judgement}
    for slip in (("FW-2",), ("FW-002", "node3")):
        assert running.weft("quiz", "check", *slip, check=False).returncode == 2
    assert "FW-002" in doctor(running, "node2")
    won = quiz(running, "check", "fw-002", "node2")
    assert (won["right"], won["mended"], won["fault"]) == (True, True, "forward-dropped")
    assert won["score"] == {"points": 3, "found": 1, "given_up": 0}
    eventually(lambda: not doctor(running, "node2"), seconds=30)
    assert running.weft("quiz", "hint", check=False).returncode == 2


def test_a_fault_that_waits_for_its_day_and_was_mended_by_hand(running: Lab):
    before = quiz(running)["score"]
    told = quiz(running, "start", "--level", "hard", "--seed", str(seed_of(running, "network-left", "hard", "node1")))
    assert told["symptoms"] == [DRAWABLE["network-left"][1].complaint]
    running.run("node1", "ip", "link", "delete", "cali0123456789a")
    ended = running.weft("quiz", "give-up")
    assert "It was: CLEAN-001 on node1: another pod network has left its links. Something has mended" in ended.stdout
    assert "weft explain CLEAN-001\n" in ended.stderr
    assert quiz(running)["score"] == before | {"given_up": before["given_up"] + 1}


def test_a_new_pod_that_does_not_start_is_noticed(running: Lab):
    told = quiz(running, "start", "--seed", str(seed_of(running, "subnet-full", "easy", "node1")))
    assert told["symptoms"] == ["a new pod does not start on node1"]
    assert quiz(running, "give-up")["code"] == "IPAM-002"
    assert [pod["name"] for pod in running.ps()["pods"]] == ["pod1-1", "pod2-1"]


def test_a_fault_that_cannot_be_made_leaves_no_puzzle_open(running: Lab):
    running.run("node1", "ip", "link", "add", "cali0123456789a", "type", "bridge")
    try:
        seed = str(seed_of(running, "network-left", "hard", "node1"))
        assert running.weft("quiz", "start", "--level", "hard", "--seed", seed, check=False).returncode == 1
    finally:
        running.weft("exec", "node1", "--", "ip", "link", "delete", "cali0123456789a", check=False)
    assert quiz(running)["symptoms"] == []


def test_the_script_of_a_fault_is_in_no_list_of_processes(running: Lab):
    place = find(running.name)
    report = ask(place, protocol.Ps())
    shows = "tr '\\0' ' ' </proc/$$/cmdline >/run/cmdline"
    fault = Fault(name="shows", code="FW-001", about="", breaks=shows, mends="rm /run/cmdline")
    breaking.change(place, report, "node1", fault, mend=False)
    assert running.run("node1", "cat", "/run/cmdline") == "sh -e "
    breaking.change(place, report, "node1", fault, mend=True)


def test_a_lab_of_one_node_has_no_quiz():
    with lab("--nodes", "1", "--pods", "0") as alone:
        refused = alone.weft("quiz", "start", check=False)
        assert refused.returncode == 2
        assert "a lab of one node; expected two nodes at least" in refused.stderr
