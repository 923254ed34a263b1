"""A part of the daemon that dies is started again, later each time, and is said once with all there is to see."""

import asyncio
import logging

import pytest

from weft.daemon.process import supervise
from weft.daemon.process.supervise import Supervisor, outcome
from weft.model.errors import ConfigError, Problem
from weft.model.node.status import Status


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, which take no time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def quick(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(supervise.asyncio, "sleep", quick)
    return made


async def test_it_waits_longer_each_time_and_counts(pauses: list[float], caplog: pytest.LogCaptureFixture):
    status, left, marks = Status(), 9, []

    async def part() -> None:
        nonlocal left
        if left:
            left -= 1
            raise ValueError("broken")

    async with asyncio.TaskGroup() as tasks:
        with caplog.at_level(logging.ERROR):
            Supervisor(tasks, status).start("part", part, again=lambda: marks.append(left))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert status.faults == 9
    assert marks == [8, 7, 6, 5, 4, 3, 2, 1, 0], "what was left half done is marked before each new start"
    assert len(caplog.records) == 9
    assert all("INST-002 weftd's part 'part'" in record.getMessage() for record in caplog.records)
    assert [bool(record.exc_info) for record in caplog.records] == [True] + [False] * 8
    assert "seen 9 times" in caplog.records[-1].getMessage()


async def test_each_kind_of_fault_shows_where_it_was(pauses: list[float], caplog: pytest.LogCaptureFixture):
    faults: list[Exception] = [ValueError("one"), KeyError("two"), ExceptionGroup("", [OSError("three")])]

    async def part() -> None:
        if faults:
            raise faults.pop()

    async with asyncio.TaskGroup() as tasks:
        Supervisor(tasks, Status()).start("part", part)
    assert all(record.exc_info for record in caplog.records)
    assert len(caplog.records) == 3


async def test_what_the_user_must_mend_ends_the_daemon(pauses: list[float]):
    fault = ConfigError(Problem(code="FLAG-001", where="--x", seen="y"))

    async def part() -> None:
        raise fault

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as tasks:
            Supervisor(tasks, Status()).start("part", part)
    assert raised.value.exceptions == (fault,)
    assert not pauses


async def test_a_cancellation_of_its_own_is_a_fault_and_ours_is_a_stop(pauses: list[float]):
    ended = asyncio.Event()

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert isinstance(await outcome(cancels_itself), asyncio.CancelledError)
    stopped = asyncio.create_task(outcome(waits))
    await asyncio.wait((stopped,), timeout=0.01)
    stopped.cancel()
    await asyncio.wait((stopped,))
    assert stopped.cancelled()
    assert ended.is_set(), "it is waited for"


async def test_a_fault_while_stopping_is_not_lost():
    async def part() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while stopping")

    stopped = asyncio.create_task(outcome(part))
    await asyncio.wait((stopped,), timeout=0.01)
    stopped.cancel()
    with pytest.raises(ValueError, match="while stopping"):
        await stopped


async def test_what_is_there_once_is_used_the_first_time_alone(pauses: list[float]):
    ran: list[str] = []

    async def first() -> None:
        ran.append("first")
        raise ValueError("broken")

    async def part() -> None:
        ran.append("part")
        if len(ran) < 3:
            raise ValueError("broken")

    async with asyncio.TaskGroup() as tasks:
        Supervisor(tasks, Status()).start("part", part, first=first)
    assert ran == ["first", "part", "part"]
    assert len(pauses) == 2
