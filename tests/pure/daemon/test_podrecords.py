"""A disk on which no pod's records can be written is a problem of the node until it takes them again, and said once."""

import asyncio
import errno
import logging
import os

from tests.support.waiting import comes
from weft.daemon import services
from weft.daemon.services import PodRecords
from weft.model.errors import Problem


async def test_a_disk_without_room_is_a_problem_until_there_is_some(monkeypatch, caplog):
    monkeypatch.setattr(services, "_LOOK_SECONDS", 0.001)
    records = PodRecords("/s/cni")
    full, looks = True, 0

    def check_room(size: int, files: int) -> None:
        nonlocal looks
        looks += 1
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with caplog.at_level(logging.INFO):
        task = asyncio.create_task(records.watch(check_room))
        await comes(lambda: looks > 2)
        assert records.problem is not None
        assert (records.problem.code, records.problem.where) == ("STATE-002", "/s/cni")
        full = False
        await comes(lambda: records.problem is None)
    task.cancel()
    await asyncio.wait((task,))
    assert [(record.levelname, record.getMessage().partition(". ")[0]) for record in caplog.records] == [
        ("WARNING", "STATE-002 /s/cni: cannot be written: No space left on device"),
        ("INFO", "STATE-002 /s/cni can be written again"),
    ]


async def test_a_disk_that_does_not_answer_is_a_problem_at_the_third_look(monkeypatch):
    monkeypatch.setattr(services, "_LOOK_SECONDS", 0.001)
    records = PodRecords("/s/cni")
    seen: list[Problem | None] = []

    def check_room(size: int, files: int) -> None:
        seen.append(records.problem)
        if len(seen) not in (3, 7):
            raise OSError(errno.ETIMEDOUT, "no answer within 5 s")

    task = asyncio.create_task(records.watch(check_room))
    await comes(lambda: len(seen) >= 8)
    task.cancel()
    await asyncio.wait((task,))
    assert seen[:6] == [None] * 6, "twice is not enough, nor what was before an answer"
    assert "no answer within 5 s" in str(seen[6])
    assert seen[7] is None
