"""Opens packet sockets in nodes; whoever asked for one reads it (`packets`)."""

import socket
from functools import partial
from typing import Final

from weft.lab.packets import SO_TIMESTAMPNS
from weft.lab.world import World
from weft.model.errors import ConfigError, Problem

_ETH_P_ALL: Final = 3  # linux/if_ether.h
_SO_RCVBUFFORCE: Final = 33  # asm-generic/socket.h
_BUFFER: Final = 8 << 20  # bytes; a burst must not be lost before it is read


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
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:  # in a user namespace the machine's limit holds
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.bind((link, _ETH_P_ALL))  # only now does it get packets, and of this link alone
    except BaseException:
        sock.close()
        raise
    return sock
