"""Asks a node's daemon and the store how they are, on sockets inside the node and the lab (flannel.md §1.7)."""

import asyncio
import socket
from typing import Final

from weft.lab.inside.namespaces import Inside, Room
from weft.model.net import Ip
from weft.model.text import one_line
from weft.model.value import Value

PORT: Final = 8081
_PATIENCE: Final = 1.0  # seconds
_LOOK_AGAIN: Final = 0.02  # seconds
_LOOKS: Final = 200
_MOST: Final = 1 << 16  # bytes of an answer
_NOT_SO: Final = ("[-]", "[!]")  # before a part that is not as it should be, of the daemon's verbose answer


class Health(Value):
    """How a daemon is: `state` is `ready`, `not ready`, or `silent` if nothing answers; `problems` say why."""

    state: str
    problems: tuple[str, ...] = ()


async def daemon(inside: Inside, room: Room, patience: float = _PATIENCE) -> Health:
    """Ask a node's daemon, which has `patience` seconds to answer."""
    sock = await inside.run(room, lambda: socket.socket(socket.AF_INET))
    answer = await _ask(sock, "127.0.0.1", PORT, "/readyz?verbose", patience)
    if answer is None:
        return Health(state="silent")
    status, lines = answer
    problems = tuple(one_line(line[len(_NOT_SO[0]) :]) for line in lines if line.startswith(_NOT_SO))
    return Health(state="ready" if status == 200 else "not ready", problems=problems)


async def ready(inside: Inside, room: Room) -> None:
    """Wait until the daemon says that it is ready, or for some seconds: `ps` tells then what it says instead."""
    for _ in range(_LOOKS):
        if (await daemon(inside, room)).state == "ready":
            return
        await asyncio.sleep(_LOOK_AGAIN)


async def store(address: Ip, port: int) -> str:
    """Ask etcd: `ready`, `not ready`, or `silent`."""
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    answer = await _ask(sock, str(address), port, "/health", _PATIENCE)
    if answer is None:
        return "silent"
    return "ready" if answer[0] == 200 else "not ready"


async def _ask(sock: socket.socket, host: str, port: int, path: str, patience: float) -> tuple[int, list[str]] | None:
    """Get `path` on a socket that is closed then; return status and lines of the body, or None without an answer."""
    loop = asyncio.get_running_loop()
    answer = b""
    with sock:
        sock.settimeout(0)
        try:
            async with asyncio.timeout(patience):
                await loop.sock_connect(sock, (host, port))
                await loop.sock_sendall(sock, f"GET {path} HTTP/1.0\r\n\r\n".encode())
                while len(answer) < _MOST and (data := await loop.sock_recv(sock, _MOST)):
                    answer += data
        except (OSError, TimeoutError):
            return None
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        return None
    return int(words[1]), body.decode(errors="replace").splitlines()
