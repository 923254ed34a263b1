"""Work beside the event loop, in threads that nothing waits for: a disk that hangs must not hold us (NFS).

Not by asyncio's executor: that has few threads, which other work needs, and the end of the program waits for each.
Where there can be no more threads (a limit of processes), two that were started early do such work in turns: one does
what may hang, the other one everything else. What waits for them gets a new thread as soon as there can be one.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
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
    """A thread that does work in turns for which no other can be started."""

    def __init__(self) -> None:
        self._turns: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._kept = False
        self._looks = False

    def keep(self) -> None:
        """Start the thread. `OSError` when there can be no more already."""
        start_thread(self._serve, name="reserve")
        self._kept = True

    def begin(self, do: Callable[[], None]) -> None:
        """Have a new thread do something, or this one where there can be no new one. `OSError` if it was not kept."""
        try:
            start_thread(do)
        except OSError:
            if not self._kept:
                raise
            self._turns.put(do)
            if not self._looks:
                self._look_later()

    def _look_later(self) -> None:
        self._looks = True
        asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Try to start a thread for what still waits: the one in reserve may hang."""
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
    """Start the threads that do work where there can be no others. `OSError` when there can be no more already."""
    _reserve.keep()
    _reserve_for_what_hangs.keep()


def start_thread(work: Callable[[], None], *, name: str = "") -> threading.Thread:
    """Start a thread that ends with the program. `OSError` when there can be no more."""
    threading.stack_size(_STACK)  # of all threads that this process starts from now on
    thread = threading.Thread(target=work, name=name or None, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the limit of processes
        raise OSError(errno.EAGAIN, str(error)) from error
    return thread


def is_shortage(fault: BaseException | None) -> bool:
    """Tell whether it was a limit of processes that ended something."""
    if isinstance(fault, RuntimeError):
        return str(fault) == _NO_MORE
    return isinstance(fault, OSError) and fault.errno == errno.EAGAIN


async def beside(work: Callable[[], T]) -> T:
    """Do `work` in a thread of its own; a caller that is cancelled leaves that alone.

    Raises what `work` raises, and `OSError` when there can be no more threads and none is in reserve.
    """
    do, answer = _answering(work)
    _reserve.begin(do)
    return await asyncio.wrap_future(answer)


async def bounded(key: object, work: Callable[[], T], *, seconds: float) -> T:
    """The same for what may hang, for so many seconds at most: then `OSError` with ETIMEDOUT.

    Until the thread ends, who asks for the same `key` waits for that one.
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
    """Work, and what becomes of it once that is called."""
    answer: Future[T] = Future()

    def do() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's, of whatever kind
            answer.set_exception(error)

    return do, answer
