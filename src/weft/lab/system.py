"""The system calls for mounts that Python lacks, and what /proc alone tells of a process.

Nothing else in weft mounts anything. Each call raises `OSError` with the kernel's errno.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

from weft.kernel.namespaces import checked

# linux/mount.h
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MS_SLAVE: Final = 0x80000
MS_SHARED: Final = 0x100000
_MNT_DETACH: Final = 0x2

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Mount `source` on `target`. `kind` is the file system's name, empty to bind or to change propagation."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data.encode() or None)
    checked(result, target)


def unmount(target: str) -> None:
    """Take the mount at `target` away, at once for new users and later for those that still use it."""
    checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), target)


def start_time(pid: int, proc: int | None = None) -> int | None:
    """Return when a process began, in the kernel's ticks since boot (proc(5), stat, field 22); None if it is gone.

    `proc` is an open /proc, for when the one at this path may soon be that of another pid namespace.
    """
    path = f"/proc/{pid}/stat" if proc is None else f"{pid}/stat"
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as file:
            stat = file.read()
    except OSError:
        return None
    # The name before it, in brackets, may hold anything.
    return int(stat.rpartition(")")[2].split()[19])


def number_inside(pid: int) -> int:
    """Return the number of a process in its own pid namespace (proc(5), status, NSpid); 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])
