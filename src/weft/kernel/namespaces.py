"""The system calls by which a thread changes its namespaces (setns(2), unshare(2)), which Python 3.11 lacks."""

import ctypes
import os
from typing import Final

# linux/sched.h
CLONE_FS: Final = 0x00000200
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

_libc: Final = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Give the calling thread namespaces of its own. `OSError`."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace that `descriptor` stands for. `OSError`."""
    _check(_libc.setns(descriptor, kind), "setns")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
