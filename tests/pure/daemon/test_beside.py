"""Work in threads of its own: what becomes of it is the caller's, and nothing waits for it that was cancelled."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

import pytest

from weft.daemon.disk import beside as module
from weft.daemon.disk.beside import beside


async def test_what_is_done_and_what_goes_wrong_is_the_callers():
    def fail() -> NoReturn:
        raise SystemExit("of whatever kind")

    assert await beside(threading.get_ident) != threading.get_ident()
    with pytest.raises(SystemExit, match="of whatever kind"):
        await beside(fail)


async def test_where_there_can_be_no_more_threads_it_cannot_be_done(monkeypatch):
    def full(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading.Thread, "start", full)
    with pytest.raises(OSError, match="can't start new thread"):
        await beside(list)


async def test_what_was_cancelled_before_its_thread_ran_is_not_done(monkeypatch):
    late: list[Callable[[], None]] = []
    done: list[str] = []
    thread = lambda target, **_: SimpleNamespace(start=lambda: late.append(target))  # noqa: E731
    monkeypatch.setattr(module, "threading", SimpleNamespace(Thread=thread))
    task = asyncio.create_task(beside(lambda: done.append("it")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    [run] = late
    run()
    assert (task.cancelled(), done) == (True, [])
