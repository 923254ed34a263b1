"""Starts processes in a lab: store and daemons that log to files, plugins that answer; and waits for files.

The supervisor is the first process of its pid namespace, so it inherits orphans; those of a node go to the node's first
process (`filesystem.INIT`). Children end with the lab: the kernel kills all of a pid namespace, and of those below,
with its first process. Their numbers here are those of the lab's namespace.
"""

import asyncio
import ctypes
import os
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from weft.cni.runtime.library import Ran
from weft.lab.inside.namespaces import Inside, Room
from weft.model.errors import Problem, Unavailable
from weft.model.value import Value

# linux/inotify.h
_IN_CLOSE_WRITE: Final = 0x8
_IN_MOVED_TO: Final = 0x80
_EVENT: Final = struct.Struct("=iIII")

_libc: Final = ctypes.CDLL(None, use_errno=True)
_PATIENCE: Final = 30.0  # seconds
_LOOK_AGAIN: Final = 0.02  # seconds; nothing tells us when
_TAIL: Final = 600  # bytes of a log that an error shows


class Child(Value):
    """`ended` gets its exit status: negative for a signal."""

    pid: int
    ended: asyncio.Future[int]

    def signal(self, number: int) -> None:
        """To the process and its group, unless it has ended."""
        if not self.ended.done():
            os.killpg(self.pid, number)


class Stdio(Value):
    stdin: int = subprocess.DEVNULL
    stdout: int = subprocess.DEVNULL
    stderr: int = subprocess.DEVNULL


class Children:
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
        """By default as leader of its own session. `OSError` if it cannot be executed.

        It runs in `directory`, or in / if the room lacks it. Without `session` the command must become a leader by
        itself, or no signal reaches it. Do not cancel a start: its process would be lost.
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


class Processes:
    """They have the lab's environment. `logs` is an open directory."""

    def __init__(self, children: Children, *, environ: Mapping[str, str], logs: int) -> None:
        self.children = children
        self.environ = dict(environ)
        self._logs = logs

    async def logged(self, name: str, room: Room | None, command: Sequence[str], **variables: str) -> Child:
        """Its output goes to the log `name`."""
        log = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=self._logs)
        try:
            stdio = Stdio(stdout=log, stderr=log)
            return await self.children.start(room, command, environ=self.environ | variables, stdio=stdio)
        finally:
            os.close(log)

    def last_words(self, name: str) -> str:
        """The end of a log, in whole lines if it has any; "" without such a log."""
        try:
            log = os.open(f"{name}.log", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._logs)
        except FileNotFoundError:  # it is a pod's, which kubectl shows
            return ""
        try:
            start = max(0, os.fstat(log).st_size - _TAIL)
            text = os.pread(log, _TAIL, start).decode(errors="replace").strip()
            return text.partition("\n")[2] or text if start else text
        finally:
            os.close(log)

    def leave(self, name: str, text: str) -> None:
        """Write a file that only this user may read into the lab's directory on the machine."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(f"../{name}", flags, 0o600, dir_fd=self._logs), "w") as file:
            file.write(text)

    async def answer(
        self, room: Room | None, command: Sequence[str], variables: Mapping[str, str], stdin: bytes
    ) -> Ran:
        streams = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdin", "stdout", "stderr")]
        try:
            os.pwrite(streams[0], stdin, 0)
            stdio = Stdio(stdin=streams[0], stdout=streams[1], stderr=streams[2])
            child = await self.children.start(room, command, environ=self.environ | dict(variables), stdio=stdio)
            status = await child.ended
            return Ran(exit=status, stdout=_content(streams[1]), stderr=_content(streams[2]))
        finally:
            for stream in streams:
                os.close(stream)


async def listens(child: Child, path: str, name: str) -> None:
    """Wait for a process's socket at a path that it sees. `Unavailable` if it ends instead, or never listens."""
    where = f"/proc/{child.pid}/root{path}"
    try:
        async with asyncio.timeout(_PATIENCE):
            while not os.access(where, os.F_OK):
                if child.ended.done():
                    raise _mute(name, f"it ended with status {child.ended.result()}")
                await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        raise _mute(name, f"it does not listen at {path} for {_PATIENCE:.0f} s") from None


def _mute(name: str, seen: str) -> Unavailable:
    return Unavailable(Problem("LAB-002", name, seen))


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


class Arrivals:
    """Tells when files are written or renamed into directories (inotify(7)). One per event loop is enough."""

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._wanted: dict[tuple[int, bytes], asyncio.Event] = {}
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def expect(self, directory: int, name: str) -> asyncio.Event:
        """Set once `name` is in the open `directory`."""
        path = f"/proc/self/fd/{directory}".encode()
        watch = _libc.inotify_add_watch(self._descriptor, path, _IN_CLOSE_WRITE | _IN_MOVED_TO)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        event = self._wanted.setdefault((watch, name.encode()), asyncio.Event())
        if name in os.listdir(directory):
            event.set()
        return event

    def _read(self) -> None:
        for watch, name in _events(os.read(self._descriptor, 1 << 16)):
            event = self._wanted.pop((watch, name), None)
            if event is not None:
                event.set()


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        watch, _, _, length = _EVENT.unpack_from(data, start)
        start += _EVENT.size
        yield watch, data[start : start + length].rstrip(b"\0")
        start += length
