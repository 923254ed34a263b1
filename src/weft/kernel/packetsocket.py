"""Packet sockets: frames of one link of a namespace, or of all its links, and how many were lost unread (packet(7))."""

import ctypes
import socket
import struct
from typing import Final

from weft.kernel.rtnetlink.netlink import widen

OTHERHOST: Final = 3  # linux/if_packet.h: of a frame that is for the MAC of another

_ETH_P_ALL: Final = 3  # linux/if_ether.h
_SO_ATTACH_FILTER: Final = 26  # asm-generic/socket.h
_SOL_PACKET: Final = 263  # linux/socket.h
_PACKET_STATISTICS: Final = 6  # linux/if_packet.h
_STATISTICS: Final = struct.Struct("=II")  # struct tpacket_stats: all, and those of them that found no room


def listen(link: str = "", *, room: int, longest: int = 0, shown: int = 0) -> socket.socket:
    """Open a non-blocking socket in the thread's namespace, with `room` for so many bytes. Raises `OSError`.

    With `longest`, frames of more bytes are left out, and of the others `shown` bytes are kept.
    """
    # Protocol 0 hears nothing until it is bound: not a packet of another link gets in.
    sock = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0 if link else socket.htons(_ETH_P_ALL)
    )
    try:
        sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
        if longest:
            _filter(sock, longest, shown)
        widen(sock, room)
        if link:
            sock.bind((link, _ETH_P_ALL))
    except BaseException:
        sock.close()
        raise
    return sock


def dropped(sock: socket.socket) -> int:
    """Return how many frames the kernel could not keep until they were read, since the last call."""
    return int(_STATISTICS.unpack(sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size))[1])


def _filter(sock: socket.socket, longest: int, shown: int) -> None:
    # linux/filter.h: load the length; return nothing of a longer frame, else so many bytes.
    steps = ((0x80, 0, 0, 0), (0x25, 0, 1, longest), (0x06, 0, 0, 0), (0x06, 0, 0, shown))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(steps), ctypes.addressof(program)))
