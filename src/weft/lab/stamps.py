"""The kernel's time stamps of packets: for the supervisor's own probes, and for captures in whatever process."""

import socket
import struct
import time
from typing import Final

SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h
ANCILLARY: Final = 64  # bytes; room for the time
_TIMESPEC: Final = struct.Struct("@qq")


def arrival(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return when the kernel took a packet in, in nanoseconds since 1970, of a socket with SO_TIMESTAMPNS."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
