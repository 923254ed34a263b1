"""Tasks of asyncio outside a task group: each is kept until it ends, which the loop does not do."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
_running: Final = set[asyncio.Task[Any]]()


def awaited(work: Awaitable[T]) -> asyncio.Task[T]:
    """Start a task whose caller reads its result."""
    task = asyncio.ensure_future(work)  # noqa: TID251 - the one place
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def watched(work: Awaitable[None]) -> asyncio.Task[None]:
    """Start a task whose result nobody reads: its fault is logged."""
    task = awaited(work)
    task.add_done_callback(_log_fault)
    return task


def _log_fault(task: asyncio.Task[None]) -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None:
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        _log.error(
            "INST-002 %s: a fault in weft ended it: %r. Report this, with the lines below", name, fault, exc_info=fault
        )
