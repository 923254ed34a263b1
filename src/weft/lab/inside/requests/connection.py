"""The supervisor's side of one request: see `protocol`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from weft.beside.tasks import awaited, watched
from weft.lab import protocol
from weft.lab.protocol import Done, Failed, Note

_CHUNK = 1 << 16


class Connection:
    """One command's connection. Lines come in with `receive`, go out with `done` and `send`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._socket = sock
        self._rest = b""
        self._descriptors: list[int] = []
        self._send = asyncio.Lock()

    async def receive(self) -> bytes | None:
        """The next line, or None once the other side has closed."""
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
        """They are closed with the connection."""
        return self._descriptors

    async def done(self, report: object, *, descriptors: Sequence[int] = ()) -> None:
        await self.send(Done(msgspec.Raw(msgspec.json.encode(report))), descriptors)

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[Callable[[str], None]]:
        """A function that sends notes, in order, while work goes on."""
        notes: asyncio.Queue[str] = asyncio.Queue()

        async def tell() -> None:
            with suppress(ConnectionError):  # the client has gone: who reads from it sees that
                while True:
                    await self.send(Note(await notes.get()))

        telling = watched(tell())
        try:
            yield notes.put_nowait
        finally:
            telling.cancel()

    async def answer_while_wanted(self, work: Coroutine[Any, Any, object]) -> bool:
        """Stop the work when the client goes; returns whether it was answered."""
        working = awaited(work)
        leaving = awaited(self.receive())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return False
            await self.done(working.result())
            return True
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    def close(self) -> None:
        self._socket.close()
        for descriptor in self._descriptors:
            socket.close(descriptor)

    async def send(self, message: Note | Done | Failed, descriptors: Sequence[int] = ()) -> None:
        line = msgspec.json.encode(message) + b"\n"
        async with self._send:
            if descriptors:
                # The first byte takes them along; an answer finds an empty buffer, so this does not block.
                socket.send_fds(self._socket, [line[:1]], list(descriptors))
                line = line[1:]
            await asyncio.get_running_loop().sock_sendall(self._socket, line)

    async def _readable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._socket, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._socket)
