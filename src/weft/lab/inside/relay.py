"""Ways into a lab from the machine: connections to a loopback port go on to a port in the lab.

The command that starts the lab has opened the listening socket, so it belongs to the machine's namespace.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from weft.lab import spec
from weft.lab.inside import underlay

_CHUNK: Final = 1 << 16


async def relay(listener: socket.socket, host: str, port: int) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner = await asyncio.open_connection(host, port)
        except OSError:  # nothing listens there: so it seems outside, too
            writer.transport.abort()
            return
        with closing(writer), closing(inner[1]):
            await asyncio.gather(_copy(reader, inner[1]), _copy(inner[0], writer))

    await asyncio.start_server(forward, sock=listener)


async def lead_in(lab: spec.Lab, listeners: Sequence[socket.socket], note: Callable[[str], None]) -> None:
    """`listeners` are the machine's ports, in the nodes' order."""
    ports = [(node, port) for node in lab.nodes for port in node.ports]
    for (wanted, port), listener in zip(ports, listeners, strict=True):
        at = underlay.address_of(wanted, lab.families[0])
        await relay(listener, str(at), port.inside)
        note(f"port {port.outside} of {port.address} leads to port {port.inside} of {wanted.name}")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
