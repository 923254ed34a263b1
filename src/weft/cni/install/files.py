"""Files that are there whole or not at all, and last: under a temporary name, to the disk, then by a rename.

What others have put under a name is no hindrance: a directory makes room, anything else is replaced.
"""

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


def put(path: Path, content: bytes, *, mode: int, owner: tuple[int, int] = (-1, -1)) -> None:
    """The same is not written again: a runtime reads its networks again whenever one of their files changes."""
    if _is_there(path, content, mode, owner):
        return
    fresh = path.with_name(f".weft-{path.name}.new")
    with ExitStack() as undo:
        undo.callback(remove, fresh)
        remove(fresh)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            with suppress(OSError):
                os.fchown(fd, *owner)
                os.fchmod(fd, mode)  # a new owner clears the setuid bit
            file.write(content)
            file.flush()
            os.fsync(fd)
        rename(fresh, path)


def _is_there(path: Path, content: bytes, mode: int, owner: tuple[int, int]) -> bool:
    """Also that it has no second name, by which others could change it."""
    uid, gid = owner
    wanted = (stat.S_IFREG | mode, 1, os.geteuid() if uid < 0 else uid, os.getegid() if gid < 0 else gid)
    with suppress(OSError):
        seen = path.lstat()
        if (seen.st_mode, seen.st_nlink, seen.st_uid, seen.st_gid) == wanted:
            return path.read_bytes() == content
    return False


def put_link(path: Path, target: str) -> None:
    fresh = path.with_name(f".weft-{path.name}.new")
    remove(fresh)
    fresh.symlink_to(target)
    rename(fresh, path)


def rename(path: Path, target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        remove(target)
    path.rename(target)


def remove(path: Path) -> None:
    """Remove what may be there. A directory that is not empty is somebody's: it gets a number behind its name."""
    try:
        is_directory = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_directory:
        with suppress(FileNotFoundError):
            path.unlink()
        return
    try:
        path.rmdir()
    except OSError:
        path.rename(free(path))


def free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def lasting(directory: Path) -> Iterator[None]:
    """Have the names that are changed inside on the disk."""
    yield
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
