"""The page's server: its own files, a stream of changes, and the two questions that a page asks."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import aclosing
from http.cookies import SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.diag.sizes import SMALLEST
from weft.model.errors import ConfigError, WeftError
from weft.model.value import Value, fields_of
from weft.ui.sources import Source
from weft.ui.watch import Watch

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_COOKIE: Final = "weft-ui"


class Guard:
    """Without a `token`, everybody who reaches the socket may read."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """None where the page may be read."""
        headers = Headers(scope=scope)
        if not is_address(headers.get("host", "")):
            return PlainTextResponse("Open this page by its address, as weft ui printed it, not by a name.\n", 421)
        if scope["method"] == "POST" and not _is_own(headers):
            return PlainTextResponse("Another page may not ask this.\n", 403)
        if not self._token:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if self._is_token(given):
            # The token leaves the address bar, so that it is in no history and no picture of the screen.
            # To a path of ours: `//name/` would be another server's page.
            answer = RedirectResponse(f"/{scope['path'].lstrip('/' + chr(92))}", 303)
            answer.set_cookie(_cookie(scope), given, httponly=True, samesite="strict")
            return answer
        cookies = SimpleCookie()
        cookies.load(headers.get("cookie", ""))
        held = cookies.get(_cookie(scope))
        if held is not None and self._is_token(held.value):
            return None
        return PlainTextResponse("Open this page by the URL that weft ui printed: it bears a token.\n", 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)


def _is_own(headers: Headers) -> bool:
    """Our page asks, or no page at all; old browsers only tell the origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def is_address(host: str) -> bool:
    """With or without a port; `localhost` counts."""
    name, _, rest = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    if host.startswith("["):
        rest = rest.removeprefix(":")
    if rest and not (rest.isascii() and rest.isdigit()):
        return False
    try:
        ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


def _cookie(scope: Scope) -> str:
    """Its name has the port: cookies do not tell ports apart, and several pages may be served."""
    server = scope.get("server")
    return f"{_COOKIE}-{server[1]}" if server else _COOKIE


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
