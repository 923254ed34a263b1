"""subnet.env on disk: written when what it says changes, and put back when somebody else changes or deletes it.

Looked at once a second, not watched: a watch ends with the directory, which others may replace as well.
"""

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.beside.threads import beside
from weft.daemon.disk.files import write_atomically
from weft.model.errors import Problem
from weft.plan.backoff import Backoff

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0
_MODE: Final = 0o644
_KEY: Final = ("file",)


class SubnetFile:
    """Keeps the file at `path` saying what `content` returns; one thread at a time asks it."""

    def __init__(self, path: Path, content: Callable[[], bytes], *, clock: Callable[[], float]) -> None:
        self.problem: Problem | None = None  # why the file is not as it should be now
        self._path = path
        self._content = content
        self._clock = clock
        self._backoff = Backoff()
        self._changed = asyncio.Event()
        self._turn = threading.Lock()
        self._written = b""
        self._mark: tuple[int, ...] = ()  # of the file when `_written` was last read in it

    def renew(self) -> None:
        """Have `keep` write it: what it says has changed. Nothing waits for that."""
        self._changed.set()

    async def write(self) -> None:
        """Write it, trying again until that works: without it no pod can start."""
        while True:
            try:
                await beside(self._write)
            except OSError as error:
                problem = _unwritable(self._path, error)
                if self.problem != problem:
                    log.error("%s", problem)  # noqa: TRY400 - the problem says all there is
                self.problem = problem
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self.problem = None
                return

    async def keep(self) -> None:
        """Keep a written file right; less often while others go on changing it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._changed.wait()
            if self._changed.is_set():
                self._changed.clear()
                await self.write()
                continue
            done = await beside(self._done_by_others)
            if not done:
                self.problem = None
            elif not self._backoff.wait(_KEY, self._clock()):
                await self.write()
                log.warning("LEASE-001: put back %s, which %s", self._path, done)
            else:
                self.problem = Problem(
                    code="LEASE-001",
                    where=str(self._path),
                    seen=f"another program keeps changing it; now it {done}",
                    expected="one program that writes it",
                    hint="Find it, or give weftd another --subnet-file",
                )
                if self._backoff.announce(_KEY):
                    log.warning("%s; putting it back less often", self.problem)

    def _write(self) -> None:
        with self._turn:
            content = self._content()
            write_atomically(self._path, content, _MODE, sync=True)
            self._written = content
            self._mark = ()  # the next look reads it: another program may be quicker than a mark made here

    def _done_by_others(self) -> str:
        """What another program did to the file; empty if nothing that matters."""
        with self._turn:
            try:
                found = os.lstat(self._path)
                if _mark(found) == self._mark:
                    return ""
                if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != _MODE:
                    return f"became {stat.filemode(found.st_mode)}"
                if found.st_size != len(self._written) or _read(self._path, found.st_size) != self._written:
                    return "was changed"
            except OSError as error:
                return "was deleted" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            self._mark = _mark(found)
            return ""


def _mark(found: os.stat_result) -> tuple[int, ...]:
    """What changes with each change of a file."""
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size, found.st_mode


def _read(path: Path, size: int) -> bytes:
    """Read a file that may have become a pipe, which must not be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> Problem:
    from shlex import quote  # late: hardly ever

    parent = quote(str(path.parent))
    return Problem(
        code="LEASE-001",
        where=str(path),
        seen=f"cannot be written: {error.strerror}",
        expected="a file that weftd may write, on a file system with room",
        hint=f"Trying again; until then no pod can start. Look at `ls -ld {parent}` and `df {parent}`,"
        " or give weftd another --subnet-file",
    )
