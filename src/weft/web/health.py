"""`/healthz` and `/readyz`, as flannel.md §1.7 has them, but that readiness is also taken back.

The socket is bound at the start, so that a busy port is noticed at once; the server behind it is imported
and started later, and connections wait in the backlog until then.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator

from weft.model.errors import ConfigError, Problem
from weft.model.status import Status


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


async def serve(listening: socket.socket, status: Callable[[], Status]) -> None:
    """Answer until cancelled, then give open requests three seconds."""
    import uvicorn  # late: 28 ms that the first packet does not need
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def healthz(_: Request) -> PlainTextResponse:
        return PlainTextResponse("flanneld is running")

    async def readyz(_: Request) -> PlainTextResponse:
        if status().ready:
            return PlainTextResponse("flanneld is ready")
        return PlainTextResponse("flanneld is not ready yet", status_code=503)

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals belong to the daemon

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app = Starlette(routes=[Route("/healthz", healthz, methods=methods), Route("/readyz", readyz, methods=methods)])
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", http="h11", ws="none")
    config.timeout_graceful_shutdown = 3
    await Server(config).serve(sockets=[listening])
