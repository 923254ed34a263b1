"""Which Events a node's problems are worth."""

from contextvars import copy_context

from weft.model.errors import TYPED, Problem
from weft.plan.announce import AGAIN, BURST, LONGEST, PAUSE, READY, Announcer


def problem(code: str = "ROUTE-002", seen: str = "gone") -> Problem:
    return Problem(code=code, where="flannel.1", seen=seen, hint="Look")


def reasons(events):
    return [event.reason for event in events]


def test_a_problem_is_a_warning_with_its_code_and_words():
    [event] = Announcer(0).take([problem()], 0, ready=False)
    assert (event.kind, event.reason, event.message) == ("Warning", "ROUTE-002", "flannel.1: gone. Look")


def test_two_problems_of_one_code_are_one_event():
    assert reasons(Announcer(0).take([problem(), problem(seen="changed")], 0, ready=False)) == ["ROUTE-002"]


def test_a_problem_that_stays_is_said_again_after_ten_minutes():
    announcer = Announcer(0)
    assert announcer.take([problem()], 0, ready=False)
    assert not announcer.take([problem()], AGAIN - 1, ready=False)
    assert announcer.take([problem()], AGAIN, ready=False)


def test_readiness_is_said_once():
    announcer = Announcer(0)
    assert announcer.take([], 0, ready=False) == []
    assert announcer.take([], 1, ready=True) == [READY]
    assert announcer.take([], 2, ready=False) == announcer.take([], 3, ready=True) == []


def test_what_a_burst_leaves_out_is_said_at_a_slow_pace():
    announcer = Announcer(0)
    problems = [problem(f"X-{number:03}") for number in range(BURST + 2)]
    assert reasons(announcer.take(problems, 0, ready=False)) == [each.code for each in problems[:BURST]]
    assert announcer.take(problems, PAUSE - 1, ready=True) == []
    assert announcer.take(problems, PAUSE, ready=True) == [READY]
    assert reasons(announcer.take(problems, 3 * PAUSE, ready=True)) == [each.code for each in problems[BURST:]]


def test_a_message_is_one_line_of_bounded_length():
    [event] = Announcer(0).take([problem(seen="a\nb" + "c" * 2 * LONGEST)], 0, ready=False)
    assert event.message.startswith("flannel.1: a; bc")
    assert event.message.endswith("…")
    assert len(event.message) == LONGEST


def test_a_message_names_commands_as_people_elsewhere_type_them():
    changed = Problem(code="CONF-001", where="net-conf.json", seen="changed", hint="`weft plan` shows it")
    context = copy_context()
    context.run(TYPED.set, lambda command: f"kubectl exec x -- {command}")
    [event] = context.run(Announcer(0.0).take, [changed], 0.0, ready=False)
    assert event.message == "net-conf.json: changed. `kubectl exec x -- weft plan` shows it"
    long = Problem(code="CONF-001", where="a", seen="c" * (LONGEST - 35), hint="`weft plan` shows it")
    [event] = Announcer(0.0).take([long], 0.0, ready=False)
    assert event.message.endswith("c. `weft plan` shows it")
    [event] = context.run(Announcer(0.0).take, [long], 0.0, ready=False)
    assert event.message.endswith("c. `kubectl exec x -- weft plan`…")
    assert len(event.message) == LONGEST


def test_what_ails_the_cluster_is_said_once():
    announcer = Announcer(0.0)
    ours = problem("POL-001")
    assert reasons(announcer.take([ours], 0.0, ready=False)) == ["POL-001"]
    assert reasons(announcer.take([ours], AGAIN * 3, ready=False)) == []
