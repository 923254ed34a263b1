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
from typing import Final, TypeVar

T = TypeVar("T")

_NO_MORE: Final = "can't start new thread"  # all that threading says
_turns: SimpleQueue[Callable[[], None]] = SimpleQueue()
_in_reserve = threading.Event()


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
    answer: Future[T] = Future()

    def do() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's, of whatever kind
            answer.set_exception(error)

    try:
        start_thread(do)
    except OSError:
        if not _in_reserve.is_set():
            raise
        _turns.put(do)
    return await asyncio.wrap_future(answer)


def _serve() -> None:
    while True:
        _turns.get()()
