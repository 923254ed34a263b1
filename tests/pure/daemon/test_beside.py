"""Work in threads of its own: what becomes of it is the caller's, and nothing waits for it that was cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from weft.kernel import beside as module
from weft.kernel.beside import beside, is_shortage


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
    monkeypatch.setattr(module, "_in_reserve", threading.Event())
    with pytest.raises(OSError, match="can't start new thread") as raised:
        await beside(list)
    assert is_shortage(raised.value)
    assert is_shortage(raised.value.__cause__)
    assert not is_shortage(RuntimeError("of another kind"))
    assert not is_shortage(FileNotFoundError(2, "none"))


async def test_where_there_can_be_no_more_threads_the_one_in_reserve_does_all_in_turns(monkeypatch):
    module.keep_one_in_reserve()

    def full(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    def fail() -> NoReturn:
        raise SystemExit("of whatever kind")

    monkeypatch.setattr(module.threading.Thread, "start", full)
    with pytest.raises(SystemExit):
        await beside(fail)
    does = set(await asyncio.gather(*(beside(threading.get_ident) for _ in range(20))))
    assert len(does) == 1
    assert does != {threading.get_ident()}


async def test_what_was_cancelled_before_its_thread_ran_is_not_done(monkeypatch):
    late: list[Callable[[], None]] = []
    done: list[str] = []
    monkeypatch.setattr(module, "start_thread", late.append)
    task = asyncio.create_task(beside(lambda: done.append("it")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    [run] = late
    run()
    assert (task.cancelled(), done) == (True, [])
