"""Asks an HTTP server in a lab whether it is ready."""

import asyncio
import socket
from typing import Final

from weft.model.value import Value

_MOST: Final = 1 << 16  # bytes of an answer


class Answer(Value):
    """`ready` is the status 200; `lines` are the body's."""

    ready: bool
    lines: tuple[str, ...]


async def get(asking: socket.socket, where: tuple[str, int], path: str, seconds: float) -> Answer | None:
    """Ask on a TCP socket, which is closed then. None without an answer in time."""
    loop = asyncio.get_running_loop()
    said = bytearray()
    with asking:
        asking.setblocking(False)  # noqa: FBT003 - that is how socket has it
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(asking, where)
                await loop.sock_sendall(asking, f"GET {path} HTTP/1.0\r\n\r\n".encode())
                while len(said) < _MOST and (more := await loop.sock_recv(asking, _MOST)):
                    said += more
        except (OSError, TimeoutError):
            return None
    head, _, body = bytes(said).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        return None
    return Answer(ready=words[1] == b"200", lines=tuple(body.decode(errors="replace").splitlines()))
