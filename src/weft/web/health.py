"""`/healthz` and `/readyz`, as flannel.md §1.7 has them, but that readiness is also taken back; `/livez`; `/metrics`.

Two fixed answers need no framework: starlette and uvicorn cost 5 MB of the daemon's 40 (docs/decisions/0010). The
socket is bound at the start, so that a busy port is noticed at once. The port's clients get only a few of the daemon's
descriptors: a connection too many ends the oldest.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import h11

from weft.beside.tasks import watched
from weft.model.errors import ConfigError, Problem, not_whole
from weft.model.node.status import Status
from weft.model.text import one_line

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 3.0
_CHUNK: Final = 4096
_CONNECTIONS: Final = 16
_REST_SECONDS: Final = 1.0
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


Scrape = Callable[[], Awaitable[str]]


class Answer(NamedTuple):
    code: int
    text: str
    kind: str = "text/plain; charset=utf-8"


def bind(host: str, port: int) -> socket.socket:
    """Raises `ConfigError` when that address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            Problem(
                "FLAG-001",
                "--healthz-ip, --healthz-port",
                f"{host}:{port} cannot be bound: {error.strerror}",
                hint="Choose another port, or 0 to have no health server",
            )
        ) from error
    listening.setblocking(False)  # noqa: FBT003  that is how socket has it
    return listening


async def serve(listening: socket.socket, status: Status, scrape: Scrape) -> None:
    """Answer until cancelled, then give open requests three seconds; idle connections end at once.

    `scrape` gives the page of `/metrics`.
    """
    connections: dict[asyncio.Task[None], h11.Connection] = {}
    try:
        while True:
            sock = await _accepted(listening)
            if len(connections) >= _CONNECTIONS:
                oldest = next(iter(connections))
                oldest.cancel()
                await asyncio.wait((oldest,))
            connection = h11.Connection(h11.SERVER)
            task = watched(_serve_one(connection, sock, partial(_answer, status, scrape, here=_is_here(sock))))
            connections[task] = connection
            task.add_done_callback(connections.pop)
    finally:
        listening.close()
        open_requests = [task for task, connection in connections.items() if _is_busy(connection)]
        if open_requests:
            await asyncio.wait(open_requests, timeout=_GRACE_SECONDS)


async def _accepted(listening: socket.socket) -> socket.socket:
    """Take the next connection; try again after a pause while that fails."""
    while True:
        try:
            sock, _ = await asyncio.get_running_loop().sock_accept(listening)
        except OSError as error:
            log.debug("no connection to the health port can be taken: %s", error)
            await asyncio.sleep(_REST_SECONDS)
        else:
            return sock


async def _serve_one(
    connection: h11.Connection, sock: socket.socket, answer: Callable[[h11.Request], Awaitable[Answer]]
) -> None:
    with suppress(OSError, TimeoutError, h11.RemoteProtocolError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(sock=sock)
            try:
                await _converse(connection, reader, writer, answer)
                writer.close()
                await writer.wait_closed()
            finally:
                writer.transport.abort()  # a client that does not read must not keep the descriptor


def _is_here(sock: socket.socket) -> bool:
    """Tell whether a client is on this machine: its address is the one that it asks at."""
    try:
        return bool(sock.getpeername()[0] == sock.getsockname()[0])
    except OSError:  # it has gone
        return False


def _is_busy(connection: h11.Connection) -> bool:
    return connection.their_state is not h11.IDLE or bool(connection.trailing_data[0])


async def _answer(status: Status, scrape: Scrape, request: h11.Request, *, here: bool) -> Answer:
    if request.method == b"CONNECT":
        return Answer(405, "no tunnel here")  # 200 would begin one
    path, _, query = request.target.decode("ascii", "replace").partition("?")
    match path:
        case "/healthz":
            return Answer(200, "flanneld is running")
        case "/livez":
            return Answer(200, "weftd is alive")
        case "/metrics":
            return await _metrics(scrape)
        case "/readyz":
            code, text = (200, "flanneld is ready") if status.ready else (503, "flanneld is not ready yet")
            verbose = any(word.partition("=")[0] == "verbose" for word in query.split("&"))
            return Answer(code, "\n".join((*_parts(status, here=here), text)) if verbose else text)
        case _:
            return Answer(404, "not found")


async def _metrics(scrape: Scrape) -> Answer:
    try:
        return Answer(200, await scrape(), METRICS)
    except ImportError as error:
        return Answer(500, str(not_whole("/metrics", error)))


def _parts(status: Status, *, here: bool) -> Iterator[str]:
    """A line for each part, as Kubernetes' own components do: `[+]` right, `[-]` wrong, `[!]` worth a look.

    Clients on other machines get the code alone: problems name the store, addresses and files.
    """

    def words(problem: Problem) -> str:
        return one_line(str(problem)) if here else f"{problem.code} (weft status on the node says more)"

    for name, problem in status.look().items():
        yield f"[+]{name} ok" if problem is None else f"[-]{name} failed: {words(problem)}"
    for name, loss in status.losses.items():
        if (problem := loss()) is not None:
            yield f"[!]{name}: {words(problem)}"
    if status.store is None:
        yield "[+]store ok"
    else:  # one that is silent takes nothing from the node while its lease lasts
        yield f"{'[-]store failed' if status.refused else '[!]store'}: {words(status.store)}"


async def _converse(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[h11.Request], Awaitable[Answer]],
) -> None:
    """Answer request after request, of any method, until the client closes or asks us to."""
    request = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            writer.write(_response(connection, request, await answer(request)))
            await writer.drain()
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()
        elif isinstance(event, h11.ConnectionClosed):
            return


def _response(connection: h11.Connection, request: h11.Request, answer: Answer) -> bytes:
    body = answer.text.encode()
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(body)))]
    parts = (
        connection.send(h11.Response(status_code=answer.code, headers=headers)),
        connection.send(h11.Data(data=b"" if request.method == b"HEAD" else body)),
        connection.send(h11.EndOfMessage()),
    )
    return b"".join(part for part in parts if part)
