"""Work beside the event loop, in threads that nothing waits for: a disk that hangs must not hold us (NFS).

Not by asyncio's executor: that has few threads, which other work needs, and the end of the program waits for each.
Where there can be no more threads (a limit of processes) one that is there from the start does all such work in turns.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

_NO_MORE: Final = "can't start new thread"  # all that threading says
_turns: SimpleQueue[Callable[[], None]] = SimpleQueue()
_in_reserve = threading.Event()
# What has not ended yet, by its key: something that hangs holds one thread, however often it is asked for.
_under_way: Final[dict[object, Future[Any]]] = {}


def keep_one_in_reserve() -> None:
    """Start the thread that does work where there can be no other. `OSError` when there can be no more already."""
    start_thread(_serve, name="reserve")
    _in_reserve.set()


def start_thread(work: Callable[[], None], *, name: str = "") -> threading.Thread:
    """Start a thread that ends with the program. `OSError` when there can be no more."""
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
    _begin(do)
    return await asyncio.wrap_future(answer)


async def bounded(key: object, work: Callable[[], T], *, seconds: float) -> T:
    """The same for what may hang, for so many seconds at most: then `OSError` with ETIMEDOUT.

    Until the thread ends, who asks for the same `key` waits for that one.
    """
    under_way: Future[T] | None = _under_way.get(key)
    if under_way is None:
        do, under_way = _answering(work)
        _begin(do)
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


def _begin(do: Callable[[], None]) -> None:
    """Have a thread do something, its own or the one in reserve."""
    try:
        start_thread(do)
    except OSError:
        if not _in_reserve.is_set():
            raise
        _turns.put(do)


def _serve() -> None:
    while True:
        _turns.get()()
