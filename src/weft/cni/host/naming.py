"""Gives files their names: a new file is written under a name of ours first, then renamed (renameat2(2)).

All happens in one directory, by a descriptor of it.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2


def _rename(directory: int, old: str, new: str, how: int) -> int:
    """Call renameat2(2); returns 0 or the number of the error."""
    if _renameat2 is None:
        return errno.ENOSYS
    failed = _renameat2(directory, os.fsencode(old), directory, os.fsencode(new), how) != 0
    return ctypes.get_errno() if failed else 0


def give_name(directory: int, temporary: str, name: str) -> None:
    """Give a temporary file a name that no file may have: by rename, or by link where that cannot refuse."""
    error = _rename(directory, temporary, name, _RENAME_NOREPLACE)
    if error == errno.EEXIST:
        raise FileExistsError(error, os.strerror(error))
    if error:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        os.unlink(temporary, dir_fd=directory)


def put(directory: int, temporary: str, name: str) -> None:
    """Give a temporary file the name, in place of any other.

    To rename over a file makes ext4 write the new content to the disk first (mount option auto_da_alloc), 1.2 ms
    for the sake of a crash that none of these files outlives; to exchange the two and remove the old one 0.2 ms.
    """
    if not _rename(directory, temporary, name, _RENAME_NOREPLACE):
        return
    if _rename(directory, temporary, name, _RENAME_EXCHANGE):
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    try:
        os.unlink(temporary, dir_fd=directory)
    except OSError:  # a directory, which rename(2) would have refused
        _rename(directory, temporary, name, _RENAME_EXCHANGE)
        raise


@contextmanager
def temporary(parent: int, data: bytes, mode: int) -> Iterator[str]:
    """A file with this content and a name of ours, gone at the end unless it got another name or was removed."""
    name = f".weft-{os.urandom(8).hex()}"
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        try:
            os.fchmod(fd, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        yield name
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
