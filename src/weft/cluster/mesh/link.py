"""One TCP connection of a mesh: what comes and goes in turns, and the end of a link that makes sense of it."""

import asyncio
import socket
from typing import Final

from weft.model.mesh.messages import Hello, Message
from weft.model.mesh.records import MAX_FRAME
from weft.wire.mesh import Hostile
from weft.wire.meshlink import End, OtherPassword

_CHUNK: Final = 1 << 14  # bytes that are read of a link before the next gets its turn
_UNSENT: Final = 4 * MAX_FRAME  # bytes for a peer that does not take them
_CLOSE_SECONDS: Final = 2.0  # for the last words of a link


class Slow(Exception):
    """The peer does not take what it is sent."""


class Link:
    """A connection, from the first byte on. `dialled` is the address, if we have made it."""

    def __init__(
        self, number: int, end: End, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, dialled: str | None
    ) -> None:
        self.number = number
        self.dialled = dialled
        self.peer: Hello  # once hands are shaken
        self.heard: list[Message] = []
        self._end = end
        self._reader = reader
        self._writer = writer

    async def meet(self) -> None:
        """Shake hands. Raises as `hear` does."""
        try:
            self._flush()
            while (peer := self._end.peer) is None:
                await self.hear()
            self.peer = peer
        except (Hostile, OtherPassword):
            self.close()  # the last word says why
            raise
        except BaseException:
            self.abort()
            raise

    async def hear(self) -> None:
        """Raises `Hostile`, `OtherPassword` and `OSError`, also when the other side has closed it."""
        data = await self._reader.read(_CHUNK)
        if not data:
            raise ConnectionError("it closed the link")
        try:
            self.heard = self._end.feed(data)
        finally:
            self._flush()

    def say(self, message: Message) -> None:
        """Raises `ValueError` for one that is too long, and `Slow`."""
        self._end.say(message)
        self._flush()
        if self._writer.transport.get_write_buffer_size() > _UNSENT:
            raise Slow

    def _flush(self) -> None:
        self._writer.write(bytes(self._end.unsent))
        self._end.unsent.clear()

    def close(self) -> None:
        """What was said is sent, if the other side takes it soon."""
        self._writer.close()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.abort)

    def abort(self) -> None:
        self._writer.transport.abort()


async def linked(connection: socket.socket, end: End, *, number: int, dialled: str | None) -> Link:
    """Takes the connection, which is closed if that fails."""
    try:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_CHUNK)
    except BaseException:
        connection.close()
        raise
    return Link(number, end, reader, writer, dialled=dialled)
