"""Who may read the page. Every answer gets the headers that keep a browser to our files.

The Host header must be an address or `localhost`: somebody else's page can make a name lead to this machine (DNS
rebinding), but not an address.
"""

import hmac
from http.cookies import SimpleCookie
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
