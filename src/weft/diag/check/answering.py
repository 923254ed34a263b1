"""Answers a check's trials at their targets, and says from which address each came.

Sockets are held in the targets' namespaces for the time of a check: no process runs there, and nothing stays. Only what
bears a trial's number is answered.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from typing import Protocol as Interface

from weft.diag.check.trial import Protocol, Trial
from weft.kernel import icmp
from weft.kernel.rtnetlink.attributes import AF
from weft.model.net import Family
from weft.model.value import Value
from weft.wire.icmp import NO_NUMBER, REQUEST, marked, number_in, read_marked

T = TypeVar("T")

_WAITING: Final = 256  # connections of one target that are not accepted yet
_FREEBIND: Final[dict[Family, tuple[int, int]]] = {4: (socket.IPPROTO_IP, 15), 6: (socket.IPPROTO_IPV6, 78)}
_LARGEST: Final = 1 << 16
_AT_ONCE: Final = 4096  # packets, before others get a turn: a pod may be sent more than we read
_SECONDS: Final = 5.0  # for what a connection has to say


class Visit(Interface):
    """Calls a function in the namespaces of a place of trials; `ConfigError` if there is none."""

    async def __call__(self, place: str, work: Callable[[], T]) -> T: ...


class _Listener(Value):
    """A socket at a place: for all addresses if none is named, and at a port that the kernel chooses if it is 0."""

    place: str
    family: Family
    protocol: Protocol
    address: str
    port: int


class Answering:
    """`heard` has the place and the sender of each flow that arrived, by its number."""

    def __init__(self) -> None:
        self.heard: dict[int, tuple[str, str]] = {}
        self._sockets: dict[_Listener, socket.socket | None] = {}  # none where a program there has the port
        self._servers: list[asyncio.Server] = []
        self._heard_by: dict[socket.socket, Callable[[], None]] = {}

    async def open(self, visit: Visit, trials: Iterable[Trial]) -> None:
        """Open what trials need at their targets. Raises `OSError`."""
        for listener in dict.fromkeys(each for trial in trials for each in _listeners(trial)):
            sock = self._sockets[listener] = await visit(listener.place, partial(_open, listener))
            if sock is not None:
                await self._serve(sock, listener)

    def port(self, trial: Trial) -> int:
        """Return the port to which a trial goes; 0 of ICMP, which has none."""
        if trial.afar:
            return 0
        [first, *_] = _listeners(trial)
        sock = self._sockets[first]
        return trial.port or (int(sock.getsockname()[1]) if sock is not None and first.protocol != "icmp" else 0)

    def is_theirs(self, trial: Trial) -> bool:
        return any(self._sockets[each] is None for each in _listeners(trial))

    def read_all(self) -> None:
        """Read what has come: the kernel answers echo requests before we hear of them."""
        for hear in self._heard_by.values():
            hear()

    def close(self) -> None:
        for sock in self._heard_by:
            asyncio.get_running_loop().remove_reader(sock)
        for server in self._servers:
            server.close()
        for sock in filter(None, self._sockets.values()):
            sock.close()

    async def _serve(self, sock: socket.socket, listener: _Listener) -> None:
        if listener.protocol == "tcp":
            self._servers.append(await asyncio.start_server(partial(self._converse, listener.place), sock=sock))
            return
        hear = self._hear_echoes if listener.protocol == "icmp" else self._return
        self._heard_by[sock] = partial(hear, sock, listener)
        asyncio.get_running_loop().add_reader(sock, self._heard_by[sock])

    def _hear_echoes(self, sock: socket.socket, listener: _Listener) -> None:
        for data, sender in _received(sock):
            kind, number = read_marked(listener.family, data)
            if kind == REQUEST[listener.family] and number != NO_NUMBER:
                self.heard[number] = listener.place, sender[0]

    def _return(self, sock: socket.socket, listener: _Listener) -> None:
        for data, sender in _received(sock):
            number = number_in(data)
            if number != NO_NUMBER:
                self.heard[number] = listener.place, sender[0]
                with suppress(OSError):  # the trial says that the answer was lost
                    sock.sendto(data, sender)

    async def _converse(self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                data = await reader.readexactly(len(marked(0)))
                self.heard[number_in(data)] = place, writer.get_extra_info("peername")[0]
                writer.write(data)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the trial says that it was lost
        finally:
            writer.close()


def _received(sock: socket.socket) -> Iterator[tuple[bytes, tuple[str, int]]]:
    with suppress(OSError):  # nothing more, or an answer of before was refused
        for _ in range(_AT_ONCE):
            yield sock.recvfrom(_LARGEST)


def _listeners(trial: Trial) -> list[_Listener]:
    """One socket hears echo requests to all addresses."""
    if trial.afar:
        return []
    at = [(each.pod, each.address) for each in trial.behind] or [(trial.target, trial.address)]
    return [
        _Listener(
            place=place,
            family=trial.family,
            protocol=trial.protocol,
            address="" if trial.protocol == "icmp" else address,
            port=trial.listens,
        )
        for place, address in at
    ]


def _open(listener: _Listener) -> socket.socket | None:
    """Open a socket where the thread is; None if a program has the port. Raises `OSError`."""
    family, protocol = listener.family, listener.protocol
    if protocol == "icmp":
        return icmp.listen(family, (REQUEST[family],))
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    sock = socket.socket(AF[family], kind)
    try:
        sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
        if protocol == "udp":
            icmp.never_fragment(sock, family)
        sock.setsockopt(*_FREEBIND[family], 1)  # where a place has lost its address, trials to it are lost, no more
        sock.bind((listener.address, listener.port))
        if protocol == "tcp":
            sock.listen(_WAITING)
    except OSError as error:
        sock.close()
        if listener.port and error.errno == errno.EADDRINUSE:
            return None
        raise
    return sock
