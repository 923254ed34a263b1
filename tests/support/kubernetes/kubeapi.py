"""Kubernetes' API as tests use it: plain requests over the standard library, nothing of weft's own client.

    Api(url, ca, token).get("/api/v1/nodes", limit=100)      the answer's JSON; ApiError when it is a refusal

A request may come from any thread; each has a connection of its own.
"""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

T = TypeVar("T")
Json = dict[str, Any]

SECONDS: Final = 20.0
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """An answer of 400 and above; `status` is Kubernetes' Status object, or empty."""

    def __init__(self, code: int, text: bytes) -> None:
        self.code = code
        self.status: Json = {}
        with suppress(ValueError):
            self.status = json.loads(text)
        super().__init__(f"{code}: {self.status.get('message', text[:300])}")


def _here(act: Callable[[], T]) -> T:
    return act()


@dataclass(frozen=True, slots=True)
class Api:
    """An API server, and as whom to ask it: by token, or by the certificate and key in two files.

    `inside` runs a function where the server can be reached: Netns.call, when that is another network namespace.
    """

    url: str
    ca: str
    token: str = ""
    certificate: tuple[str, str] | None = None
    inside: Callable[[Callable[[], Any]], Any] = field(default=_here, repr=False)

    def get(self, path: str, **query: Any) -> Json:
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Json, **query: Any) -> Json:
        return self.ask("POST", path, body, **query)

    def put(self, path: str, body: Json, **query: Any) -> Json:
        return self.ask("PUT", path, body, **query)

    def patch(self, path: str, body: Json, kind: str = STRATEGIC, **query: Any) -> Json:
        return self.ask("PATCH", path, body, kind, **query)

    def delete(self, path: str, **query: Any) -> Json:
        return self.ask("DELETE", path, **query)

    def ask(self, verb: str, path: str, body: Json | None = None, kind: str = JSON, **query: Any) -> Json:
        """Return the JSON of the answer; ApiError is an answer too."""
        with self._answer(verb, _target(path, query), body, kind) as answer:
            found: Json = json.loads(answer.read())
            return found

    def text(self, path: str) -> str:
        """Return what is no JSON, as the server's own metrics."""
        with self._answer("GET", path) as answer:
            found: bytes = answer.read()
            return found.decode()

    def ready(self) -> bool:
        """Whether the server says so of itself."""
        try:
            with self._answer("GET", "/readyz", seconds=2):
                return True
        except (OSError, http.client.HTTPException, ApiError):
            return False

    @contextmanager
    def watch(self, path: str, *, seconds: float = SECONDS, **query: Any) -> Iterator[Iterator[Json]]:
        """Have a watch, and give its events as they come; TimeoutError when none comes for `seconds`."""
        with self._answer("GET", _target(path, {"watch": "true", **query}), seconds=seconds) as answer:
            yield map(json.loads, iter(answer.readline, b""))

    @contextmanager
    def _answer(
        self, verb: str, target: str, body: Json | None = None, kind: str = JSON, *, seconds: float = SECONDS
    ) -> Iterator[http.client.HTTPResponse]:
        context = _context(self.ca, self.certificate)
        connection = http.client.HTTPSConnection(urlsplit(self.url).netloc, timeout=seconds, context=context)
        headers = {"Accept": JSON, **({"Content-Type": kind} if body is not None else {})}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            self.inside(connection.connect)
            connection.request(verb, target, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as answer:
                if answer.status >= http.HTTPStatus.BAD_REQUEST:
                    raise ApiError(answer.status, answer.read())
                yield answer
        finally:
            connection.close()


def _target(path: str, query: Json) -> str:
    return f"{path}?{urlencode(query)}" if query else path


@cache
def _context(ca: str, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as weft does: Python 3.13 wants of a CA what Go does not
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context
