"""What an error says."""

import ast
import re
from contextvars import copy_context
from pathlib import Path

import msgspec

import weft
from weft.cli import COMMANDS
from weft.model.errors import TYPED, ConfigError, Problem, WeftCommand

ONE = Problem(code="CONF-002", where="Network", seen="missing", expected="an IPv4 network", hint="See the page.")
OTHER = Problem(code="CONF-002", where="SubnetLen", seen="31")


def test_all_problems_of_an_input_a_line_each():
    error = ConfigError(ONE, OTHER)
    assert error.problems == (ONE, OTHER)
    assert str(error) == "CONF-002 Network: missing; expected an IPv4 network. See the page.\nCONF-002 SubnetLen: 31"


def test_a_problem_that_ends_like_a_sentence_gets_no_second_full_stop():
    assert str(Problem(code="X-001", where="a", seen="b?", hint="Do c.")) == "X-001 a: b? Do c."


def in_a_pod(problem: Problem) -> str:
    context = copy_context()
    context.run(TYPED.set, lambda command: f"kubectl exec x -- {command}")
    return context.run(str, problem)


def test_a_hint_names_commands_as_its_readers_type_them():
    hint = "'weft status' says it, `weft doctor -v` more; weft's own, weft plan and 'weftd' are none"
    problem = Problem(code="X-001", where="a", seen="b", hint=hint)
    assert [part for part in problem.advice if isinstance(part, WeftCommand)] == [
        WeftCommand("status"),
        WeftCommand("doctor -v"),
    ]
    assert str(problem) == f"X-001 a: b. {hint}"
    typed = hint.replace("weft status", "kubectl exec x -- weft status").replace(
        "weft doctor", "kubectl exec x -- weft doctor"
    )
    assert in_a_pod(problem) == f"X-001 a: b. {typed}"
    assert msgspec.json.decode(msgspec.json.encode(problem))["hint"] == hint


def test_an_error_says_its_problems_as_those_type_them_who_read_it():
    hint = "'weft plan' shows it"
    error = ConfigError(*(Problem(code="X-001", where=where, seen="b", hint=hint) for where in "ac"))
    context = copy_context()
    context.run(TYPED.set, lambda command: f"kubectl exec x -- {command}")
    typed = "'kubectl exec x -- weft plan' shows it"
    assert context.run(str, error) == f"X-001 a: b. {typed}\nX-001 c: b. {typed}"
    assert str(error) == f"X-001 a: b. {hint}\nX-001 c: b. {hint}"


def test_what_another_program_says_stays_as_it_is():
    said = "nft: syntax error near 'weft plan' and `weft doctor`"
    problem = Problem(code="X-001", where="rule 'weft x'", seen=said, expected="no 'weft y'", hint="Look.")
    assert in_a_pod(problem) == str(problem) == f"X-001 rule 'weft x': {said}; expected no 'weft y'. Look."


def test_each_command_that_a_text_names_is_one():
    texts = [
        each.value
        for file in Path(weft.__file__).parent.rglob("*.py")
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    named = {name for text in texts for name in re.findall(r"['`]weft ([a-z][a-z-]*)", text)}
    assert {"plan", "doctor", "lab"} <= named <= {*COMMANDS, "version", "completion"}
