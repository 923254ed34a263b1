"""The processes of a lab. The supervisor is the first process of its pid namespace, so it inherits orphans.

Those of nodes and pods go to the node's own first process: `filesystem.INIT`. Children are started by `Inside`'s
thread in the namespaces they belong to and end with the lab: the kernel kills all of a pid namespace, and of those
below, with its first process. Their numbers here are those of the lab's namespace; in a node they have others.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.lab.inside.namespaces import Inside, Room
from weft.model.value import Value


class Child(Value):
    """A process of ours. `ended` gets its exit status: negative for the signal that ended it."""

    pid: int
    ended: asyncio.Future[int]

    def signal(self, number: int) -> None:
        """Send a signal to the process and those that it started in its group, unless it has ended."""
        if not self.ended.done():
            os.killpg(self.pid, number)


class Stdio(Value):
    """Descriptors for a child's standard streams."""

    stdin: int = subprocess.DEVNULL
    stdout: int = subprocess.DEVNULL
    stderr: int = subprocess.DEVNULL


class Children:
    """Starts processes and learns of their end."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}
        self._starting = 0
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    async def start(
        self,
        room: Room | None,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        stdio: Stdio | None = None,
        session: bool = True,
        directory: str = "/",
    ) -> Child:
        """Start `command` in `room`, by default as leader of its own session. `OSError` if it cannot be executed.

        It runs in `directory`, or in / where the room has no such one.

        Without `session` the command must become a leader by itself, or no signal reaches it. A start must not be
        cancelled half-way: its process would be no part's.
        """
        streams = stdio or Stdio()

        def spawn() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                env=environ,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                start_new_session=session,
                cwd=directory if Path(directory).is_dir() and os.access(directory, os.X_OK) else "/",
            )

        # While a start is under way nothing is reaped: its process could end before we know that it is ours.
        self._starting += 1
        try:
            process = await self._inside.run(room, spawn)
            ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._running[process.pid] = process, ended
        finally:
            self._starting -= 1
            if not self._starting:
                self._reap()
        return Child(pid=process.pid, ended=ended)

    def _reap(self) -> None:
        while not self._starting:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._running:
                continue  # somebody's orphan
            process, ended = self._running.pop(pid)
            process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for the pid once more
            if not ended.done():
                ended.set_result(process.returncode)
