"""Ways into a lab from the machine's own network: connections to a loopback port there go on to a port in the lab.

The listening socket was opened by the command that starts the lab, so it belongs to the machine's namespace.
"""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import closing, suppress
from typing import Any, Final

_CHUNK: Final = 1 << 16


class Relay:
    """Passes the connections of one listening socket on to a host and port of the lab."""

    def __init__(self, listener: socket.socket, host: str, port: int) -> None:
        self._listener = listener
        self._host = host
        self._port = port

    async def start(self) -> None:
        """Accept from now on, until the lab ends."""
        await asyncio.start_server(self._pass, sock=self._listener)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner = await asyncio.open_connection(self._host, self._port)
        except OSError:  # nothing listens there: so it seems outside, too
            writer.transport.abort()
            return
        with closing(writer), closing(inner[1]):
            await asyncio.gather(_quietly(_copy(reader, inner[1])), _quietly(_copy(inner[0], writer)))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
        raise


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with suppress(OSError):
        await work
