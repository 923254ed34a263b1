"""Has the C library keep little memory that is free (mallopt(3)).

Left alone, glibc raises both limits to the largest block that was ever freed, up to 32 MiB: then what a start needs for
a moment, pages of leases and answers of the kernel, stays with the daemon for good. With 5,000 peers that is 3 MB.
And each thread gets memory of its own to share out, in which 0.4 MB more are free; threads of Python wait for each
other anyway.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_BYTES: Final = 128 << 10  # glibc's own values at the start, which no longer move once they are set


def give_back() -> None:
    """Keep the limits where they are, and one heap. Does nothing where the C library has none of this (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _BYTES)
        mallopt(_M_TRIM_THRESHOLD, _BYTES)
        mallopt(_M_ARENA_MAX, 1)
