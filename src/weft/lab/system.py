"""System calls that Python lacks (mounts), whole files, what /proc tells of a process, and time stamps of packets.

Nothing else in weft mounts anything. Each call raises `OSError`.
"""

import ctypes
import os
import socket
import struct
import time
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
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h
ANCILLARY: Final = 64  # bytes; room for the time
_TIMESPEC: Final = struct.Struct("@qq")


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """`kind` is the file system's name, empty to bind or to change propagation."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data.encode() or None)
    checked(result, target)


def unmount(target: str) -> None:
    """At once for new users, later for those that still use it."""
    checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), target)


def write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(path)


def start_time(pid: int, proc: int | None = None) -> int | None:
    """In the kernel's ticks since boot (proc(5), stat, field 22); None if the process is gone.

    `proc` is an open /proc, for when this path may soon be another pid namespace's.
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
    """In its own pid namespace (proc(5), status, NSpid); 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])


def arrival(ancillary: list[tuple[int, int, bytes]]) -> int:
    """In nanoseconds since 1970, of a socket with SO_TIMESTAMPNS."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
