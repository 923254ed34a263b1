"""Asks a Kubernetes API: one connection that is kept, and one more for each watch.

Knows no resources. Errors are `Unavailable` (problems.py) and `ExpiredError`; `ConfigError` only for what the command
line or a kubeconfig names and what is not there.
"""

import asyncio
import os
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlencode

import h11

from weft import __version__
from weft.cluster import tls
from weft.cluster.kube.access import Access, Timing
from weft.cluster.kube.link import Link, Request, TooLargeError
from weft.cluster.kube.problems import LargeError, answered, handshake, silent
from weft.cluster.reach import Reach
from weft.model.cluster import Tally
from weft.model.errors import ConfigError, Unavailable

_OK: Final = 200
_UNAUTHORIZED: Final = 401
_WATCH_GRACE: Final = 30.0
JSON: Final = "application/json"
_TYPES: Final = {"PATCH": "application/strategic-merge-patch+json", "POST": JSON}


class Client:
    """Everything it does can be cancelled."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._endpoint = access.endpoint
        self._base = access.base
        self._reach = Reach(access.timing.connect)
        self._link: Link | None = None
        self._busy: set[Link] = set()
        self._asking = asyncio.Lock()
        self._connected = False  # or tried to, with files that could be read
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)  # by verb and code

    def another(self) -> "Client":
        """With connections of its own. Requests are counted with this one's; files that are wrong may be renewed."""
        made = Client(self._access)
        made.tallies, made._connected = self.tallies, True
        return made

    @property
    def where(self) -> str:
        return self._access.url

    @property
    def timing(self) -> Timing:
        return self._access.timing

    def close(self) -> None:
        if self._link is not None:
            self._link.abort()
        self._link = None
        for link in self._busy:
            link.abort()

    async def get(self, path: str, *, accept: str = JSON, **query: str) -> bytes:
        """The body of what lies at a path. Raises `Unavailable` (`NotFoundError`, `LargeError`) and `ExpiredError`."""
        return await self._call("GET", _target(path, query), accept=accept)

    async def patch(self, path: str, body: bytes) -> bytes:
        """By a strategic merge patch; returns the object as it is then."""
        return await self._call("PATCH", path, body)

    async def post(self, path: str, body: bytes) -> None:
        await self._call("POST", path, body)

    @asynccontextmanager
    async def watch(self, path: str, *, lasts: int, accept: str = JSON, **query: str) -> AsyncIterator[Link]:
        """Give the link whose lines are a watch's, until the server ends it, after `lasts` seconds at most.

        Raises `Unavailable` and `ExpiredError`.
        """
        target = _target(path, {"watch": "1", "timeoutSeconds": str(lasts), **query})
        link = await self._connect()
        self._busy.add(link)
        try:
            request = await self._request("GET", target, accept=accept)
            async with asyncio.timeout(self._access.timing.call) as alarm:
                try:
                    response = await self._asked(link, request)
                    if response.status_code == _UNAUTHORIZED:
                        self._access.credentials.refused()
                    if response.status_code != _OK:
                        body = await link.body()
                        status, after = response.status_code, _retry_after(response)
                        raise answered(self.where, "GET", target, status, body, after=after)
                    alarm.reschedule(asyncio.get_running_loop().time() + lasts + _WATCH_GRACE)
                    yield link
                except OSError as error:
                    raise silent(self.where, _words(error)) from None
        except TimeoutError:
            raise silent(self.where, "it is silent") from None
        finally:
            self._busy.discard(link)
            link.abort()

    async def _call(self, method: str, target: str, body: bytes = b"", *, accept: str = JSON) -> bytes:
        async with self._asking:
            status, answer, after = await self._try(method, target, body, accept)
            if status == _UNAUTHORIZED:  # a token may have been renewed meanwhile
                self._access.credentials.refused()
                status, answer, after = await self._try(method, target, body, accept)
        if status // 100 != _OK // 100:
            raise answered(self.where, method, target, status, answer, after=after)
        return answer

    async def _try(self, method: str, target: str, body: bytes, accept: str) -> tuple[int, bytes, str]:
        """Ask once; once more on a new connection if the one that was kept turns out to be closed."""
        request = await self._request(method, target, body, accept=accept)
        kept, self._link = self._link, None
        if kept is not None and kept.is_free:
            with suppress(OSError):  # the server closes a connection when it likes, and answers nothing of ours then
                return await self._ask(kept, request)
        link = await self._connect()
        try:
            return await self._ask(link, request)
        except TooLargeError as error:
            raise LargeError(*silent(self.where, str(error)).problems) from None
        except OSError as error:
            raise silent(self.where, _words(error)) from None

    async def _ask(self, link: Link, request: Request) -> tuple[int, bytes, str]:
        self._busy.add(link)
        try:
            async with asyncio.timeout(self._access.timing.call):
                response = await self._asked(link, request)
                return response.status_code, await link.body(), _retry_after(response)
        except TimeoutError:
            raise silent(self.where, f"no answer within {self._access.timing.call:g} s") from None
        finally:
            self._busy.discard(link)
            if link.is_free:
                self._link = link
            else:
                link.abort()

    async def _asked(self, link: Link, request: Request) -> h11.Response:
        link.tally = Tally(asked=1)
        code = "none"
        try:
            response = await link.ask(request)
            code = str(response.status_code)
            return response
        finally:
            tally = self.tallies[f"{request.verb} {code}"]
            tally.asked, tally.received = tally.asked + 1, tally.received + link.tally.received
            link.tally = tally

    async def _request(self, method: str, target: str, body: bytes = b"", *, accept: str) -> Request:
        headers = {"Accept": accept, "User-Agent": f"weftd/{__version__}"}
        if method == "GET":  # what else is asked for is small
            headers["Accept-Encoding"] = "gzip"
        if body:
            headers["Content-Type"] = _TYPES[method]
        token = await self._access.credentials.token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        return Request(method=method, target=self._base + target, headers=headers, body=body)

    async def _connect(self) -> Link:
        endpoint, timing = self._endpoint, self._access.timing
        try:
            context = await self._context()
            connection = await self._reach.open(endpoint)
            try:
                async with asyncio.timeout(timing.connect):
                    name = self._access.server_name or endpoint.host
                    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
                    return await Link.over(connection, context, name=name, host=f"{host}:{endpoint.port}")
            except BaseException:
                connection.close()
                raise
        except ssl.SSLError as error:
            raise handshake(self.where, error) from None
        except TimeoutError:
            raise silent(self.where, f"no connection within {timing.connect:g} s") from None
        except OSError as error:
            raise silent(self.where, _words(error)) from None

    async def _context(self) -> ssl.SSLContext | None:
        """The TLS context of the next connection. Files that were right once may be right again: another program's."""
        access = self._access
        names = ", ".join(pem.where for pem in access.pems)
        try:
            context = await tls.within(access.timing.connect, access.context, key=id(self), where=names)
        except ConfigError as error:
            if self._connected:
                raise Unavailable(*error.problems) from None
            raise
        self._connected = True
        return context


def _retry_after(response: h11.Response) -> str:
    """In seconds; empty if the server does not say."""
    return next((text.decode("latin-1") for name, text in response.headers if name == b"retry-after"), "")


def _target(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _words(error: OSError) -> str:
    """What happened to a connection; asyncio puts its own words into some errors in place of the kernel's."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__
