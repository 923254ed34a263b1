"""Has the C library give back memory that is free (mallopt(3)).

glibc raises its limits to the largest block that was freed, and gives each thread an arena: with 5,000 peers 3 MB of a
start would stay.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_BYTES: Final = 128 << 10  # glibc's own values at the start, which no longer move once they are set


def give_back() -> None:
    """Does nothing with musl, which has no such limits."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _BYTES)
        mallopt(_M_TRIM_THRESHOLD, _BYTES)
        mallopt(_M_ARENA_MAX, 1)
