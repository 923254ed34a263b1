"""What runs in a lab besides pods' own commands: the store and daemons that log to files, plugins that answer."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final

from weft.cni.runtime.library import Ran
from weft.lab.inside.children import Child, Children, Stdio
from weft.lab.inside.namespaces import Room
from weft.model.errors import Problem, Unavailable

_PATIENCE: Final = 30.0  # seconds
_LOOK_AGAIN: Final = 0.02  # seconds; nothing tells us when
_TAIL: Final = 600  # bytes of a log that an error shows


class Processes:
    """Starts them with the lab's environment. `logs` is an open directory."""

    def __init__(self, children: Children, *, environ: Mapping[str, str], logs: int) -> None:
        self.children = children
        self.environ = dict(environ)
        self._logs = logs

    async def logged(self, name: str, room: Room | None, command: Sequence[str], **variables: str) -> Child:
        """Start a process, with more variables, whose output goes to the log `name`."""
        log = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=self._logs)
        try:
            stdio = Stdio(stdout=log, stderr=log)
            return await self.children.start(room, command, environ=self.environ | variables, stdio=stdio)
        finally:
            os.close(log)

    def last_words(self, name: str) -> str:
        """Return the end of the log `name`, in whole lines if it has any; nothing where there is no such log."""
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
        """Write a file that only this user may read into the lab's directory on the machine, beside that of logs."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(f"../{name}", flags, 0o600, dir_fd=self._logs), "w") as file:
            file.write(text)

    async def answer(
        self, room: Room | None, command: Sequence[str], variables: Mapping[str, str], stdin: bytes
    ) -> Ran:
        """Run a command to its end with more variables, and return what it wrote.

        The streams are files in memory: a program that writes a lot never waits for us.
        """
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
    """Wait until a process has made its socket at a path that it sees. `Unavailable` if it ends instead, or never does.

    `name` is that of its log, for people.
    """
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
    return Unavailable(Problem(code="LAB-002", where=name, seen=seen))


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
