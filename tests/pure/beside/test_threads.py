"""Work in threads of its own: what becomes of it is the caller's, and nothing waits for it that was cancelled."""

import asyncio
import errno
import json
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

import pytest

from weft.beside import threads as module
from weft.beside.threads import Reserve, beside, bounded, is_shortage, start_thread
from weft.model.errors import TYPED, typed


async def test_what_is_done_and_what_goes_wrong_is_the_callers():
    def fail() -> NoReturn:
        raise SystemExit("of whatever kind")

    assert await beside(threading.get_ident) != threading.get_ident()
    with pytest.raises(SystemExit, match="of whatever kind"):
        await beside(fail)


async def test_a_thread_has_the_context_of_who_starts_it():
    assert await in_a_pod(beside) == "in a pod"
    assert await in_a_pod(partial(bounded, "key", seconds=5.0)) == "in a pod"


async def in_a_pod(way: Callable[[Callable[[], str]], Awaitable[str]]) -> str:
    async def ask() -> str:
        TYPED.set(lambda _: "in a pod")
        return await way(lambda: typed("plan"))

    return await asyncio.create_task(ask())


class Limit:
    """A limit of threads, reached from the first on that is started after `keeps`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, keeps: bool = True) -> None:
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
        for name in ("_reserve", "_reserve_for_what_hangs"):
            monkeypatch.setattr(module, name, Reserve())
        if keeps:
            module.keep_reserve()
        self._monkeypatch, self._start = monkeypatch, threading.Thread.start

        def full(_: threading.Thread) -> NoReturn:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", full)

    def lift(self) -> None:
        self._monkeypatch.setattr(threading.Thread, "start", self._start)


async def test_where_there_can_be_no_more_threads_it_cannot_be_done(monkeypatch):
    Limit(monkeypatch, keeps=False)
    with pytest.raises(OSError, match="can't start new thread") as raised:
        await beside(list)
    assert is_shortage(raised.value)
    assert is_shortage(raised.value.__cause__)
    assert not is_shortage(RuntimeError("of another kind"))
    assert not is_shortage(FileNotFoundError(2, "none"))


async def test_where_there_can_be_no_more_threads_those_in_reserve_do_all_in_turns(monkeypatch):
    Limit(monkeypatch)
    with pytest.raises(ValueError, match="of whatever kind"):
        await beside(fail)
    does = set(await asyncio.gather(*(beside(threading.get_ident) for _ in range(20))))
    assert len(does) == 1
    assert await in_a_pod(beside) == "in a pod"
    may_hang = {await bounded(number, threading.get_ident, seconds=20) for number in range(3)}
    assert len(may_hang) == 1
    assert len(does | may_hang | {threading.get_ident()}) == 3


async def test_what_hangs_in_reserve_holds_nothing_else_and_what_waits_for_it_only_until_there_can_be_threads(
    monkeypatch,
):
    limit, hangs = Limit(monkeypatch), threading.Event()
    try:
        for key in ("hangs", "waits"):
            with pytest.raises(OSError, match="no answer"):
                await bounded(key, hangs.wait if key == "hangs" else threading.get_ident, seconds=0.01)
        assert await beside(lambda: 7) == 7
        with pytest.raises(OSError, match="no answer"):
            await bounded("waits", list, seconds=0.1)
        limit.lift()
        assert await bounded("waits", list, seconds=20), "it is what was asked for at first"
        assert await bounded("waits", list, seconds=20) == []
    finally:
        hangs.set()


async def test_one_timer_looks_for_everything_that_waits(monkeypatch):
    Limit(monkeypatch)
    hangs, armed = threading.Event(), []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: armed.append(timer))
    work = [asyncio.create_task(beside(hangs.wait)) for _ in range(20)]
    await asyncio.sleep(0)
    hangs.set()
    await asyncio.gather(*work)
    assert len(armed) == 1


def test_a_thread_takes_little_of_a_limit_of_memory_and_enough_for_json_without_end():
    refused: list[bool] = []

    def read() -> None:
        with pytest.raises(RecursionError):
            json.loads('{"a":[' * 100_000)
        refused.append(True)

    start_thread(read).join()
    assert refused
    assert threading.stack_size() == 4 << 20


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
