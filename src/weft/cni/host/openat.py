"""Opening files below a root: openat2(2), which Python does not have.

With RESOLVE_IN_ROOT absolute symbolic links and `..` stay inside the root, with RESOLVE_NO_MAGICLINKS a link in /proc
cannot lead out.
"""

import ctypes
import errno
import os
from functools import cache
from typing import Final

# asm-generic/unistd.h: the same number on every architecture. linux/openat2.h: struct open_how and its flags.
_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_IN_ROOT: Final = 0x10
# A name on the way was renamed while `..` was resolved: the kernel asks to try again.
_ATTEMPTS: Final = 32

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_SIZE: Final = ctypes.sizeof(_OpenHow)


@cache
def _how(flags: int, mode: int) -> _OpenHow:
    return _OpenHow(flags | os.O_CLOEXEC, mode, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)


def encoded(path: str) -> bytes:
    """`OSError` (EINVAL) for what system calls would read as another path."""
    # As C strings the kernel would stop at NUL and open something else.
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path with a NUL byte", path)
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, "a path that is no text", path) from error


def openat2(root: int, path: str, flags: int, mode: int = 0) -> int:
    how = ctypes.addressof(_how(flags, mode))
    name = encoded(path)
    for _ in range(_ATTEMPTS):
        fd = _syscall(_SYS_OPENAT2, root, name, how, _HOW_SIZE)
        if fd >= 0:
            return int(fd)
        if ctypes.get_errno() != errno.EAGAIN:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def fs_magic(path: str) -> int:
    name = encoded(path)
    # struct statfs is 120 bytes on 64-bit machines and starts with f_type, a long.
    found = (ctypes.c_long * 64)()
    if _libc.statfs(name, found) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return found[0]


def open_root(path: str) -> int:
    """The caller closes it."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
