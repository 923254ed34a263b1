"""The daemon's socket for CNI clients: a name in a directory that only root can enter, served by one daemon.

Never an abstract socket: a container in the host's network namespace could reach that.
"""

import errno
import os
import socket
import stat
from contextlib import ExitStack, suppress
from typing import Final, Self

from weft.cni.host.files import RootedFiles
from weft.cni.host.openat import open_root
from weft.cni.host.state import SOCKET
from weft.kernel.statefiles import PASSING, made_for_a_trial
from weft.model.errors import ConfigError, Problem, Unavailable

_BACKLOG: Final = 1024
_OTHERS: Final = 0o077


def examine(path: str) -> None:
    """Raise the `ConfigError` that `Endpoint.open` would, and leave nothing that was not there."""
    directory, _ = os.path.split(os.path.abspath(path))
    try:
        with made_for_a_trial(directory) as made, socket.socket(socket.AF_UNIX) as trial:
            if not made:
                _refuse_open(directory, os.stat(directory))
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            trial.bind(f"{path}.try")
            os.unlink(f"{path}.try")
    except OSError as error:
        if error.errno not in PASSING and error.errno != errno.EADDRINUSE:
            raise _unusable(directory, error.strerror or str(error)) from error


class Endpoint:
    def __init__(self, sock: socket.socket, *, name: ExitStack, held: ExitStack) -> None:
        self.socket = sock
        self._name = name
        self._held = held

    @classmethod
    def open(cls, path: str) -> Self:
        """Make the directory if needed, and listen.

        `Unavailable` (INST-001) when another daemon serves this socket; `ConfigError` (FLAG-001) when the directory is
        open to others, or when the path cannot be a socket's; `OSError` for what may pass, as a full disk.
        """
        directory, name = os.path.split(os.path.abspath(path))
        with ExitStack() as held:
            files = RootedFiles(_private_directory(directory, held))
            try:
                held.enter_context(files.lock(f"/{name}.lock", wait=False))
            except BlockingIOError as error:
                seen = "another daemon serves it"
                hint = "This one runs without CNI; give it another --cni-socket to have both."
                raise Unavailable(Problem(code="INST-001", where=path, seen=seen, hint=hint)) from error
            sock = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
            fresh = f"{path}.new"
            with suppress(FileNotFoundError):
                files.unlink(f"/{name}.new")
            try:
                sock.bind(fresh)
            except OSError as error:
                if error.errno in PASSING:
                    raise
                raise _unusable(path, error.strerror or str(error)) from error
            sock.listen(_BACKLOG)
            sock.settimeout(0)
            # A client that finds the name finds a server that listens, also while a daemon takes over.
            os.rename(fresh, path)
            named = held.enter_context(ExitStack())
            named.callback(files.unlink, f"/{name}")
            return cls(sock, name=named, held=held.pop_all())

    @classmethod
    def inherited(cls, fd: int, path: str) -> Self:
        """Take over what a client listens on under this name (client/standin.c), which ends without removing it."""
        with ExitStack() as held:
            sock = held.enter_context(socket.socket(fileno=fd))
            sock.set_inheritable(False)
            sock.listen(_BACKLOG)  # again: from now on clients see our credentials (unix(7), SO_PEERCRED)
            sock.settimeout(0)
            named = held.enter_context(ExitStack())
            named.callback(_remove, path, _inode(path))
            return cls(sock, name=named, held=held.pop_all())

    def hide(self) -> None:
        self._name.close()

    def close(self) -> None:
        self._held.close()


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def _remove(path: str, inode: int | None) -> None:
    if inode is not None and _inode(path) == inode:
        os.unlink(path)


def _private_directory(path: str, held: ExitStack) -> int:
    try:
        RootedFiles(_held_root("/", held)).makedirs(path, mode=0o700)
        fd = _held_root(path, held)
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise _unusable(path, error.strerror or str(error)) from error
    seen = os.fstat(fd)
    _refuse_open(path, seen)
    if stat.S_IMODE(seen.st_mode) & _OTHERS:
        os.chmod(path, 0o700)
    return fd


def _refuse_open(path: str, seen: os.stat_result) -> None:
    """Raise `ConfigError` for a directory that others may enter, and that is not one to be closed to them."""
    mode = stat.S_IMODE(seen.st_mode)
    if seen.st_uid == os.geteuid():
        if not mode & _OTHERS:
            return
        # Made for us and never used: a kubelet makes the directories of a pod's manifest, with mode 0755.
        if not mode & 0o022 and not os.listdir(path):
            return
    raise _unusable(path, f"a directory of uid {seen.st_uid}, mode {mode:04o}")


def _held_root(path: str, held: ExitStack) -> int:
    fd = open_root(path)
    held.callback(os.close, fd)
    return fd


def _unusable(path: str, seen: str) -> ConfigError:
    expected = "a socket in a directory of our own, mode 0700"
    return ConfigError(
        Problem(code="FLAG-001", where=f"--cni-socket: {path}", seen=seen, expected=expected, hint=f"Try {SOCKET}.")
    )
