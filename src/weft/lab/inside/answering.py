"""What answers a check's trials at their targets, and says from which address each came.

Sockets in the targets' namespaces, held by the supervisor for the time of a check: no process runs there, and nothing
stays. Only what bears a trial's number is answered.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from weft.kernel import icmp, pathmtu
from weft.lab.checking.trial import Protocol, Trial
from weft.lab.inside import echoes
from weft.lab.inside.cluster import World
from weft.lab.spec import Family

_NUMBERED: Final = struct.Struct("!8sQ")  # the lab's mark, and the flow's number
_WAITING: Final = 256  # connections of one target that are not accepted yet
_LARGEST: Final = 1 << 16
_SECONDS: Final = 5.0  # for what a connection has to say

_Key = tuple[str, Family, Protocol, str]


def numbered(number: int, *, size: int = 0) -> bytes:
    """Return what a flow says, at least `size` bytes of it."""
    return _NUMBERED.pack(echoes.MARK, number).ljust(size, b"\0")


def number_in(data: bytes) -> int:
    """Return the number of a flow; NO_NUMBER if it is none of ours."""
    if len(data) < _NUMBERED.size:
        return echoes.NO_NUMBER
    mark, number = _NUMBERED.unpack_from(data)
    return number if mark == echoes.MARK else echoes.NO_NUMBER


class Answering:
    """The sockets at all targets. `seen` has the address that each flow came from, by its number."""

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}
        self._sockets: dict[_Key, socket.socket] = {}
        self._servers: list[asyncio.Server] = []
        self._heard_by: dict[socket.socket, Callable[[], None]] = {}

    async def open(self, world: World, trials: Iterable[Trial]) -> None:
        """Open what trials need at their targets. `OSError` if that cannot be."""
        for trial in trials:
            key = _key(trial)
            if key in self._sockets:
                continue
            room, address = world.place(trial.target).room, "" if trial.protocol == "icmp" else trial.address
            sock = await world.inside.run(room, partial(_listen, trial.family, trial.protocol, address))
            self._sockets[key] = sock
            await self._serve(sock, trial.family, trial.protocol)

    def port(self, trial: Trial) -> int:
        """Return the port at which a trial's target listens; 0 of ICMP, which has none."""
        if trial.protocol == "icmp":
            return 0
        return int(self._sockets[_key(trial)].getsockname()[1])

    def read_all(self) -> None:
        """Take in what has come and was not read yet: the kernel answers echo requests before we hear of them."""
        for hear in self._heard_by.values():
            hear()

    def close(self) -> None:
        """Close all sockets."""
        for sock in self._heard_by:
            asyncio.get_running_loop().remove_reader(sock)
        for server in self._servers:
            server.close()
        for sock in self._sockets.values():
            sock.close()

    def _note(self, number: int, sender: str) -> None:
        if number != echoes.NO_NUMBER:
            self.seen[number] = sender

    async def _serve(self, sock: socket.socket, family: Family, protocol: Protocol) -> None:
        if protocol == "tcp":
            self._servers.append(await asyncio.start_server(self._converse, sock=sock))
            return
        hear = partial(self._hear_echoes, sock, family) if protocol == "icmp" else partial(self._return, sock)
        self._heard_by[sock] = hear
        asyncio.get_running_loop().add_reader(sock, hear)

    def _hear_echoes(self, sock: socket.socket, family: Family) -> None:
        """Note who asks for an echo, which the kernel sends."""
        for data, sender in _received(sock):
            kind, number = echoes.read(family, data)
            if kind == echoes.REQUEST[family]:
                self._note(number, sender[0])

    def _return(self, sock: socket.socket) -> None:
        """Send each numbered datagram back."""
        for data, sender in _received(sock):
            number = number_in(data)
            self._note(number, sender[0])
            if number != echoes.NO_NUMBER:
                with suppress(OSError):  # the trial says that the answer was lost
                    sock.sendto(data, sender)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send what a connection says back, once, and close it."""
        try:
            async with asyncio.timeout(_SECONDS):
                data = await reader.readexactly(_NUMBERED.size)
                self._note(number_in(data), writer.get_extra_info("peername")[0])
                writer.write(data)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the trial says that it was lost
        finally:
            writer.close()


def _received(sock: socket.socket) -> Iterator[tuple[bytes, tuple[str, int]]]:
    """What has come to a socket that does not wait."""
    with suppress(OSError):  # nothing more, or an answer of before was refused
        while True:
            yield sock.recvfrom(_LARGEST)


def _key(trial: Trial) -> _Key:
    """What tells sockets apart; echo requests to all addresses of a family are heard by one."""
    return trial.target, trial.family, trial.protocol, "" if trial.protocol == "icmp" else trial.address


def _listen(family: Family, protocol: Protocol, address: str) -> socket.socket:
    if protocol == "icmp":
        return icmp.listen(family, (echoes.REQUEST[family],))
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    sock = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, kind)
    try:
        sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
        if protocol == "udp":
            pathmtu.never_fragment(sock, family)
        sock.bind((address, 0))
        if protocol == "tcp":
            sock.listen(_WAITING)
    except OSError:
        sock.close()
        raise
    return sock
