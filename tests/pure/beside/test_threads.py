"""Work in threads of its own: what becomes of it is the caller's, and nothing waits for it that was cancelled."""

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from weft.beside import threads as module
from weft.beside.threads import beside, bounded, is_shortage


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
    does |= {await module.bounded("a file", threading.get_ident, seconds=20)}
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


async def test_what_hangs_is_left_alone_in_the_one_thread_that_it_has():
    hangs = threading.Event()
    before = threading.active_count()
    try:
        for _ in range(5):
            with pytest.raises(OSError, match=r"no answer within 0\.01 s") as raised:
                await bounded("key", hangs.wait, seconds=0.01)
            assert raised.value.errno == errno.ETIMEDOUT
        assert threading.active_count() == before + 1
        assert await bounded("other", lambda: 7, seconds=5) == 7
    finally:
        hangs.set()
    assert await bounded("key", lambda: True, seconds=5)
    assert await bounded("key", lambda: 8, seconds=5) == 8, "and each that has ended is done anew"
    with pytest.raises(ValueError, match="of whatever kind"):
        await bounded("key", fail, seconds=5)


def fail() -> NoReturn:
    raise ValueError("of whatever kind")
