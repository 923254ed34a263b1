"""The reference names each check and each fault, and no other."""

import re
from pathlib import Path

from weft.diag.checks import CHECKS
from weft.lab.faults import FAULTS

PAGE = (Path(__file__).parents[4] / "docs/reference/doctor.md").read_text()


def test_each_check_and_each_fault_is_named_in_its_place():
    named = re.findall(r"^\| `([a-z0-9-]+)` \| ([A-Z0-9-]*)", PAGE, re.MULTILINE)
    assert [name for name, _ in named] == [check.name for check in CHECKS] + [fault.name for fault in FAULTS]
    assert [code for _, code in named[len(CHECKS) :]] == [fault.code for fault in FAULTS]


def test_a_fault_says_what_undoes_it():
    for fault in FAULTS:
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{fault.name}` |"))
        assert ("weftd, at once" in row) == fault.repaired, fault.name
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
