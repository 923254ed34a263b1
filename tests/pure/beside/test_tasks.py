"""Tasks outside a group: kept while they run, and no fault of one is lost."""

import asyncio
import gc
import weakref

import pytest

from weft.beside import tasks


async def fail() -> None:
    raise ValueError("five")


async def test_a_fault_that_nobody_reads_is_logged(caplog: pytest.LogCaptureFixture):
    await asyncio.wait([tasks.watched(fail())])
    [record] = caplog.records
    assert record.getMessage() == (
        "INST-002 fail: a fault in weft ended it: ValueError('five'). Report this, with the lines below"
    )
    assert record.exc_info is not None


async def test_an_end_without_a_fault_is_no_news(caplog: pytest.LogCaptureFixture):
    stopped = tasks.watched(asyncio.Event().wait())  # type: ignore[arg-type]
    stopped.cancel()
    await asyncio.wait([stopped, tasks.watched(asyncio.sleep(0))])
    assert not caplog.records


async def test_a_fault_that_the_caller_reads_is_not_logged(caplog: pytest.LogCaptureFixture):
    with pytest.raises(ValueError, match="five"):
        await tasks.awaited(fail())
    assert not caplog.records


async def test_a_task_is_kept_until_it_ends():
    begun = asyncio.Event()
    waits = []

    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        waits.append(weakref.ref(future))
        begun.set()
        await future

    kept = weakref.ref(tasks.awaited(wait()))
    await begun.wait()
    gc.collect()
    task, future = kept(), waits[0]()
    assert task is not None
    future.set_result(None)
    await task
    assert task not in tasks._running
