"""setns(2) and unshare(2), which Python 3.11 lacks, and capabilities of threads (capabilities(7), capset(2))."""

import ctypes
import os
import struct
from contextlib import suppress
from itertools import count, takewhile
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
_VERSION_3: Final = 0x20080522
_HEADER: Final = struct.Struct("=Ii")  # struct __user_cap_header_struct: version, pid (0: this thread)
_DATA: Final = struct.Struct("=IIIIII")  # two of struct __user_cap_data_struct: effective, permitted, inheritable
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4


def unshare(flags: int) -> None:
    checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
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
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


def held() -> int:
    """The effective capabilities as bits; 0 if the kernel does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0)), ctypes.create_string_buffer(_DATA.size)
    if libc.capget(header, data):
        return 0
    low, _, _, high, _, _ = _DATA.unpack(data.raw)
    return int(low | high << 32)


def keep(bits: int) -> None:
    """Drop all other capabilities of the calling thread for good, as far as the kernel allows."""
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel says no of the first number that it does not know.
    for number in takewhile(lambda number: libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0, count()):
        if not bits >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0))
    held = ctypes.create_string_buffer(_DATA.size)
    if libc.capget(header, held):
        return
    low, high = bits & 0xFFFFFFFF, bits >> 32
    effective, permitted, _, high_effective, high_permitted, _ = _DATA.unpack(held.raw)
    left = _DATA.pack(effective & low, permitted & low, 0, high_effective & high, high_permitted & high, 0)
    libc.capset(header, left)
