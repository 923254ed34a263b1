"""Opens packet sockets in nodes; the command that asked for one reads it (`packets`)."""

import socket
from functools import partial
from typing import Final

from weft.kernel.buffers import widen
from weft.lab.inside.cluster import World
from weft.lab.stamps import SO_TIMESTAMPNS
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of

_ETH_P_ALL: Final = 3  # linux/if_ether.h
_BUFFER: Final = 8 << 20  # bytes; a burst must not be lost before it is read


async def open_socket(world: World, where: str, link: str) -> socket.socket:
    """Open a packet socket on one link of a node or pod, or with "" on all."""
    return await world.inside.run(world.room(where), partial(_open, where, link))


def _open(where: str, link: str) -> socket.socket:
    # Protocol 0 hears nothing until it is bound: not a packet of another link gets in.
    everything = socket.htons(_ETH_P_ALL)
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0 if link else everything)
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        widen(sock, _BUFFER)
        if link:
            _bind(sock, where, link)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind(sock: socket.socket, where: str, link: str) -> None:
    links = {name: index for index, name in socket.if_nameindex()}
    if link not in links:
        seen, expected = f"no link {link!r}", one_of(links, link)
        raise ConfigError(Problem(code="LAB-002", where=where, seen=seen, expected=expected))
    sock.bind((link, _ETH_P_ALL))
