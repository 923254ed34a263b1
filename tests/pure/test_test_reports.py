"""The gates themselves: they must fail on what they are there to find."""

from pathlib import Path

import pytest

from tests.support import report, speccoverage

PASSED = '<testcase file="tests/pure/test_a.py" name="test_a" time="0.5"><properties>{}</properties></testcase>'
SKIPPED = '<testcase file="tests/a.py" name="test_b" time="0"><skipped message="no wireguard"/></testcase>'
FAILED = '<testcase file="tests/a.py" name="test_c" time="0"><failure message="x"/></testcase>'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "required.txt").write_text("# a note\na.md 1/x  # row x\na.md 1/y\n")
    (tmp_path / "allowed.txt").write_text("tests/a.py::test_b: no wireguard*  # the kernel of CI has none\n")
    monkeypatch.setattr(speccoverage, "REQUIRED", tmp_path / "required.txt")
    monkeypatch.setattr(report, "ALLOWED_SKIPS", tmp_path / "allowed.txt")
    return tmp_path


def run(folder: Path, *cases: str, code: int = 0) -> int:
    (folder / "pure.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    (folder / "stages.tsv").write_text(f"pure tests\t1.5\t{code}\n")
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


def test_a_run_without_tests_fails(folder):
    (folder / "required.txt").write_text("")
    assert run(folder) == 1
