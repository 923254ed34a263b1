"""Makes TCP connections to endpoints, and resolves their names where nothing else has to wait.

The C library resolves names, which may take half a minute and cannot be cut short. So it does that in threads of
its own, one for each endpoint at most, and nothing waits for a thread: not other work, and not the end of the program.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from weft.model.errors import Problem
from weft.model.value import Value

# What socket.getaddrinfo gives: family, type, protocol, canonical name, address.
_Info = tuple[int, int, int, str, Any]
_Answer = Sequence[_Info] | OSError


class Endpoint(Value):
    """A URL that servers answer at. `tls` is decided by its scheme alone."""

    url: str
    host: str
    port: int
    tls: bool


class UnresolvedError(OSError):
    """The endpoint's name has no address, or the machine's DNS does not answer. The text is for people."""


class Reach:
    """Each step, the name and the connection, may take `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._asked: dict[tuple[str, int], asyncio.Future[_Answer]] = {}

    async def open(self, endpoint: Endpoint) -> socket.socket:
        """The first address that accepts. Raises `UnresolvedError`, `TimeoutError` and `OSError`."""
        addresses = await self._addresses(endpoint)
        loop = asyncio.get_running_loop()
        failure: OSError = UnresolvedError(f"the name {endpoint.host!r} has no address")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)  # noqa: FBT003
            try:
                # One address that swallows packets leaves time for those behind it.
                async with asyncio.timeout(self.patience / (len(addresses) - number)):
                    await loop.sock_connect(connection, address)
            except OSError as error:  # TimeoutError is one
                connection.close()
                failure = error
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise failure

    async def _addresses(self, endpoint: Endpoint) -> Sequence[_Info]:
        try:
            return _lookup(endpoint, socket.AI_NUMERICHOST)
        except OSError:  # a name
            pass
        try:
            async with asyncio.timeout(self.patience):
                answer = await self._resolve(endpoint)
        except TimeoutError:
            seen = f"the name {endpoint.host!r} is not resolved: no DNS server answered within {self.patience:g} s"
            raise UnresolvedError(seen) from None
        if isinstance(answer, OSError):
            raise UnresolvedError(f"the name {endpoint.host!r} does not resolve: {answer.strerror or answer}")
        return answer

    async def _resolve(self, endpoint: Endpoint) -> _Answer:
        """Ask for a name, or wait for the answer to an earlier question: one that came too late then helps now."""
        question = (endpoint.host, endpoint.port)
        asked = self._asked.get(question)
        if asked is None:
            asked = asyncio.get_running_loop().create_future()
            try:
                threading.Thread(target=_ask, args=(endpoint, asked), name="weft-dns", daemon=True).start()
            except RuntimeError as error:  # the limit of processes; no answer would ever come
                return OSError(str(error))
            self._asked[question] = asked
        answer = await asyncio.shield(asked)
        self._asked.pop(question, None)
        return answer


_NO_NAME: Final = socket.gaierror(socket.EAI_NONAME, "no name that DNS can hold")


def _lookup(endpoint: Endpoint, flags: int = 0) -> Sequence[_Info]:
    try:
        return socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:  # a label that is empty or too long
        raise _NO_NAME from None


def _ask(endpoint: Endpoint, asked: asyncio.Future[_Answer]) -> None:
    """In a thread of its own: look a name up, and bring the answer to the loop, if that is there still."""
    answer: _Answer
    try:
        answer = _lookup(endpoint)
    except OSError as error:
        answer = error
    with suppress(RuntimeError):
        asked.get_loop().call_soon_threadsafe(_settle, asked, answer)


def _settle(asked: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not asked.done():
        asked.set_result(answer)


def handshake_problem(where: str, error: ssl.SSLError, hint: str, *, server: str, whose: str) -> Problem:
    """`hint` says what to do about a certificate that is not trusted; `server` (`an etcd`) and `whose` it is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        seen = f"{whose} certificate is not trusted: {error.verify_message}"
        return Problem("STORE-002", where, seen, expected="a certificate of a known CA for this host", hint=hint)
    expected = f"{server} that speaks TLS 1.2 or newer"
    return Problem("STORE-002", where, f"TLS failed: {tls_reason(error)}", expected=expected)


def tls_reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
