"""Gives away what a process needs no more, so that what it reads from strangers can do little with it (landlock(7))."""

import ctypes
import os
import struct
from typing import Final

_CREATE: Final = 444  # of all architectures: landlock_create_ruleset, and landlock_restrict_self
_RESTRICT: Final = 446
_VERSION: Final = 1  # LANDLOCK_CREATE_RULESET_VERSION
# linux/landlock.h: rights on files by the first version that has so many, on TCP, and what reaches beyond the process.
_FILES: Final = {1: 13, 2: 14, 3: 15, 5: 16}
_TCP_SINCE, _TCP = 4, 0x3
_SCOPES_SINCE, _SCOPES = 6, 0x3  # abstract Unix sockets of others, and signals
_RULESET: Final = struct.Struct("=QQQ")  # struct landlock_ruleset_attr
_PR_SET_NO_NEW_PRIVS: Final = 38


def lock_out_of_files() -> bool:
    """Let this thread, and what it starts, open no file by name any more, nor listen or connect by TCP, nor execute.

    What is open stays open. False where the kernel has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, 0, _VERSION)
    if version < 1:
        return False
    files = max(number for since, number in _FILES.items() if since <= version)
    rules = _RULESET.pack(
        (1 << files) - 1, _TCP if version >= _TCP_SINCE else 0, _SCOPES if version >= _SCOPES_SINCE else 0
    )
    size = 8 * (1 + (version >= _TCP_SINCE) + (version >= _SCOPES_SINCE))
    ruleset = libc.syscall(_CREATE, rules, size, 0)
    if ruleset < 0:
        return False
    try:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT, ruleset, 0) == 0)
    finally:
        os.close(ruleset)
