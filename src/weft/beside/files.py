"""Reads small files of others, which may be anything, or hang."""

import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

from weft.beside.threads import bounded

LARGEST: Final = 1 << 20  # bytes, unless a caller knows better
SECONDS: Final = 5.0

# What the machine lacks, or its disk; a file that is wrong has other errors.
_PASSING: Final = frozenset(
    (errno.EAGAIN, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
)
_SAFELY: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


async def read_small(path: Path | str, *, limit: int = LARGEST, seconds: float = SECONDS) -> bytes:
    """Raises `OSError`; ETIMEDOUT when the disk does not answer."""
    return await bounded(("file", str(path)), partial(read_now, path, limit=limit), seconds=seconds)


def read_now(path: Path | str, *, limit: int = LARGEST) -> bytes:
    """The same where a disk may be waited for; a fifo never is."""
    try:
        descriptor = os.open(path, _SAFELY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, "not a regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = b""
        while len(content) <= limit and (more := os.read(descriptor, limit + 1 - len(content))):
            content += more
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes")
    return content


def why(error: OSError) -> str:
    return error.strerror or str(error)


def may_pass(error: OSError) -> bool:
    """Whether the machine is at fault and not the file, so that reading it may succeed later."""
    return error.errno in _PASSING
