"""Packets of a node's links: a socket opened in the node by the supervisor, read by whoever asked for it."""

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from weft.lab.world import World
from weft.model.errors import ConfigError, Problem

SNAPLEN: Final = 1 << 18
_ETH_P_ALL: Final = 3  # linux/if_ether.h
_OUTGOING: Final = 4  # linux/if_packet.h, PACKET_OUTGOING
_SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h
_SO_RCVBUFFORCE: Final = 33
_BUFFER: Final = 8 << 20  # bytes; a burst must not be lost before it is read
_TIMESPEC: Final = struct.Struct("@qq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A frame seen on a link at a time since 1970. No frame is longer than SNAPLEN."""

    link: str
    data: bytes
    nanoseconds: int
    inbound: bool


async def open_socket(world: World, node: str, link: str) -> socket.socket:
    """Open a packet socket on one link of a node, or with "" on all."""
    running = world.node(node)
    links = [info.name for info in running.rtnl.links()]
    if link and link not in links:
        where, expected = f"{node}, link {link}", f"one of {', '.join(links)}"
        raise ConfigError(Problem(code="LAB-001", where=where, seen="no such link", expected=expected))
    return await world.inside.run(running.room, partial(_open, link))


def _open(link: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:  # in a user namespace the machine's limit holds
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.bind((link, _ETH_P_ALL))  # only now does it get packets, and of this link alone
    except BaseException:
        sock.close()
        raise
    return sock


class Reader:
    """Reads a packet socket, in whatever process."""

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
                data, ancillary, _, address = self._socket.recvmsg(SNAPLEN, 64)
            except TimeoutError:
                return
            # Python asks the socket's own namespace for the link's name.
            name, _, kind, _, _ = address
            yield Packet(link=name, data=data, nanoseconds=_time(ancillary), inbound=kind != _OUTGOING)


def _time(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
