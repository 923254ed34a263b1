"""Loads a kernel module by a thread that alone has the right to.

Programs inherit a thread's rights, and some outlive the daemon: a later one with fewer could not look at them
(ptrace(2)).
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Self

from weft.kernel.tools import Tools


class Modules:
    """Runs programs by its thread until `end`; without a thread, as others are run."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[str, Sequence[str], Future[str]] | None] = SimpleQueue()
        self._thread: Thread | None = None

    @classmethod
    def apart(cls, give_away: Callable[[], None]) -> Self:
        """Start the thread, which does `give_away` first: it begins with the caller's rights."""
        modules = cls()
        given = Future[None]()
        modules._thread = Thread(target=modules._serve, args=(give_away, given), daemon=True)
        modules._thread.start()
        given.result()
        return modules

    async def run(self, name: str, arguments: Sequence[str]) -> str:
        """Return what a program printed. Raises `ToolError`."""
        if self._thread is None:
            return await Tools().run(name, arguments)
        answer = Future[str]()
        self._asked.put((name, arguments, answer))
        return await asyncio.wrap_future(answer)

    def end(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self, give_away: Callable[[], None], given: "Future[None]") -> None:
        give_away()
        given.set_result(None)
        while (asked := self._asked.get()) is not None:
            name, arguments, answer = asked
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(asyncio.run(Tools().run(name, arguments)))
            except BaseException as error:  # noqa: BLE001 - it is the caller's, of whatever kind
                answer.set_exception(error)
