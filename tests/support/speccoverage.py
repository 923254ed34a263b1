"""Compares the specification ids that tests carry with those that tests/spec/required.txt asks for.

A required id counts when a test that passed carries it: a skipped test proves nothing (tests.support.report).
`make spec` asks less, and takes seconds: which ids no collected test carries.
"""

import contextlib
import io
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

SHOWN = 40  # when a stage breaks, hundreds are unproved, and that is not the news
REQUIRED = Path(__file__).parents[1] / "spec" / "required.txt"


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


def compare(wanted: Iterable[str], proved: Iterable[str]) -> Coverage:
    """Compare what is required with what passed tests carry."""
    wanted, seen = list(wanted), set(proved)
    return Coverage(
        required=len(wanted),
        missing=tuple(name for name in wanted if name not in seen),
        unknown=tuple(sorted(seen.difference(wanted))),
    )


class _Collector:
    """A pytest plugin that takes the ids of all collected tests."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("spec"):
                self.ids.update(marker.args)


def main() -> int:
    collector = _Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q"], plugins=[collector])
    if code != pytest.ExitCode.OK:
        print(said.getvalue())
    coverage = compare(required(REQUIRED.read_text()), collector.ids)
    print(coverage)
    return int(not coverage.complete)


if __name__ == "__main__":
    sys.exit(main())
