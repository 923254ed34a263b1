"""Asks a node's daemon whether it is ready (flannel.md §1.7), on a socket inside the node."""

import asyncio
import socket
from typing import Final

from weft.lab.inside import Inside, Room

PORT: Final = 8081
_REQUEST: Final = b"GET /readyz HTTP/1.0\r\n\r\n"
_PATIENCE: Final = 1.0  # seconds
_LOOK_AGAIN: Final = 0.02  # seconds
_LOOKS: Final = 200


async def state(inside: Inside, room: Room, patience: float = _PATIENCE) -> str:
    """Return `ready`, `not ready`, or `silent` if nothing answers within `patience` seconds."""
    with await inside.run(room, lambda: socket.socket(socket.AF_INET)) as sock:
        sock.settimeout(0)
        try:
            async with asyncio.timeout(patience):
                answer = await _ask(sock)
        except (OSError, TimeoutError):
            return "silent"
    return "ready" if b" 200 " in answer.partition(b"\r\n")[0] else "not ready"


async def ready(inside: Inside, room: Room) -> None:
    """Wait until the daemon says that it is ready, or for some seconds: `ps` tells then what it says instead."""
    for _ in range(_LOOKS):
        if await state(inside, room) == "ready":
            return
        await asyncio.sleep(_LOOK_AGAIN)


async def _ask(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", PORT))
    await loop.sock_sendall(sock, _REQUEST)
    return await loop.sock_recv(sock, 256)
