"""Starts the long-lived parts of the daemon, and again those that end by a fault."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from traceback import extract_tb
from typing import Final

from weft.beside.tasks import awaited
from weft.beside.threads import is_shortage
from weft.model.errors import ConfigError, Problem
from weft.model.node.status import Status

log = logging.getLogger(__name__)

CODE: Final = "INST-002"
FIRST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 60.0


Part = Callable[[], Awaitable[None]]


class Supervisor:
    """A `ConfigError` of a part ends all `tasks`: the user must act."""

    def __init__(self, tasks: asyncio.TaskGroup, status: Status) -> None:
        self._tasks = tasks
        self._status = status
        self._shown: Counter[tuple[str, ...]] = Counter()

    def start(
        self, name: str, part: Part, *, first: Part | None = None, again: Callable[[], None] | None = None
    ) -> None:
        """Run a part in a task of its own, as `keep` does."""
        self._tasks.create_task(self.keep(name, part, first=first, again=again))

    async def keep(
        self, name: str, part: Part, *, first: Part | None = None, again: Callable[[], None] | None = None
    ) -> None:
        """Run `part` until it returns; after a fault again, once `again` has marked what may be half done.

        `first` runs in its place the first time.
        """
        delay = FIRST_SECONDS
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            fault = await outcome(first or part)
            first = None
            if fault is None:
                return
            if isinstance(fault, ConfigError):
                raise fault
            if now() - began > MOST_SECONDS or is_shortage(fault):
                delay = FIRST_SECONDS  # a shortage is no fault of the part's, and may be over
            self._say(name, fault, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, MOST_SECONDS)
            if again is not None:
                again()

    def _say(self, name: str, fault: BaseException, delay: float) -> None:
        self._status.faults += 1
        self._status.history.note("fault", name, code=CODE, words=repr(fault))
        kind = (name, *_kind(fault))
        self._shown[kind] += 1
        first = self._shown[kind] == 1
        problem = Problem(
            code=CODE,
            where=f"weftd's part {name!r}",
            seen=f"a fault in weft ended it: {fault!r}" + ("" if first else f" (seen {self._shown[kind]} times)"),
            hint=f"It starts again in {delay:g} s. Report this, with the lines below"
            if first
            else f"It starts again in {delay:g} s",
        )
        log.error("%s", problem, exc_info=fault if first else None)


async def outcome(part: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Run `part` in a task of its own, so that its cancellation is not taken for the caller's.

    Returns what ended it, None if it returned. When the caller is cancelled, raises what the part ended with then.
    """
    task = awaited(part())
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()
        raise
    try:
        task.result()
    except (Exception, asyncio.CancelledError) as fault:  # noqa: BLE001 - of whatever kind it is
        return fault
    return None


def _kind(fault: BaseException) -> tuple[str, ...]:
    """The type and the place of a fault."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    frames = extract_tb(fault.__traceback__)
    return (type(fault).__name__, f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "")
