"""One connection to an API server: HTTP/1.1 by h11, one request at a time.

Knows nothing of what is asked. Everything raises `OSError` when the connection breaks or falls silent.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from typing import Final, Self, TypeAlias, cast

import h11

from weft.model.cluster import Tally
from weft.model.value import Value

_CHUNK: Final = 1 << 18
LARGEST: Final = 32 << 20  # bytes of an answer, unpacked
# Bytes of a line: etcd takes objects of 1.5 MB in protobuf, which as JSON are five times as long at worst.
_LONGEST: Final = 16 << 20
_COLLECTIONS: Final = ("/nodes", "/pods", "/namespaces", "/networkpolicies", "/clusternetworkpolicies")
_GZIP: Final = 16 + zlib.MAX_WBITS
_UNPACKED: Final = 1 << 20  # bytes that are unpacked at a stretch: a kilobyte may become a megabyte
# A peer that is gone is noticed after 25 s: nothing is heard for ten, then three probes, five apart (tcp(7)).
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
)


_Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class Request(Value):
    """What is asked: `target` is path and query, `headers` besides Host and Content-Length."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def verb(self) -> str:
        """In Kubernetes' own words."""
        if self.method != "GET":
            return {"POST": "create"}.get(self.method, self.method.lower())
        path, _, query = self.target.partition("?")
        if path.endswith(_COLLECTIONS):
            return "watch" if "watch=1" in query else "list"
        return "get"


class TooLargeError(OSError):
    """An answer of more than `LARGEST` bytes."""


class Link:
    """A connection that is open. `host` is what the server is called in requests."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        below: asyncio.Transport,
        host: str,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._below = below
        self._host = host
        self._state = h11.Connection(h11.CLIENT)
        self._packed: zlib._Decompress | None = None  # what unpacks the answer that comes
        self.tally = Tally()  # of what is received, from the next byte on
        connection: socket.socket = writer.get_extra_info("socket")
        for level, option, value in _KEEPALIVE:
            with suppress(OSError):  # not TCP
                connection.setsockopt(level, option, value)

    @classmethod
    async def over(cls, connection: socket.socket, context: ssl.SSLContext | None, *, name: str, host: str) -> Self:
        """Speak over a connection, by TLS when there is a context, with a server whose certificate is for `name`.

        Raises `ssl.SSLError` as well.
        """
        reader, writer = await asyncio.open_connection(sock=connection)
        below = cast("asyncio.Transport", writer.transport)  # which it is
        if context is not None:
            await writer.start_tls(context, server_hostname=name)
        return cls(reader, writer, below, host)

    def abort(self) -> None:
        self._writer.transport.abort()

    @property
    def is_free(self) -> bool:
        return self._state.our_state is h11.IDLE and not self._writer.transport.is_closing()

    async def ask(self, request: Request) -> h11.Response:
        """Waits for the head of the answer."""
        head = [("Host", self._host), ("Content-Length", str(len(request.body))), *request.headers.items()]
        sent = self._state.send(h11.Request(method=request.method, target=request.target, headers=head))
        sent = (sent or b"") + (self._state.send(h11.Data(data=request.body)) or b"")
        self._writer.write(sent + (self._state.send(h11.EndOfMessage()) or b""))
        await self._writer.drain()
        while not isinstance(event := await self._next(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError("the connection ended before an answer")
        encoding = next((text for name, text in event.headers if name == b"content-encoding"), b"identity")
        if encoding not in (b"identity", b"gzip"):
            raise ConnectionResetError(f"not an encoding that was asked for: {encoding[:40]!r}")
        self._packed = zlib.decompressobj(_GZIP) if encoding == b"gzip" else None
        return event

    async def body(self) -> bytes:
        body = bytearray()
        async for data in self._data():
            body += data
            if len(body) > LARGEST:
                raise TooLargeError(f"an answer of more than {LARGEST} bytes")
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
        return bytes(body)

    async def lines(self, quiet: float) -> AsyncGenerator[list[bytes], None]:
        """Give the lines of the answer until it ends: those that have arrived together as one list.

        An empty list says that nothing has come for `quiet` seconds.
        """
        rest = b""
        async for data in self._data(quiet):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _LONGEST or any(len(line) > _LONGEST for line in lines):
                raise OSError(f"a line of more than {_LONGEST} bytes")
            if lines or not data:
                yield lines

    async def rest(self, seconds: float) -> None:
        """Leave what comes to the kernel for a while, so that it is read at once: a read costs more than its bytes."""
        self._below.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._below.resume_reading()

    async def _data(self, quiet: float | None = None) -> AsyncGenerator[bytes, None]:
        """Give the body of the answer until it ends, as it arrives; an empty part after `quiet` seconds of silence."""
        ended = False
        while not ended:
            parts: list[bytes] = []
            while not ended and (event := self._event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                else:
                    ended = isinstance(event, h11.EndOfMessage | h11.ConnectionClosed)
            for data in self._unpacked(b"".join(parts)):
                yield data
            if not ended:
                try:
                    async with asyncio.timeout(quiet):
                        await self._receive()
                except TimeoutError:
                    yield b""

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        """Unpack what has come, in parts of `_UNPACKED` bytes at most."""
        packed = self._packed
        if packed is None:
            if data:
                yield data
            return
        while data:
            try:
                part = packed.decompress(data, _UNPACKED)
            except zlib.error as error:
                raise OSError(f"not gzip: {error}") from None
            data = packed.unconsumed_tail
            if part:
                yield part

    async def _next(self) -> _Event:
        while (event := self._event()) is h11.NEED_DATA:
            await self._receive()
        return event

    def _event(self) -> _Event:
        try:
            return self._state.next_event()
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError(f"not HTTP, or cut short: {error}") from None

    async def _receive(self) -> None:
        data = await self._reader.read(_CHUNK)
        self.tally.received += len(data)
        self._state.receive_data(data)
