"""What a run of pytest has done so far, in a file that grows as it goes: nothing is lost when the run is ended early.

Where the environment names a file, tests/conftest.py has pytest write it: a line when a test is planned, begins, and
ends. tests/run/stage.py looks whether it grows, tests/run/report.py reads it.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.run.junit import Ran

VARIABLE: Final = "WEFT_TEST_PROGRESS"
END: Final = ".progress"


class Recorder:
    """A plugin of pytest's. Of a run with several processes the one that gives out the tests writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._planned: set[str] = set()
        self._took: Counter[str] = Counter()  # seconds: of the fixtures, too

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._plan(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self._plan(ids)

    def _plan(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self._planned]
        self._planned.update(new)
        if new:
            self._write(planned=new)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        failed, skipped = report.failed, report.skipped
        self._took[report.nodeid] += report.duration
        if report.when == "teardown" or failed or skipped:
            self._write(
                test=report.nodeid,
                outcome="failed" if failed else "skipped" if skipped else "passed",
                over=report.when == "teardown",
                seconds=self._took[report.nodeid],
                text=report.longreprtext if failed else "",
                reason=str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "",
                spec=[value for name, value in report.user_properties if name == "spec"],
            )

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")


@dataclass
class Progress:
    """How far a run came. `failures` are the words of tests that failed."""

    planned: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def not_run(self) -> list[str]:
        ended = {one.test for one in self.ran}
        return [name for name in self.planned if name not in ended]


def read(path: Path) -> Progress:
    """Read what a run has written; the last line may be torn."""
    found = Progress()
    began: dict[str, None] = {}
    outcomes: dict[str, dict[str, Any]] = {}
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        found.planned += line.get("planned", [])
        if "began" in line:
            began[line["began"]] = None
        if "test" in line:
            known = outcomes.setdefault(line["test"], line)
            if known["outcome"] == "passed":
                outcomes[line["test"]] = line
            if line["text"]:
                found.failures[line["test"]] = line["text"]
            if line["over"]:
                last = outcomes[line["test"]]
                began.pop(line["test"], None)
                found.ran.append(
                    Ran(
                        test=line["test"],
                        outcome=last["outcome"],
                        seconds=line["seconds"],
                        reason=last["reason"].removeprefix("Skipped: "),
                        spec=frozenset(last["spec"]),
                    )
                )
    found.running = list(began)
    return found
