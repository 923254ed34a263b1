"""Has the C library give freed memory back (mallopt(3)).

Left alone, glibc raises both limits to the largest block that was ever freed, up to 32 MiB: then what a start needs for
a moment, pages of leases and answers of the kernel, stays with the daemon for good. With 5,000 peers that is 3 MB.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_BYTES: Final = 128 << 10  # glibc's own values at the start, which no longer move once they are set


def give_back() -> None:
    """Keep the limits where they are. Does nothing where the C library has none (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _BYTES)
        mallopt(_M_TRIM_THRESHOLD, _BYTES)
