"""Gives sockets larger buffers than the machine's limit, where the kernel allows it (socket(7))."""

import socket
from typing import Final

_FORCED: Final = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}  # SO_SNDBUFFORCE, SO_RCVBUFFORCE: asm-generic/socket.h


def widen(sock: socket.socket, size: int, *options: int) -> None:
    """Set buffers in bytes: `SO_RCVBUF`, or the `options` that are named.

    Without CAP_NET_ADMIN in the first user namespace the limit holds (net.core.rmem_max and wmem_max).
    """
    for option in options or (socket.SO_RCVBUF,):
        try:
            sock.setsockopt(socket.SOL_SOCKET, _FORCED[option], size)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
