"""The gates themselves: they must fail on what they are there to find."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import draw, progress, report, stage
from tests.spec import claims, proved
from tests.spec.claims import Case, Claim
from tests.support.weftd import eventually

PASSED = '<testcase file="tests/pure/test_a.py" name="test_a" time="0.5"><properties>{}</properties></testcase>'
SKIPPED = '<testcase file="tests/a.py" name="test_b" time="0"><skipped message="no wireguard"/></testcase>'
FAILED = '<testcase file="tests/a.py" name="test_c" time="0"><failure message="x"/></testcase>'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "required.txt").write_text("# a note\na.md 1/x  # row x\na.md 1/y\n")
    (tmp_path / "allowed.txt").write_text("tests/a.py::test_b: no wireguard*  # the kernel of CI has none\n")
    monkeypatch.setattr(proved, "REQUIRED", tmp_path / "required.txt")
    monkeypatch.setattr(report, "ALLOWED_SKIPS", tmp_path / "allowed.txt")
    return tmp_path


def run(folder: Path, *cases: str, code: int = 0) -> int:
    (folder / "pure.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    (folder / "stages.tsv").write_text(f"pure tests\t1.5\t{code}\t10.0\n")
    return report.main(folder)


def passed(*spec: str) -> str:
    return PASSED.format("".join(f'<property name="spec" value="{name}"/>' for name in spec))


def test_a_run_where_everything_is_proved_succeeds(folder, capsys):
    assert run(folder, passed("a.md 1/x", "a.md 1/y"), SKIPPED) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


def test_an_id_without_a_passed_test_fails_the_run(folder, capsys):
    assert run(folder, passed("a.md 1/x")) == 1
    assert "not proved: a.md 1/y" in capsys.readouterr().out


def test_an_id_that_nobody_asked_for_fails_the_run(folder, capsys):
    assert run(folder, passed("a.md 1/x", "a.md 1/y", "a.md 1/z")) == 1
    assert "not in tests/spec/required.txt: a.md 1/z" in capsys.readouterr().out


def test_a_skip_that_is_not_in_the_list_fails_the_run(folder, capsys):
    assert run(folder, passed("a.md 1/x", "a.md 1/y"), SKIPPED.replace("wireguard", "root")) == 1
    assert "skipped (not allowed): tests/a.py::test_b: no root" in capsys.readouterr().out


def test_a_failed_test_or_stage_fails_the_run(folder):
    assert run(folder, passed("a.md 1/x", "a.md 1/y"), FAILED) == 1
    assert run(folder, passed("a.md 1/x", "a.md 1/y"), code=124) == 1


def once_more(folder: Path, *cases: str, failed: int, code: int = 0) -> int:
    """The end of a run in which tests failed, and were then run once more."""
    names = [FAILED.replace("test_c", f"test_{number}") for number in range(failed)]
    (folder / "pure-again.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    run(folder, passed("a.md 1/x", "a.md 1/y"), *names)
    (folder / "stages.tsv").write_text(f"pure tests\t1.5\t1\t10.0\npure tests, once more\t1.5\t{code}\t12.0\n")
    return report.main(folder)


def again(number: int) -> str:
    return f'<testcase file="tests/a.py" name="test_{number}" time="0.5"></testcase>'


def test_tests_that_pass_when_they_are_run_once_more_are_named_and_do_not_fail_the_run(folder, capsys):
    assert once_more(folder, again(0), again(1), failed=2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "unsteady: tests/a.py::test_1: it failed, as printed above, and passed when it was run once more" in lines
    assert lines[-1] == "1 passed, 0 failed, 0 skipped, 2 unsteady"


def test_a_test_that_fails_again_or_was_not_run_again_fails_the_run(folder, capsys):
    assert once_more(folder, again(0).replace("><", '><failure message="x"/><'), failed=1, code=1) == 1
    assert "failed: pure tests, once more" in capsys.readouterr().out
    assert once_more(folder, again(0), failed=2) == 1


def test_many_unsteady_tests_fail_the_run(folder):
    few = report.UNSTEADY
    assert once_more(folder, *map(again, range(few)), failed=few) == 0
    assert once_more(folder, *map(again, range(few + 1)), failed=few + 1) == 1


def test_a_run_without_tests_fails(folder):
    (folder / "required.txt").write_text("")
    assert run(folder) == 1


@pytest.mark.parametrize("other", ["failure", "skipped"])
def test_an_id_of_which_a_case_did_not_pass_is_unproved(folder, capsys, other):
    case = passed("a.md 1/y").replace("</testcase>", f'<{other} message="no wireguard"/></testcase>')
    assert run(folder, passed("a.md 1/x", "a.md 1/y"), case.replace("pure/test_a.py", "a.py")) == 1
    assert "1 of 2 required ids proved\n  not proved: a.md 1/y" in capsys.readouterr().out


def cases(*names: str, claims: tuple[Claim, ...]) -> list[Case]:
    return [Case(test="t.py::t", case=name, claims=claims) for name in names]


def test_a_claim_with_cases_is_theirs_alone():
    claim = Claim(ids=("x", "y"), cases=("v6-*", "both"))
    assert [case.ids for case in cases("v4-nft", "v6-nft", "both", claims=(claim,))] == [(), ("x", "y"), ("x", "y")]
    [row] = cases("v4", claims=(Claim(ids=("z",)), claim))
    assert row.ids == ("z",)


def test_a_parametrised_test_claims_one_id_at_most_for_all_its_cases():
    many = cases("v4", "v6", claims=(Claim(ids=("x",)), Claim(ids=("y",))))
    assert list(claims.faults(many)) == [
        ("t.py::t", "claims 2 ids for each case: say which cases prove which id (tests.spec.claims)")
    ]
    assert list(claims.faults(cases("v4", "v6", claims=(Claim(ids=("x",)),)))) == []
    assert list(claims.faults(cases("v4", "v6", claims=(Claim(ids=("x", "y"), cases=("v4",)),)))) == []
    assert list(claims.faults([Case(test="t.py::t", case=None, claims=(Claim(ids=("x", "y")),))])) == []


def test_cases_that_say_nothing_or_are_not_there_are_faults():
    assert list(claims.faults(cases("v4", claims=(Claim(ids=("x",), cases=("*",)),)))) != []
    assert list(claims.faults([Case(test="t.py::t", case=None, claims=(Claim(ids=("x",), cases=("v4",)),))])) != []
    some = cases("v4", "v6", claims=(Claim(ids=("x",), cases=("v4", "v5")),))
    assert list(claims.unmatched(some)) == ["t.py::t: no case is 'v5'"]


def test_collected_tests_claim_as_their_marks_say():
    """Of this file's own marks, as pytest has them."""

    class Item:
        nodeid = "t.py::t[v4-nft]"
        marks = (
            pytest.mark.spec("a").mark,
            pytest.mark.spec("b", cases="v4-*").mark,
            pytest.mark.spec("c", cases=("v6-*", "v5")).mark,
        )

        class callspec:  # noqa: N801 - pytest's name
            id = "v4-nft"
            marks = (pytest.mark.spec("a").mark,)

        def iter_markers(self, _name: str) -> list[pytest.Mark]:
            return list(self.marks)

    case = Case.of(Item())
    assert (case.test, case.case, case.own) == ("t.py::t", "v4-nft", ("a",))
    assert case.ids == ("a", "b")


