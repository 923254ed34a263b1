"""The quiz: what may be drawn, what is said of it, what an answer is worth, and what a user would notice."""

from typing import Any

import pytest

from weft.diag.check.trial import Fault as Failure
from weft.diag.check.trial import Outcome, Trial, Tried
from weft.lab import quiz as game
from weft.lab.fault import Fault
from weft.lab.faults import FAULTS
from weft.lab.quiz import DRAWABLE, Area, Puzzle, Score

LASTING = [fault for fault in FAULTS if fault.mends and not fault.repaired and not fault.kills]


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name)
def test_what_lasts_may_be_drawn_and_has_hints_that_do_not_name_it(fault: Fault):
    known = game.area(fault)
    assert known is not None, f"lab/quiz.py knows nothing of {fault.code}"
    assert DRAWABLE[fault.name] == (fault, known)
    where, look, plain = game.hints(fault, known, "node7")
    assert where
    assert look
    assert plain == f"On node7: {fault.about}."
    for said in (where, look, plain, known.complaint):
        assert fault.code not in said
        assert fault.name not in said


def test_what_does_not_last_or_shows_at_once_is_never_drawn():
    assert {fault.name for fault in FAULTS if fault.repaired or fault.kills or not fault.mends}.isdisjoint(DRAWABLE)


def test_every_area_is_of_a_fault():
    used = {id(known) for _, known in DRAWABLE.values()}
    assert {id(known) for known in (*game._FAMILIES.values(), *game._CODES.values())} == used


def test_a_code_that_is_not_known_is_of_no_area():
    assert game.area(Fault(name="x", code="NEW-001", about="", breaks="", mends="y")) is None


def test_by_an_easy_fault_something_fails_now():
    easy, hard = game.of_level("easy"), game.of_level("hard")
    assert {fault.name for fault in hard} == set(DRAWABLE)
    assert [fault for fault in hard if fault not in easy] == [
        fault for fault, known in DRAWABLE.values() if known.complaint
    ]
    assert "network-left" not in {fault.name for fault in easy}
    assert len(easy) > 5


def test_one_seed_draws_one_fault_and_others_draw_all():
    nodes = ["node1", "node2", "node3"]
    drawn = [game.draw(LASTING, nodes, seed) for seed in range(500)]
    assert [game.draw(LASTING, nodes, seed) for seed in range(500)] == drawn
    assert {fault.name for fault, _ in drawn} == set(DRAWABLE)
    assert {node for _, node in drawn} == set(nodes)
    pairs = len(LASTING) * len(nodes)
    assert len({(fault.name, node) for fault, node in drawn[:pairs]}) == pairs


FAULT = DRAWABLE["forward-dropped"][0]


@pytest.mark.parametrize(
    "code, at, judgement",
    [
        ("FW-002", "node1", "right"),
        ("FW-002", "", "no node"),
        ("FW-002", "node2", "wrong node"),
        ("FW-001", "node1", "near"),
        ("KERN-002", "node1", "wrong"),
    ],
)
def test_an_answer(code: str, at: str, judgement: str):
    assert game.judge(FAULT, "node1", code, at) == judgement


def opened(**fields: Any) -> Puzzle:
    return Puzzle(level="easy", seed=1, fault=FAULT.name, node="node1", **fields)


@pytest.mark.parametrize("hints, wrong, worth", [(0, 0, 10), (1, 0, 8), (3, 1, 3), (3, 3, 1), (3, 20, 1), (0, 9, 1)])
def test_hints_and_wrong_answers_cost_points_but_never_all(hints: int, wrong: int, worth: int):
    assert opened(hints=hints, wrong=wrong).worth == worth


def test_a_score_counts_puzzles():
    after = game.ended(Score(), opened(hints=1), found=True)
    assert after == Score(points=8, found=1)
    assert game.ended(after, opened(), found=False) == Score(points=8, found=1, given_up=1)


def tried(source: str, target: str, failure: Failure = "", **fields: Any) -> Tried:
    known: dict[str, Any] = {"scenario": "pod-pod-other", "protocol": "icmp", "family": 4, "address": "10.0.0.1"}
    trial = Trial(source=source, target=target, from_node="node1", to_node="node2", **(known | fields))
    return Tried(trial=trial, outcome=Outcome(answered=0), fault=failure)


MTU: dict[str, Any] = {"scenario": "pod-pod-mtu", "protocol": "udp", "size": 1450}
MORE: dict[str, Any] = {"scenario": "pod-pod-more", "protocol": "udp", "size": 1451}


@pytest.mark.parametrize(
    "all_, said",
    [
        ([tried("a", "b")], []),
        ([tried("a", "b", "lost"), tried("a", "b", "lost", protocol="udp"), tried("a", "c", "unseen")], ["b, c"]),
        ([tried("a", "b", "lost"), tried("a", "b", **MORE)], ["b"]),
        ([tried("a", "a", "lost")], ["itself"]),
        ([tried("a", "b"), tried("a", "b", "lost", protocol="udp")], ["b by UDP each time"]),
        (
            [tried("a", "b"), tried("a", "b", "lost", **MTU), tried("a", "b", "lost", **MORE)],
            ["b with packets of 1450 bytes, and does with smaller ones"],
        ),
        ([tried("a", "b", "translated"), tried("a", "b", "unrefused", **MORE)], []),
    ],
)
def test_what_a_user_would_notice(all_: list[Tried], said: list[str]):
    assert game.noticed(all_) == [f"a does not reach {each}" for each in said]


def test_areas_are_told_apart():
    assert len({known.where for _, known in DRAWABLE.values()}) == len({id(known) for _, known in DRAWABLE.values()})
    assert all(isinstance(known, Area) for _, known in DRAWABLE.values())
