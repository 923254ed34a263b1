"""The table of the 45 problems is in step with faults, checks, tests and codes."""

import re
from pathlib import Path

import pytest

from tests.lab.test_lab_trace import LOST
from weft.diag.checks import CHECKS
from weft.lab.faults import FAULTS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/known-problems.md").read_text()
CODES = set(re.findall(r"^### (\S+)", (ROOT / "docs/reference/problems.md").read_text(), re.MULTILINE))
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(r"\| \d", line)]
KNOWN = {fault.name: fault for fault in FAULTS}
# Faults by which a problem shows itself under the code of what caused it.
CAUSES = {"KERN-002", "KERN-003", "INST-003"}
LEAST = 40


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_all_45_are_there():
    assert [int(row[0]) for row in ROWS] == list(range(1, 46))
    assert len({row[2] for row in ROWS}) == 45
    assert {row[2] for row in ROWS} <= CODES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_a_row_names_what_there_is(row: list[str]):
    _, _, code, made, found, _, does = row
    if made.startswith("not made: "):
        return
    assert named(made)
    for name in named(made):
        if "::" in name:
            file, _, test = name.partition("::")
            assert re.search(rf"^ *(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), name
        else:
            assert KNOWN[name].code in {code, *CAUSES}, name
            assert KNOWN[name].repaired <= (does != "–"), name
    checks = {check.name for check in CHECKS}
    elsewhere = {"weft status", "/readyz", "weft ipam list --leaked"}
    assert set(named(found)) <= checks | elsewhere


def test_each_fault_is_of_a_problem():
    known = {row[2] for row in ROWS}
    assert {fault.name for fault in FAULTS if fault.code in known} <= set(named(PAGE))


@pytest.mark.parametrize("name", LOST)
def test_what_trace_says_of_a_fault_is_in_its_row(name: str):
    [row] = [row for row in ROWS if name in named(row[3])]
    assert LOST[name] in row[5]


def test_nearly_all_are_made():
    assert sum(not row[3].startswith("not made: ") for row in ROWS) >= LEAST
