"""What can be wrong with an API server, in words for people, and what kind of error that is.

`STORE-001`: the server does not answer (again later). `STORE-002`: it refuses us, or is none. `API-001`: this node
lacks a right; the message has the rule that gives it. Nothing here ever sees a token.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft.cluster.reach import handshake_problem
from weft.model.errors import Problem, Unavailable
from weft.model.text import one_line
from weft.wire.kubelist import NotTheApiError

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_GONE: Final = 410
_BUSY: Final = (429, 503)
_SERVER_FAULT: Final = 500
_UNAUTHORIZED: Final = 401
_TERMINATING: Final = b'"NamespaceTerminating"'  # a namespace that ends takes nothing: no right is missing
_WORDS: Final = 300  # of what the server says


class ExpiredError(Exception):
    """What was asked for by its version is forgotten: list again."""


class NotFoundError(Unavailable):
    pass


class LargeError(Unavailable):
    """What was asked for is more than is read at once: ask for less."""


class BusyError(Unavailable):
    """The server wants to be asked again after `seconds`."""

    def __init__(self, problem: Problem, seconds: float) -> None:
        super().__init__(problem)
        self.seconds = seconds


def silent(where: str, seen: str) -> Unavailable:
    hint = "See whether kube-apiserver runs and is reachable, or correct --kube-api-url or the kubeconfig"
    return Unavailable(Problem(code="STORE-001", where=where, seen=seen, expected="the Kubernetes API", hint=hint))


def refused(where: str, seen: str, *, expected: str = "", hint: str = "") -> Unavailable:
    return Unavailable(Problem(code="STORE-002", where=where, seen=seen, expected=expected, hint=hint))


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Raise `Unavailable` when what a server at `where` answered turns out to be of no Kubernetes API."""
    try:
        yield
    except NotTheApiError as error:
        hint = "Check --kube-api-url: is it the API server, without a proxy that changes answers?"
        raise refused(where, f"not an answer of the Kubernetes API: {_short(str(error))}", hint=hint) from None


def handshake(where: str, error: ssl.SSLError) -> Unavailable:
    hint = "Give the CA that signed it in the kubeconfig (certificate-authority), and a name that it is made for"
    return Unavailable(handshake_problem(where, error, hint, server="a server", whose="the server's"))


def answered(
    where: str, method: str, path: str, status: int, body: bytes, *, after: str = ""
) -> Unavailable | ExpiredError:
    """What an answer that is no success means. `after` is its Retry-After.

    Only a watch and a list's second page and later ones ask for a version that may be forgotten.
    """
    said = _message(body)
    if status == _FORBIDDEN and _TERMINATING not in body:
        what, verb = _right(method, path)
        hint = f'Add to the rules of weft\'s ClusterRole: - {{{what}, verbs: ["{verb}"]}}'
        seen = said or f"may not {verb} {path.partition('?')[0]}"
        return Unavailable(Problem(code="API-001", where=where, seen=seen, hint=hint))
    if status == _NOT_FOUND:
        return NotFoundError(Problem(code="STORE-002", where=f"{where}{path}", seen=said or "not found"))
    if status in _BUSY:
        problem = silent(where, f"it is busy (HTTP {status}): {said}").problems[0]
        return BusyError(problem, float(after) if after.isdecimal() else 0.0)
    return of_status(where, status, "", said, versioned="resourceVersion=" in path or "continue=" in path)


def of_status(
    where: str, code: int, reason: str, message: str, *, versioned: bool = True
) -> Unavailable | ExpiredError:
    """What a Status of the API means, inside a watch or as an answer; `versioned` if a version was asked for."""
    said = _short(message or reason) or f"HTTP {code}"
    if code == _GONE and versioned:
        return ExpiredError()
    if code == _UNAUTHORIZED:
        hint = "See whether the token or certificate is expired, and whether its account is there"
        return refused(where, f"it does not know us: {said}", expected="a valid token or client certificate", hint=hint)
    if code >= _SERVER_FAULT:
        return silent(where, f"it answers with an error: {said}")
    return refused(where, f"it refuses: {said}")


def _right(method: str, path: str) -> tuple[str, str]:
    """What a request needs a right to, and the verb: `apiGroups: [""], resources: ["nodes/status"]`, `patch`."""
    path, _, query = path.partition("?")
    parts = path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if not parts:
        return f'nonResourceURLs: ["{path}"]', "get"
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    what = f'apiGroups: ["{group}"], resources: ["{"/".join(parts[:1] + parts[2:])}"]'
    if method != "GET":
        return what, {"PATCH": "patch", "POST": "create"}[method]
    if len(parts) > 1:
        return what, "get"
    return what, "watch" if "watch=1" in query else "list"


def _message(body: bytes) -> str:
    """The message of the Status in an answer, else how it begins."""
    try:
        status = json.loads(body)
        return _short(str(status["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return _short(body[:_WORDS].decode(errors="replace"))


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _WORDS else f"{text[:_WORDS]}…"
