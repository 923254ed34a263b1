"""What can be wrong with an etcd, in words for people; and what listens there when it is no etcd.

`STORE-001`: the store does not answer (again later). `STORE-002`: it answers, but refuses or speaks another
protocol (the user must act). Nothing here ever sees the password.
"""

import asyncio
import ssl
from typing import Final

from grpclib import GRPCError, Status

from weft.cluster.etcd.access import Access
from weft.cluster.etcd.link import LARGEST
from weft.cluster.reach import Endpoint, Reach, handshake_problem, tls_reason
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError

# The client's connection preface (RFC 9113 §3.4) and an empty SETTINGS frame.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS: Final = b"\x04"  # the type, fourth byte, of the frame that every HTTP/2 server sends first
_TLS_ALERT: Final = b"\x15\x03"
_REFUSALS: Final = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.INVALID_ARGUMENT)
_PASSING: Final = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED, Status.ABORTED)


def silent(endpoint: Endpoint, seen: str) -> Unavailable:
    hint = "Start etcd, or correct --etcd-endpoints"
    return Unavailable(Problem(code="STORE-001", where=endpoint.url, seen=seen, expected="an etcd", hint=hint))


def refused(endpoint: Endpoint, seen: str, *, expected: str = "", hint: str = "") -> ConfigError:
    return ConfigError(Problem(code="STORE-002", where=endpoint.url, seen=seen, expected=expected, hint=hint))


def answered(endpoint: Endpoint, error: GRPCError, access: Access) -> WeftError:
    """An error that etcd sent, or what grpclib made of an answer that is not gRPC."""
    said = f"etcd says: {error.message or error.status.name}"
    if error.status in _PASSING:
        return silent(endpoint, said)
    if error.status in _REFUSALS:
        who = f"user {access.user!r}" if access.user else "no user (--etcd-username is not given)"
        hint = "Check --etcd-username, the password, and the role's permission on --etcd-prefix"
        return refused(endpoint, f"{said}, to {who}", expected="an etcd user that may read and write", hint=hint)
    if error.status in (Status.UNIMPLEMENTED, Status.UNKNOWN):
        hint = "Check --etcd-endpoints: is it etcd's client port, without a proxy that changes gRPC?"
        return refused(endpoint, said, expected="an etcd that speaks the v3 API", hint=hint)
    hint = "See etcd's own log; `etcdctl alarm list` shows whether its space is used up"
    return Unavailable(Problem(code="STORE-002", where=endpoint.url, seen=said, expected="an answer", hint=hint))


class TooLargeError(Unavailable):
    """An answer that no network needs: ask for less."""


def large(endpoint: Endpoint, seen: str) -> TooLargeError:
    hint = "See which keys below --etcd-prefix have large values: no lease needs 4 KiB"
    expected = f"{LARGEST} bytes at most"
    return TooLargeError(Problem(code="STORE-002", where=endpoint.url, seen=seen, expected=expected, hint=hint))


def handshake(endpoint: Endpoint, error: ssl.SSLError) -> ConfigError:
    reason = tls_reason(error)
    if "wrong version number" in reason or "record layer failure" in reason:
        return plain(endpoint)
    if "alert" in reason:
        hint = "Give a certificate that etcd's CA signed: --etcd-certfile and --etcd-keyfile"
        return refused(
            endpoint, f"etcd broke off the TLS handshake: {reason}", expected="a client certificate", hint=hint
        )
    hint = "Give the CA that signed it as --etcd-cafile, and use a host name or address that it is made for"
    return ConfigError(handshake_problem(endpoint.url, error, hint, server="an etcd", whose="etcd's"))


def plain(endpoint: Endpoint) -> ConfigError:
    hint = "Use http:// for this endpoint"
    return refused(endpoint, "no TLS spoken there", expected="TLS, as https:// says", hint=hint)


def unresolved(endpoint: Endpoint, seen: str) -> Unavailable:
    hint = "Correct --etcd-endpoints, or this machine's DNS (/etc/resolv.conf, /etc/hosts)"
    return Unavailable(Problem(code="STORE-001", where=endpoint.url, seen=seen, expected="an etcd", hint=hint))


class Examiner:
    """Looks what listens at an endpoint, with short connections of its own."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def speaks_plain(self, endpoint: Endpoint) -> bool:
        """HTTP/2, after our TLS handshake failed."""
        try:
            async with asyncio.timeout(self._reach.patience):
                said = await self._first_words(endpoint, None)
        except OSError:
            return False
        return said[3:4] == _SETTINGS

    async def diagnose(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> WeftError | None:
        """None if that tells nothing new."""
        try:
            async with asyncio.timeout(self._reach.patience):
                said = await self._first_words(endpoint, context)
                if context is None and (said.startswith(_TLS_ALERT) or (not said and await self._speaks_tls(endpoint))):
                    hint = "Use https:// for this endpoint, with --etcd-cafile if its CA is not the system's"
                    return refused(endpoint, "TLS is spoken there", expected="no TLS, as http:// says", hint=hint)
                if said and said[3:4] != _SETTINGS:
                    hint = "Check --etcd-endpoints: is it etcd's client port?"
                    return refused(endpoint, f"an answer that begins with {said!r}", expected="etcd's gRPC", hint=hint)
        except ssl.SSLError as error:
            return handshake(endpoint, error)
        except OSError:  # TimeoutError is one
            return None
        return None

    async def _first_words(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> bytes:
        reader, writer = await self._open(endpoint, context)
        try:
            writer.write(_PREFACE)
            return await reader.read(16)
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()

    async def _speaks_tls(self, endpoint: Endpoint) -> bool:
        """Whatever its certificate: only its first answer matters."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's roots, which take a while to read
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            _, writer = await self._open(endpoint, context)
        except ssl.SSLError as error:
            return "alert" in (error.reason or "").lower()
        writer.transport.abort()
        return True

    async def _open(
        self, endpoint: Endpoint, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await self._reach.open(endpoint)
        try:
            name = endpoint.host if context else None
            return await asyncio.open_connection(sock=connection, ssl=context, server_hostname=name)
        except BaseException:
            connection.close()
            raise
