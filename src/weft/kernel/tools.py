"""Runs the host's programs (nft, iptables): never a shell, data on stdin, a time limit, no blocking."""

import asyncio
import errno
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

from weft.beside import programs
from weft.beside.programs import Ran
from weft.model.errors import Problem

# The first is only there in a copy of weft that was put on a node (cni/install/nodepart.py), with programs of its own.
_DIRECTORIES: Final = (
    *(each for each in (f"{sys.prefix}/programs",) if os.path.isdir(each)),  # noqa: PTH112 - without imports
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
)
SEARCH_PATH: Final = ":".join(_DIRECTORIES)
# iptables waits for the lock of another one (`--wait`); kube-proxy with many services holds it for seconds.
TIMEOUT_SECONDS: Final = 20.0

# Starting a program takes the loop a millisecond; a dozen at once would be felt.
_AT_ONCE: Final = 2
_REMEMBERED: Final = 64
MOST: Final = 64 << 20  # bytes of a listing: kube-proxy's rules for thousands of Services take 20 MB
_MESSAGE_LENGTH: Final = 500


class ToolError(OSError):
    """A program is missing (ENOENT), took too long (ETIMEDOUT) or refused (EIO, its own words)."""


class OwnProcesses:
    """The programs that we run, so that the monitor knows our own changes.

    A process counts until the monitor has read everything from before its end: the kernel queues the notice before the
    process can exit, and after that its number may be someone else's.
    """

    def __init__(self) -> None:
        self._running = {os.getpid()}
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)

    def __contains__(self, pid: int) -> bool:
        return pid in self._running or pid in self._ended

    def started(self, pid: int) -> None:
        self._running.add(pid)

    def ended(self, pid: int) -> None:
        self._running.discard(pid)
        self._ended.append(pid)

    def caught_up(self) -> None:
        """Forget those that have ended: all their notices have been read."""
        self._ended.clear()


class Tools:
    """Programs found on `search` (as PATH), each run at most `timeout` seconds."""

    def __init__(self, *, search: str = SEARCH_PATH, timeout: float = TIMEOUT_SECONDS) -> None:
        self.own = OwnProcesses()
        self._search = search
        self._timeout = timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def has(self, name: str) -> bool:
        """Packages come and go while a daemon runs."""
        return find(name, self._search) is not None

    async def run(self, name: str, arguments: Sequence[str], stdin: str = "") -> str:
        """Return the output. Raises `ToolError`."""
        path = find(name, self._search)
        if path is None:
            raise ToolError(errno.ENOENT, str(self.missing(name)))
        async with self._turns:
            ran = await self._run(path, arguments, stdin.encode())
        if ran.status:
            words = " ".join(ran.err.decode(errors="replace").split())[:_MESSAGE_LENGTH]
            raise ToolError(errno.EIO, f"{path}: {words or f'exit {ran.status}'}")
        return ran.out.decode(errors="surrogateescape")

    async def _run(self, path: str, arguments: Sequence[str], data: bytes) -> Ran:
        known: list[int] = []

        def started(pid: int) -> None:
            # No data is sent before the number is recorded, so no change is made by a process not yet known.
            self.own.started(pid)
            known.append(pid)

        command, seconds = (path, *arguments), self._timeout
        try:
            return await programs.run(
                command, environ=None, text=data, seconds=seconds, most=MOST, apart=True, started=started
            )
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise ToolError(errno.ETIMEDOUT, f"{path}: no answer within {seconds:g} s") from None
            raise ToolError(error.errno or errno.EIO, f"{path}: {error.strerror}") from None
        finally:
            for pid in known:
                self.own.ended(pid)

    def missing(self, name: str) -> Problem:
        return Problem(
            code="HOST-002",
            where=name,
            seen="program not found",
            expected=f"in one of {self._search}",
            hint="Install the package that brings it (nftables or iptables), or choose the other by EnableNFTables.",
        )


def find(name: str, search: str) -> str | None:
    """Not by `shutil`, which imports three compressors: half a megabyte in each daemon."""
    paths = (f"{directory}/{name}" for directory in search.split(":"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)  # noqa: PTH113
