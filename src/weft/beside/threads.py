"""Work in threads that nothing waits for: a disk that hangs must not hold us (NFS).

asyncio's executor has few threads, and the program's end waits for each. Where there can be no more (a limit of
processes), two that were started early take turns: one does what may hang, the other the rest.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

_NO_MORE: Final = "can't start new thread"  # all that threading says
_LOOK_SECONDS: Final = 1.0
# The usual 8 MB count against a limit of memory (LimitAS) for each thread. Python 3.13 takes up to 1.8 MB until it
# refuses JSON that is nested too deeply.
_STACK: Final = 4 << 20
# What has not ended yet, by its key: something that hangs holds one thread, however often it is asked for.
_under_way: Final[dict[object, Future[Any]]] = {}


class Reserve:
    def __init__(self) -> None:
        self._turns: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._kept = False
        self._looks = False

    def keep(self) -> None:
        """Raises `OSError`."""
        start_thread(self._serve, name="reserve")
        self._kept = True

    def begin(self, do: Callable[[], None]) -> None:
        """Start a thread, or use this one. `OSError` if this one was not kept."""
        try:
            start_thread(do)
        except OSError:
            if not self._kept:
                raise
            self._turns.put(partial(copy_context().run, do))
            if not self._looks:
                self._look_later()

    def _look_later(self) -> None:
        self._looks = True
        asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Try to start a thread for what still waits: this one may hang."""
        self._looks = False
        if not self._turns.empty():
            with suppress(OSError):
                start_thread(self._catch_up)
            self._look_later()

    def _catch_up(self) -> None:
        with suppress(Empty):
            while True:
                self._turns.get_nowait()()

    def _serve(self) -> None:
        while True:
            self._turns.get()()


_reserve: Final = Reserve()
_reserve_for_what_hangs: Final = Reserve()


def keep_reserve() -> None:
    """Raises `OSError` when there can be no more threads already."""
    _reserve.keep()
    _reserve_for_what_hangs.keep()


def start_thread(work: Callable[[], None], *, name: str = "") -> threading.Thread:
    """`OSError` when there can be no more. It ends with the program, and has the context of who starts it."""
    threading.stack_size(_STACK)  # of all threads that this process starts from now on
    thread = threading.Thread(target=copy_context().run, args=(work,), name=name or None, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the limit of processes
        raise OSError(errno.EAGAIN, str(error)) from error
    return thread


def is_shortage(fault: BaseException | None) -> bool:
    if isinstance(fault, RuntimeError):
        return str(fault) == _NO_MORE
    return isinstance(fault, OSError) and fault.errno == errno.EAGAIN


async def beside(work: Callable[[], T]) -> T:
    """Do `work` in a thread, which a cancelled caller leaves alone. Raises what it raises; `OSError` without one."""
    do, answer = _answering(work)
    _reserve.begin(do)
    return await asyncio.wrap_future(answer)


async def bounded(key: object, work: Callable[[], T], *, seconds: float) -> T:
    """The same for what may hang: after `seconds` `OSError` with ETIMEDOUT.

    Who asks for the same `key` waits for the thread that is under way.
    """
    under_way: Future[T] | None = _under_way.get(key)
    if under_way is None:
        do, under_way = _answering(work)
        _reserve_for_what_hangs.begin(do)
        _under_way[key] = under_way
        under_way.add_done_callback(lambda _: _under_way.pop(key, None))
    waiting = asyncio.wrap_future(under_way)
    waiting.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else may ask for that
    await asyncio.wait((waiting,), timeout=seconds)
    if not waiting.done():
        raise OSError(errno.ETIMEDOUT, f"no answer within {seconds:g} s")
    return waiting.result()


def _answering(work: Callable[[], T]) -> "tuple[Callable[[], None], Future[T]]":
    answer: Future[T] = Future()

    def do() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's, of whatever kind
            answer.set_exception(error)

    return do, answer
