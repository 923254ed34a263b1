"""`/healthz` and `/readyz`, as flannel.md §1.7 has them, but that readiness is also taken back.

Two fixed answers need no framework: starlette and uvicorn cost 5 MB of the daemon's 40 (docs/decisions/0010).
The protocol is h11's. The socket is bound at the start, so that a busy port is noticed at once.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import h11

from weft.model.errors import ConfigError, Problem
from weft.model.status import Status

_PATIENCE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 3.0
_CHUNK: Final = 4096


def bind(host: str, port: int) -> socket.socket:
    """Listen on `host:port`; `ConfigError` when that address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            Problem(
                code="FLAG-001",
                where="--healthz-ip, --healthz-port",
                seen=f"{host}:{port} cannot be bound: {error.strerror}",
                hint="Choose another port, or 0 to have no health server",
            )
        ) from error


async def serve(listening: socket.socket, status: Status) -> None:
    """Answer until cancelled, then give open requests three seconds; connections without one end at once."""
    connections: dict[asyncio.Task[None] | None, h11.Connection] = {}

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        connection = connections[task] = h11.Connection(h11.SERVER)
        try:
            with suppress(OSError, TimeoutError, h11.RemoteProtocolError):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await _converse(connection, reader, writer, partial(_answer, status))
        finally:
            del connections[task]
            writer.close()

    server = await asyncio.start_server(accept, sock=listening)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        open_requests = [task for task, connection in connections.items() if task is not None and _is_busy(connection)]
        if open_requests:
            await asyncio.wait(open_requests, timeout=_GRACE_SECONDS)


def _is_busy(connection: h11.Connection) -> bool:
    """Tell whether part of a request has come."""
    return connection.their_state is not h11.IDLE or bool(connection.trailing_data[0])


def _answer(status: Status, request: h11.Request) -> tuple[int, str]:
    if request.method == b"CONNECT":
        return 405, "no tunnel here"  # 200 would begin one
    match request.target.decode("ascii", "replace").partition("?")[0]:
        case "/healthz":
            return 200, "flanneld is running"
        case "/readyz":
            return (200, "flanneld is ready") if status.ready else (503, "flanneld is not ready yet")
        case _:
            return 404, "not found"


async def _converse(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[h11.Request], tuple[int, str]],
) -> None:
    """Answer request after request, until the client closes or asks us to. Any method will do."""
    request = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            writer.write(_response(connection, request, *answer(request)))
            await writer.drain()
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()
        elif isinstance(event, h11.ConnectionClosed):
            return


def _response(connection: h11.Connection, request: h11.Request, code: int, text: str) -> bytes:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
    parts = (
        connection.send(h11.Response(status_code=code, headers=headers)),
        connection.send(h11.Data(data=b"" if request.method == b"HEAD" else text.encode())),
        connection.send(h11.EndOfMessage()),
    )
    return b"".join(part for part in parts if part)
