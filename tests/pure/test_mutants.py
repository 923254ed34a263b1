"""The tool that changes the source: what it changes, what it leaves alone, and that its lists fit the source."""

import subprocess
import sys

import pytest

from tests.mutants import csources, equivalent, operators, running
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
