"""A directory in which files cannot be opened and the attempt does not end, as on NFS whose server is gone.

By permission events of fanotify(7) that are not answered: the kernel holds whatever opens a file there, and a signal
that kills ends that, as for NFS. Needs CAP_SYS_ADMIN; the kernel lets go when the listener's descriptor is closed.
"""

import ctypes
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FAN_CLASS_CONTENT: Final = 0x4
_FAN_CLOEXEC: Final = 0x1
_FAN_MARK_ADD: Final = 0x1
_FAN_OPEN_PERM: Final = 0x1_0000
_FAN_EVENT_ON_CHILD: Final = 0x0800_0000
_AT_FDCWD: Final = -100


@contextmanager
def hung(directory: Path) -> Iterator[Callable[[float], bool]]:
    """Let files in `directory` hang; yields what tells whether something does within so many seconds.

    The test itself must not open anything there meanwhile.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    listener = _checked(libc.fanotify_init(_FAN_CLASS_CONTENT | _FAN_CLOEXEC, 0))
    try:
        events = ctypes.c_uint64(_FAN_OPEN_PERM | _FAN_EVENT_ON_CHILD)
        _checked(libc.fanotify_mark(listener, _FAN_MARK_ADD, events, _AT_FDCWD, bytes(directory)))
        yield lambda seconds: bool(select.select([listener], [], [], seconds)[0])
    finally:
        os.close(listener)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
