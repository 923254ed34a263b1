"""The tool that changes the source: what it changes, what it leaves alone, and that its lists fit the source."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest
from coverage import CoverageData

from tests.mutants import covering, csources, equivalent, operators, running
from tests.mutants.__main__ import Trials
from tests.mutants.trial import Copy
from tests.support.checkout import CHECKOUT


def changes(source: str) -> set[str]:
    return {mutant.change for mutant in operators.mutants("f.py", source)}


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a < b", {"a < b -> (a <= b)"}),
        ("a is not b", {"a is not b -> (a is b)"}),
        ("a and b", {"a and b -> (a or b)", "a and b -> b", "a and b -> a"}),
        ("not a", {"not a -> a"}),
        ("if a: b", {"a -> (not a)"}),
        ("a + b", {"a + b -> (a - b)"}),
        ("n = 4", {"4 -> 5", "4 -> 3"}),
        ("n = 0", {"0 -> 1"}),
        ("n = True", {"True -> False"}),
        ("n = 'key'", {"'key' -> 'key~'"}),
        ("n = b'\\0'", {"b'\\0' -> b'\\x00~'"}),
        ("f(a)", {"f(a) -> pass"}),
        ("async def f(): await g(a)", {"await g(a) -> pass"}),
        ("x = f(a=b, c=d)", {"f(a=b, c=d) -> f(a=b)", "f(a=b, c=d) -> f(c=d)"}),
        ("a.b = c", {"a.b = c -> pass"}),
        ("a -= b", {"a -= b -> pass"}),
        ("def f(): return a", {"return a -> return None"}),
        ("raise e", {"raise e -> pass"}),
        ("while a: continue", {"a -> (not a)", "continue -> break"}),
        ("x = [a for a in b if c]", {"c -> (not c)"}),
        ("x = 'é' + f(a=b) * 2", {"'é' -> 'é~'", "f(a=b) -> f()", "f(a=b) * 2 -> (f(a=b) // 2)", "2 -> 3", "2 -> 1"}),
    ],
)
def test_what_is_changed(source: str, expected: set[str]):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is for."""',
        'def f():\n    """What it returns."""',
        "x: Final[int] = y",
        "x = 'words for people'",
        "x = f'{a} < {b + 1}'",
        "_log.info('x', 1, a=2)",
        "class A:\n    def __repr__(self): return 'x'",
        "if TYPE_CHECKING:\n    x = 1",
        "@dataclass(frozen=True)\nclass A(Base, slots=True): pass",
        "X = Route | Address | None",
        "__all__ = ['x']",
        "def f():\n    return",
    ],
)
def test_what_is_left_alone(source: str):
    assert changes(source) <= {"return -> pass"}


def test_of_a_problem_the_code_alone_is_changed():
    assert changes("raise e(Problem(code='A-1', seen='b'))") == {
        "'A-1' -> 'A-1~'",
        "raise e(Problem(code='A-1', seen='b')) -> pass",
    }


def test_a_change_is_made_where_it_stands():
    source = "x = 'é'; y = (a <\n  b)\n"
    (mutant,) = (one for one in operators.mutants("f.py", source) if one.operator == "comparison")
    assert mutant.apply(source) == "x = 'é'; y = ((a <= b))\n"
    with pytest.raises(AssertionError, match="the source has changed"):
        mutant.apply(source.replace("é", "e "))


def test_the_changes_of_the_client_can_be_made():
    assert len(csources.mutants()) == len(csources.CHANGES)


def test_no_equivalent_has_expired():
    equivalent.check()


def test_every_source_in_c_has_tests_that_are_there():
    for mutant in csources.mutants():
        assert csources.tests(mutant.path)
        for test in csources.tests(mutant.path):
            assert (CHECKOUT / test).is_file(), test


def test_the_function_around_a_line_has_the_interpreters_name():
    path = "tests/mutants/running.py"
    lines = (CHECKOUT / path).read_text().splitlines()
    for text, name in (
        ("found.append((first,", "_functions.<locals>.walk"),
        ("self._by_test = {", "Ran.__init__"),
        ("@cache", "_functions"),
        ("KEPT: Final", ""),
    ):
        [line] = [number for number, line in enumerate(lines, start=1) if text in line]
        assert running.enclosing(path, line) == name


def test_what_a_process_runs_is_noted_however_it_ends(tmp_path):
    package = tmp_path / "src" / "weft"
    package.mkdir(parents=True)
    (tmp_path / "build").mkdir()
    (package / "__init__.py").write_text(running.RECORDER)
    (package / "one.py").write_text(
        "import os\nclass A:\n    def ran(self):\n        os.kill(os.getpid(), 9)\n    def other(self): ...\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", "from weft.one import A; A().ran()"], cwd=tmp_path / "src", check=False
    )
    assert died.returncode == -9
    assert (tmp_path / "build" / "ran").read_text().splitlines() == [
        "one.py <module>",
        "one.py A",
        "one.py A.ran",
    ]