def test_of_each_test_some_cases_are_drawn_with_all_ids_that_it_proves():
    table = cases(*map(str, range(10)), claims=(Claim(ids=("x",), cases=("7",)), Claim(ids=("y",), cases=("2", "3"))))
    row = [Case(test="t.py::rows", case=name, claims=(), own=(name,)) for name in ("a", "b", "c", "d", "e")]
    alone = Case(test="t.py::alone", case=None, claims=())
    every = [*table, alone, *row, Case(test="t.py::one", case="v4", claims=())]
    sizes, seen = set(), set()
    for seed in map(str, range(50)):
        chosen = draw.drawn(every, seed)
        assert chosen == draw.drawn(every, seed)
        assert {"x", "y", *"abcde"} == {name for place in chosen for name in every[place].ids}
        assert chosen.issuperset(range(10, 17))
        sizes.add(len(chosen) - 7)
        seen |= chosen
    assert sizes <= {3, 4, 5}
    assert seen == set(range(17))
    # What else is there changes nothing.
    assert {place + 1 for place in draw.drawn(table, "s")} == {
        place for place in draw.drawn([alone, *table], "s") if place
    }


SLOW = """
import time, pytest
def test_good(): time.sleep(0.2)
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="no wireguard")
def test_skipped(): pass
def test_hangs(): time.sleep(1000)
def test_never(): pass
"""
RUN = """
import sys, pathlib, pytest
from tests.run.progress import Recorder
sys.exit(pytest.main(sys.argv[2:], plugins=[Recorder(pathlib.Path(sys.argv[1]))]))
"""


def run_of(folder: Path, source: str, *, quiet: float) -> tuple[int, Path]:
    """Run pytest as a stage, with nothing that limits it but that."""
    test = folder / "test_a.py"
    test.write_text(source)
    reports = folder / "reports"
    reports.mkdir()
    file = reports / f"some-tests{progress.END}"
    options = ["-q", f"--rootdir={folder}", "--noconftest", "-c/dev/null", "-pno:cacheprovider"]
    command = [sys.executable, "-c", RUN, str(file), *options, str(test)]
    return stage.main(reports, "some tests", command, quiet), reports


def test_a_stage_in_which_nothing_progresses_is_ended_and_says_what_it_had(folder, capsys):
    code, reports = run_of(folder, SLOW, quiet=8)
    assert code == stage.ENDED
    assert report.main(reports) == 1
    said = capsys.readouterr().out
    assert "some-tests: ended early, after 3 of 5 tests" in said
    assert "failed: test_a.py::test_bad" in said
    assert "assert 1 == 2" in said
    assert "was running: test_a.py::test_hangs" in said
    assert "did not run: test_a.py::test_never" in said
    assert "did not run: test_a.py::test_hangs" not in said
    assert "skipped (not allowed): test_a.py::test_skipped: no wireguard" in said
    assert said.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    [good, *_] = progress.read(reports / f"some-tests{progress.END}").ran
    assert good.seconds > 0.2, "not that of its end alone"


@pytest.mark.parametrize("steps, code", [(6, 0), (2, stage.ENDED)], ids=["it progresses", "it hangs"])
def test_a_stage_goes_on_as_long_as_it_progresses_however_long_it_takes(monkeypatch, steps, code):
    monkeypatch.setattr(stage, "_LOOK_AGAIN", 0.01)
    looks, now = itertools.count(1), itertools.count(step=400)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as running:

        def done() -> int:
            if (look := next(looks)) == 6:
                running.kill()
                running.wait()
                running.returncode = 0
            return min(look, steps)

        assert stage._watch(running, done, stage.QUIET, lambda: float(next(now))) == code


def test_what_a_program_works_is_progress():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as running:
        try:
            before = stage._work(running.pid)
            eventually(lambda: stage._work(running.pid) > before + 1, seconds=60)
        finally:
            running.kill()
