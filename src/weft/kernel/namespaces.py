"""setns(2) and unshare(2), which Python 3.11 lacks, and who is in a network namespace."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path
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
    """Give the calling thread namespaces of its own. Raises `OSError`."""
    checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace of this descriptor. Raises `OSError`."""
    checked(_libc.setns(descriptor, kind), "setns")


def processes(proc: Path) -> dict[int, str]:
    """The names of the processes of this network namespace, by their numbers."""
    own = (proc / "self/ns/net").readlink()
    found: dict[int, str] = {}
    for process in proc.iterdir():
        with suppress(OSError):  # it has ended
            if process.name.isdigit() and (process / "ns/net").readlink() == own:
                found[int(process.name)] = (process / "comm").read_text().strip()
    return found


def checked(result: int, what: str) -> None:
    """Raise the `OSError` of a failed call into libc."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