def test_the_tests_come_first_that_run_little_else():
    path = "src/weft/plan/diff.py"
    line = next(first for first, _, name in running._functions(path) if name == "diff")
    ran = running.Ran(
        {
            "special": ["plan/diff.py diff", "plan/diff.py other"],
            "broad": ["plan/diff.py diff", "cli.py run", "cli.py main"],
            "loads": ["plan/diff.py <module>"],
        }
    )
    assert ran.tests(path, line) == ["special", "broad"]
    assert ran.tests(path, line, most=1) == ["special"]
    assert ran.tests(path, 1) == ["special", "broad", "loads"]


def test_what_helps_a_file_of_tests_is_a_part_of_what_was_measured(tmp_path):
    helper, test, other = "tests/kernel/helper.py", "tests/kernel/test_a.py", "tests/node/states/test_b.py"
    for path in ("tests/conftest.py", "tests/support/deep/one.py", helper, test, other):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    found = running._tests(tmp_path)
    assert list(found) == [test, other]
    for changed, changes_what in ((helper, {test}), (test, {test}), ("tests/support/deep/one.py", {test, other})):
        (tmp_path / changed).write_text("# changed")
        before, found = found, running._tests(tmp_path)
        assert {path for path in found if found[path] != before[path]} == changes_what


def test_a_run_that_failed_counts_once_and_is_not_kept(tmp_path, monkeypatch, capsys):
    runs = {
        "whole": (0, ["cli.py <module>", "cli.py run"]),
        "failed": (1, ["cli.py run"]),
        "slow": (None, ["cli.py run"]),
        "imports": (0, ["model/errors.py <module>", "model/errors.py Problem"]),
        "nothing": (0, []),
    }
    package = tmp_path / "src" / "weft"
    package.mkdir(parents=True)
    monkeypatch.setattr(running, "KEPT", tmp_path / "ran.json")
    monkeypatch.setattr(running, "Copy", lambda _: SimpleNamespace(root=tmp_path))
    monkeypatch.setattr(running, "_tests", lambda _: dict.fromkeys(runs, "hash"))
    monkeypatch.setattr(running, "_ran", lambda _, test: runs[test])
    ran = running.measured(tmp_path, 1)
    assert set(ran._by_test) == set(runs)
    assert json.loads(running.KEPT.read_text()) == {"whole": {"of": "hash", "ran": ["cli.py <module>", "cli.py run"]}}
    assert capsys.readouterr().out.count("measured in part") == len(runs) - 1


def test_a_source_of_which_only_imports_ran_has_no_tests():
    path, constants = "src/weft/plan/diff.py", "src/weft/model/kernel/marks.py"
    assert not running.Ran({"a": ["plan/diff.py <module>", "cli.py run"]}).runs(path)
    assert running.Ran({"a": ["cli.py run"], "b": ["plan/diff.py diff"]}).runs(path)
    assert not running.Ran({"a": ["plan/diff.py <module>"]}).runs(constants)
    assert running.Ran({"a": ["model/kernel/marks.py <module>"]}).runs(constants)


@pytest.mark.parametrize(
    "place, context, runs",
    [
        (("src/weft/plan/diff.py", "import "), "test", False),
        (("src/weft/plan/diff.py", "    return "), "", False),
        (("src/weft/plan/diff.py", "    return "), "test", True),
        (("src/weft/model/kernel/marks.py", ": Final"), "", True),
        (("src/weft/model/kernel/marks.py", ": Final"), None, False),
    ],
)
def test_a_source_that_pure_tests_only_import_is_not_run_by_them(tmp_path, monkeypatch, place, context, runs):
    path, text = place
    lines = (CHECKOUT / path).read_text().splitlines()
    line = next(number for number, each in enumerate(lines, start=1) if text in each)
    data = CoverageData(str(tmp_path / "coverage"))
    if context is not None:
        data.set_context(context)
        data.add_lines({str(CHECKOUT / path): [line]})
    data.write()
    monkeypatch.setattr(covering, "DATA", tmp_path / "coverage")
    assert covering.Pure().runs(path) == runs


def test_changes_of_a_source_that_no_test_runs_are_alive():
    trials = object.__new__(Trials)
    trials.unrun = ["f.py"]
    [mutant, *_] = operators.mutants("f.py", "a < b")
    assert trials._judge(cast(Copy, None), mutant) == ("alive", "")
