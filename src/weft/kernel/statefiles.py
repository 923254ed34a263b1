"""Files and directories of our own state, which somebody else may have spoilt.

State is a hint: a file is read only if it is regular, ours and not larger than we write. Anything else is set aside
under another name, and weft goes on without it. Nothing here follows a link in the last part of a path, waits for a
fifo's other end, or changes what belongs to another user.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from weft.model.errors import ConfigError, Problem

Path = str | os.PathLike[str]
Say = Callable[[Problem], None]

# What is short while a file is read, and says nothing of the file.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# What opening something else than a file gives: a link; a socket or a fifo without a reader; a directory, for writing.
NO_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
# What a disk or its server may get over by itself: no fault of the path.
PASSING: Final = SHORTAGES | {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN),
    *(errno.EHOSTDOWN, errno.ENOLCK, errno.EAGAIN),
}
# In the names of what was set aside: `identity.json.spoilt-3`.
ASIDE: Final = ".spoilt-"
_SET_ASIDE: Final = re.compile(r"\.spoilt-([0-9]{1,9})$")
_KEPT: Final = 8  # in one directory
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# O_NONBLOCK: to open a fifo in the place of a file must not hang; for files it means nothing.
_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Spoilt(OSError):
    """Under a name of ours lies no regular file, another user's, or one that is too large."""


def read(path: Path, *, limit: int) -> bytes:
    """Raises `FileNotFoundError`, `Spoilt`, or the kernel's `OSError`."""
    with os.fdopen(open_safely(path, os.O_RDONLY), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Spoilt(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return content


def open_safely(path: Path, flags: int) -> int:
    """Return a descriptor. Raises like `read`."""
    try:
        fd = os.open(path, flags | _SAFELY, 0o600)
    except OSError as error:
        if error.errno in NO_FILE:
            raise Spoilt(error.errno, "not a regular file", str(path)) from None
        raise
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        wrong = "not a regular file"
    elif seen.st_uid not in _us():
        wrong = f"belongs to user {seen.st_uid}"
    else:
        return fd
    os.close(fd)
    raise Spoilt(errno.EINVAL, wrong, str(path))


def problem(path: Path, reason: str, kept: str) -> Problem:
    """`kept` is where the file was put, if it was."""
    hint = f"It is kept as {kept}" if kept else ""
    seen = f"cannot be read ({reason}): going on without it"
    return Problem(code="STATE-001", where=str(path), seen=seen, hint=hint)


def set_aside(path: Path, *, directory: int | None = None) -> str:
    """Rename what lies under a name of ours; returns the new name, empty if that is impossible.

    A `path` may be relative to the descriptor `directory`. A directory keeps the latest few.
    """
    parent, name = os.path.split(path)
    try:
        fd = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return ""
    try:
        kept = sorted((int(match[1]), each) for each in os.listdir(fd) if (match := _SET_ASIDE.search(each)))
        fresh = f"{name}{ASIDE}{kept[-1][0] + 1 if kept else 1}"
        os.rename(name, fresh, src_dir_fd=fd, dst_dir_fd=fd)
        with suppress(OSError):
            for _, old in kept[: max(0, len(kept) + 1 - _KEPT)]:
                _remove(old, fd)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return fresh


def _remove(name: str, directory: int) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        from shutil import rmtree  # late: hardly ever

        rmtree(name, ignore_errors=True, dir_fd=directory)


@contextmanager
def made_for_a_trial(directory: str) -> Iterator[bool]:
    """Make a missing directory, with its parents, for the block; gives whether it was missing.

    Raises `OSError` if it cannot be made, after removing its parents again.
    """
    missing = []
    above = os.path.abspath(directory)
    while not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    with ExitStack() as undo:
        for each in reversed(missing):
            os.mkdir(each, 0o700)
            undo.callback(_remove_empty, each)
        if not stat.S_ISDIR(os.stat(directory).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        yield bool(missing)


def _remove_empty(directory: str) -> None:
    with suppress(OSError):  # somebody else uses it by now
        os.rmdir(directory)


def private_directory(path: Path, say: Say, *, below: bool = False) -> int:
    """Open a directory that only we may change, made if missing (0700); returns a descriptor.

    One of ours that others may write to is corrected (STATE-003). With `below` it lies in a directory of ours, where
    anything else under its name is set aside (STATE-001). Otherwise another user's is refused (`ConfigError`,
    STATE-003): its owner would decide what weft believes. `OSError` when it cannot be made or opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if below else 0)
    try:
        fd = _opened_or_made(path, flags)
        owner = os.fstat(fd).st_uid
    except NotADirectoryError:  # a link too
        if not below:
            raise
        fd, owner = -1, -1
    if owner not in _us():
        if fd >= 0:
            os.close(fd)
        seen = "not a directory" if owner < 0 else f"a directory of user {owner}"
        if not below:
            hint = "Give weft a directory of root's, or remove this one"
            raise ConfigError(Problem(code="STATE-003", where=str(path), seen=seen, expected="root's", hint=hint))
        say(problem(path, seen, set_aside(path)))
        fd = _opened_or_made(path, flags)
    _close_to_others(fd, path, say)
    return fd


def _opened_or_made(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(parent):
            os.close(_opened_or_made(parent, flags))
        with suppress(FileExistsError):  # somebody else has made it just now
            os.mkdir(path, 0o700)
        return os.open(path, flags)


def _close_to_others(fd: int, path: Path, say: Say) -> None:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if not mode & _OTHERS_WRITE:
        return
    seen = f"mode {mode:04o}: other users could write there"
    try:
        os.fchmod(fd, mode & ~_OTHERS_WRITE)
        hint = "It is closed to them now; what they may have put there since is not believed if it is theirs"
    except OSError as error:
        hint = f"It cannot be closed to them: {error.strerror}"
    say(Problem(code="STATE-003", where=str(path), seen=seen, hint=hint))


def _us() -> tuple[int, int]:
    return 0, os.geteuid()
