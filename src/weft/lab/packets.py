"""Reads a packet socket that the supervisor has opened in a node, in whatever process."""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Final, Self

from weft.model.value import Value

SNAPLEN: Final = 1 << 18
_OUTGOING: Final = 4  # linux/if_packet.h, PACKET_OUTGOING
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h
ANCILLARY: Final = 64  # bytes; room for the time
_TIMESPEC: Final = struct.Struct("@qq")


class Packet(Value):
    """A frame seen on a link at a time since 1970. No frame is longer than SNAPLEN."""

    link: str
    data: bytes
    nanoseconds: int
    inbound: bool


class Reader:
    """The packets of one socket. A context manager that closes it."""

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor."""
        self._socket = socket.socket(fileno=descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def packets(self, *, until: float | None = None) -> Iterator[Packet]:
        """Yield packets as they come, until the clock (`time.monotonic`) shows `until`, or for ever."""
        while until is None or (left := until - time.monotonic()) > 0:
            self._socket.settimeout(None if until is None else left)
            try:
                data, ancillary, _, address = self._socket.recvmsg(SNAPLEN, ANCILLARY)
            except TimeoutError:
                return
            # Python asks the socket's own namespace for the link's name.
            name, _, kind, _, _ = address
            yield Packet(link=name, data=data, nanoseconds=arrival(ancillary), inbound=kind != _OUTGOING)


def arrival(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return when the kernel took a packet in, in nanoseconds since 1970, of a socket with SO_TIMESTAMPNS."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
