"""The supervisor's side of one request: see `protocol`."""

import asyncio
import socket
from collections.abc import Sequence

import msgspec

from weft.lab import protocol
from weft.lab.protocol import Done, Failed, Note

_CHUNK = 1 << 16


class Connection:
    """One command's connection. Lines come in with `receive`, go out with `note`, `done` and `failed`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._socket = sock
        self._rest = b""
        self._descriptors: list[int] = []
        self._send = asyncio.Lock()

    async def receive(self) -> bytes | None:
        """Return the next line, or None once the other side has closed."""
        while b"\n" not in self._rest:
            await self._readable()
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _CHUNK, protocol.MOST_DESCRIPTORS)
            except ConnectionError:
                return None
            self._descriptors += descriptors
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    @property
    def descriptors(self) -> Sequence[int]:
        """What came along with the lines so far; closed with the connection."""
        return self._descriptors

    async def note(self, text: str) -> None:
        """Tell what is going on."""
        await self._line(Note(text))

    async def done(self, report: msgspec.Struct, *, descriptors: Sequence[int] = ()) -> None:
        """Answer, perhaps with descriptors."""
        await self._line(Done(msgspec.Raw(msgspec.json.encode(report))), descriptors)

    async def failed(self, failure: Failed) -> None:
        """Answer that it did not work."""
        await self._line(failure)

    def close(self) -> None:
        self._socket.close()
        for descriptor in self._descriptors:
            socket.close(descriptor)

    async def _line(self, message: Note | Done | Failed, descriptors: Sequence[int] = ()) -> None:
        line = msgspec.json.encode(message) + b"\n"
        async with self._send:
            if descriptors:
                # The first byte takes them along; an answer finds an empty buffer, so this does not block.
                socket.send_fds(self._socket, [line[:1]], list(descriptors))
                line = line[1:]
            await asyncio.get_running_loop().sock_sendall(self._socket, line)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._socket)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
