"""What the daemon's doctor says in the log: each finding once, and its end."""

import logging

import pytest

from weft.daemon.doctor import tell
from weft.model.errors import Problem
from weft.model.value import replace

DROPPED = Problem(code="FW-002", where="forwarding", seen="dropped")
FULL = Problem(code="NEIGH-001", where="neighbours", seen="1000 of 1024")


def test_a_finding_is_told_once_and_its_end(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    tell([], [DROPPED, FULL])
    tell([DROPPED, FULL], [DROPPED, replace(FULL, seen="1010 of 1024")])
    tell([DROPPED, FULL], [FULL])
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "FW-002 forwarding: dropped"),
        ("WARNING", "NEIGH-001 neighbours: 1000 of 1024"),
        ("INFO", "FW-002 forwarding: not found any more"),
    ]
