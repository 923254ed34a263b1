"""Reads the JUnit reports that pytest writes: what ran, how it ended, and which specification ids it carried."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One test of one run: `outcome` is passed, failed or skipped; `reason` says why it was skipped."""

    test: str
    outcome: str
    seconds: float
    reason: str = ""
    spec: frozenset[str] = frozenset()


def read(path: Path) -> Iterator[Ran]:
    """Yield the tests of one report."""
    # The file was written a moment ago by our own pytest: no hostile XML.
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        yield Ran(
            test=f"{case.get('file', case.get('classname', ''))}::{case.get('name', '')}",
            outcome="failed" if failed else "skipped" if skipped is not None else "passed",
            seconds=float(case.get("time", "0")),
            reason="" if skipped is None else skipped.get("message", ""),
            spec=frozenset(
                prop.get("value", "") for prop in case.iterfind("properties/property") if prop.get("name") == "spec"
            ),
        )
