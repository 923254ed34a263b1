"""Work on files, in threads that nothing waits for: a disk that hangs (NFS without its server) must not hold us.

Not by asyncio's executor: that has few threads, which other work needs, and the end of the program waits for each.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Do `work` in a thread of its own; a caller that is cancelled leaves that alone.

    Raises what `work` raises, and `OSError` when there can be no more threads.
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
        threading.Thread(target=do, daemon=True).start()
    except RuntimeError as error:  # the limit of processes
        raise OSError(errno.EAGAIN, str(error)) from error
    return await asyncio.wrap_future(answer)
