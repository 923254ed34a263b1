"""Takes the connections of others to a mesh, and shakes hands.

Somebody without the password costs little: so many handshakes at once and a second, with so many bytes and seconds for
each; the kernel keeps the others waiting.
"""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn

from weft.cluster.mesh.complaints import Complaints
from weft.cluster.mesh.link import Link
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.records import HANDSHAKE_SECONDS, HANDSHAKES_A_SECOND, MAX_UNFINISHED
from weft.wire.mesh import Hostile
from weft.wire.meshlink import OtherPassword

log = logging.getLogger(__name__)

_WAITING: Final = 64  # connections that the kernel keeps for us

Begin = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Listening:
    """`begin` starts a task, `meet` shakes hands, and `carry` is what a link is for, until it is down."""

    def __init__(
        self,
        complaints: Complaints,
        begin: Begin,
        meet: Callable[[socket.socket], Awaitable[Link]],
        carry: Callable[[Link, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._complaints = complaints
        self._begin = begin
        self._meet = meet
        self._carry = carry
        self._unfinished: dict[socket.socket, tuple[asyncio.Task[None], str]] = {}  # handshakes: with which host

    async def run(self, listener: socket.socket) -> NoReturn:
        loop = asyncio.get_running_loop()
        free = loop.time()  # when the next handshake may begin
        while True:
            await _readable(listener)
            free = max(free, loop.time() - MAX_UNFINISHED / HANDSHAKES_A_SECOND) + 1 / HANDSHAKES_A_SECOND
            await asyncio.sleep(free - loop.time())
            try:
                connection, (host, *_) = listener.accept()
            except OSError as error:  # it has gone already, or this process has too many descriptors
                log.debug("mesh: a connection cannot be taken: %s", error)
                continue
            self._make_room()
            host = host.removeprefix("::ffff:")
            self._unfinished[connection] = self._begin(self._take(connection, host)), host

    def _make_room(self) -> None:
        """The oldest handshake of the host that has begun most of them makes room: so nobody can hold all places."""
        if len(self._unfinished) < MAX_UNFINISHED:
            return
        hosts = Counter(host for _, host in self._unfinished.values())
        connection = max(self._unfinished, key=lambda each: hosts[self._unfinished[each][1]])
        task, host = self._unfinished.pop(connection)
        task.cancel()
        self._complaints.take(host, Hostile("many", f"it has begun {hosts[host]} of {MAX_UNFINISHED} handshakes"))

    async def _take(self, connection: socket.socket, host: str) -> None:
        if (link := await self._shaken(connection, host)) is not None:
            await self._carry(link, host)

    async def _shaken(self, connection: socket.socket, host: str) -> Link | None:
        """None if it is closed."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                return await self._meet(connection)
        except (Hostile, OtherPassword) as error:
            self._complaints.take(host, error)
        except TimeoutError:
            self._complaints.take(host, Hostile("late", f"no handshake within {HANDSHAKE_SECONDS:g} s"))
        except OSError as error:
            log.debug("mesh: %s: %s", host, error)
        finally:
            self._unfinished.pop(connection, None)
        return None


def listener(port: int, holder: Callable[[int], str]) -> socket.socket:
    """Raises `ConfigError` (INST-001) when another program has the port, which `holder` names."""
    try:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        made = socket.create_server(("", port), family=family, backlog=_WAITING, dualstack_ipv6=both)
    except OSError as error:
        seen = f"TCP port {port} cannot be used: {error.strerror}"
        if error.errno == errno.EADDRINUSE and (name := holder(port)):
            seen = f"TCP port {port} is held by {name}"
        raise ConfigError(Problem(code="INST-001", where="--mesh", seen=seen, expected="a free port")) from None
    made.setblocking(False)  # noqa: FBT003
    return made


async def _readable(listener: socket.socket) -> None:
    """Of asyncio, `sock_accept` loses a connection that comes when it is cancelled, and complains."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)
