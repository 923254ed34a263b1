"""The page's server: its own files, a stream of changes, and the two questions that a page asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from weft.diag.sizes import SMALLEST
from weft.model.errors import ConfigError, WeftError
from weft.model.value import Value, fields_of
from weft.ui.guard import Guard
from weft.ui.sources import Source
from weft.ui.watch import Watch

STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_LONGEST: Final = 4096  # bytes of a question


class Wanted(Value, forbid_unknown_fields=True):
    """Between pods, nodes or other targets of `weft lab trace`."""

    source: str
    target: str
    size: Annotated[int, msgspec.Meta(ge=SMALLEST, le=65535)] | None = None


def make(source: Source, watch: Watch, *, token: str = "") -> ASGIApp:
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in _TYPES}
    tracing = asyncio.Lock()  # each trace looks at two nodes whole: one after the other

    async def file(request: Request) -> Response:
        path = files.get(request.path_params.get("name", "page.html"))
        if path is None:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix])

    async def live(_: Request) -> Response:
        return StreamingResponse(_stream(watch), media_type="text/event-stream")

    async def interfaces(request: Request) -> Response:
        return await _answer(source.interfaces(request.path_params["name"]))

    async def trace(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LONGEST:
                return PlainTextResponse("That is too long.\n", 413)
        try:
            wanted = msgspec.json.decode(body, type=Wanted)
        except msgspec.MsgspecError as error:
            return PlainTextResponse(f"{error}\n", 400)
        async with tracing:
            return await _answer(source.trace(wanted.source, wanted.target, wanted.size or 0))

    app = Starlette(
        routes=[
            Route("/", file),
            Route("/static/{name}", file),
            Route("/live", live),
            Route("/interfaces/{name}", interfaces),
            Route("/trace", trace, methods=["POST"]),
        ]
    )
    return Guard(app, token=token)


async def _answer(answering: Any) -> Response:
    status = 200
    try:
        said = await answering
    except (WeftError, OSError) as error:
        status = 400 if isinstance(error, ConfigError) else 503
        said = [fields_of(each) for each in error.problems] if isinstance(error, WeftError) else [{"seen": str(error)}]
    return Response(msgspec.json.encode(said), status, media_type="application/json")


async def _stream(watch: Watch) -> AsyncIterator[bytes]:
    """Server-sent events (HTML standard, 9.2): a name, and JSON on one line."""
    async with aclosing(watch.page()) as told:
        async for name, data in told:
            yield b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
