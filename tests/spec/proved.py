"""Compares the specification ids that tests carry with those that tests/spec/required.txt asks for.

A required id counts when tests carry it and all of them passed: a case that failed or was skipped leaves it unproved
(tests.run.report). `make spec` asks less, and takes seconds: which ids no collected test carries.
"""

import contextlib
import io
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spec import claims

SHOWN = 40  # when a stage breaks, hundreds are unproved, and that is not the news
REQUIRED = Path(__file__).with_name("required.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """`missing` ids are required and unproved; `unknown` ids are claimed by a test and in no list."""

    required: int
    missing: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        proved = self.required - len(self.missing)
        lines = [f"specification: {proved} of {self.required} required ids proved"]
        lines += [f"  not proved: {name}" for name in self.missing[:SHOWN]]
        if len(self.missing) > SHOWN:
            lines.append(f"  and {len(self.missing) - SHOWN} more")
        lines += [f"  not in tests/spec/required.txt: {name}" for name in self.unknown]
        return "\n".join(lines)

    @property
    def complete(self) -> bool:
        return not self.missing and not self.unknown


def required(text: str) -> list[str]:
    """Read the list: one id a line; two spaces and '#' begin a note."""
    lines = (line.split("  #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def compare(wanted: Iterable[str], passed: Iterable[str], rest: Iterable[str] = ()) -> Coverage:
    """Compare what is required with the ids of the tests that passed, and of the `rest`: those failed or skipped."""
    wanted, passed, rest = list(wanted), set(passed), set(rest)
    return Coverage(
        required=len(wanted),
        missing=tuple(name for name in wanted if name not in passed - rest),
        unknown=tuple(sorted((passed | rest).difference(wanted))),
    )


class _Collector:
    """A pytest plugin that takes what all collected tests claim."""

    def __init__(self) -> None:
        self.cases: list[claims.Case] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.cases = [claims.Case.of(item) for item in session.items]


def main() -> int:
    collector = _Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q"], plugins=[collector])
    if code != pytest.ExitCode.OK:
        print(said.getvalue())
    coverage = compare(required(REQUIRED.read_text()), (name for case in collector.cases for name in case.ids))
    print(coverage)
    faults = [f"{test}: {fault}" for test, fault in claims.faults(collector.cases)]
    faults += claims.unmatched(collector.cases)
    print(*faults, sep="\n", end="\n" if faults else "")
    return int(bool(faults) or not coverage.complete)


if __name__ == "__main__":
    sys.exit(main())
