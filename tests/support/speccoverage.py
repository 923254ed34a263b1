"""Compares the specification ids that tests carry with those that tests/spec/required.txt asks for.

A required id counts when a test that passed carries it: a skipped test proves nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REQUIRED = Path(__file__).parents[1] / "spec" / "required.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """`missing` ids are required and unproved; `unknown` ids are claimed by a test and in no list."""

    required: int
    missing: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        proved = self.required - len(self.missing)
        lines = [f"specification: {proved} of {self.required} required ids proved by a passed test"]
        lines += [f"  not proved: {name}" for name in self.missing]
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
