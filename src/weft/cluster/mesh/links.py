"""The TCP links of a mesh: dials and takes links, shakes hands, carries messages. What they mean is the core's affair.

What a peer does not take is kept up to a bound, beyond which its link ends.
"""

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, Final, NoReturn, Protocol

from weft.beside.tasks import watched
from weft.cluster.mesh.complaints import Complaints
from weft.cluster.mesh.link import Link, Slow, linked
from weft.cluster.mesh.listening import Listening, listener
from weft.cluster.mesh.sharedkeys import SharedKeys
from weft.cluster.reach import Endpoint, Reach
from weft.model.errors import Problem
from weft.model.mesh.messages import Hello, Message
from weft.model.mesh.records import HANDSHAKE_SECONDS, KEY_SIZE
from weft.model.net import host_and_port
from weft.model.value import Secret
from weft.wire.mesh import Hostile
from weft.wire.meshlink import End, OtherPassword

log = logging.getLogger(__name__)

_RENEW_SECONDS: Final = 3600.0
_AGAIN_SECONDS: Final = 60.0  # after another password, and after a renewal in vain


class Ears(Protocol):
    """Who hears of links."""

    def up(self, link: int, hello: Hello, dialled: str | None) -> None: ...
    def down(self, link: int) -> None:
        """For any reason but `close`."""
        ...

    def received(self, link: int, message: Message) -> None:
        """Raises `Hostile`."""
        ...

    def undialled(self, address: str, why: Problem) -> None: ...


class _Unreached(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class TcpLinks:
    """`passwords` gives the present ones: none, one or two; `holder` names the process that has a port.

    `refused` counts links by why they were closed: by kind, the hostile ones, and `password`.
    """

    def __init__(
        self,
        private: bytes,
        ears: Ears,
        hello: Callable[[], Hello],
        *,
        port: int,
        passwords: Callable[[], Awaitable[tuple[Secret, ...]]],
        random: Callable[[int], bytes],
        holder: Callable[[int], str],
        refused: Counter[str],
    ) -> None:
        self._private = private
        self._ears = ears
        self._hello = hello
        self._port = port
        self._keys = SharedKeys(passwords)
        self._random = random
        self._holder = holder
        self._reach = Reach(HANDSHAKE_SECONDS)
        self._complaints = Complaints(time.monotonic, refused)
        self._numbers = count(1)
        self._links: dict[int, Link] = {}  # those that are up
        self._refused: dict[str, tuple[float, Problem]] = {}  # addresses, until when
        self._tasks = set[asyncio.Task[None]]()

    async def run(self) -> NoReturn:
        """Listen until cancelled. Raises `ConfigError` (INST-001) when another program has the port."""
        try:
            with listener(self._port, self._holder) as listens:
                await self._keys.now()  # what that takes is not taken from the time of a handshake
                await Listening(self._complaints, self._begin, self._met, self._carry).run(listens)
        finally:
            self._links.clear()
            await asyncio.sleep(0)  # what is cancelled before it has begun does not close the connection it was given
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- for the core

    def dial(self, address: str) -> None:
        self._begin(self._dial(address))

    def send(self, link: int, message: Message) -> None:
        """To a link that is down nothing is sent: that has been told."""
        known = self._links.get(link)
        if known is not None:
            try:
                known.say(message)
            except Slow:
                log.info("mesh: link %d is closed: its peer does not take what it is sent", link)
                known.abort()
            except ValueError:
                log.exception("INST-002 mesh: a message is too long, and its link is closed. Report this")
                known.abort()

    def close(self, link: int, why: str) -> None:
        known = self._links.pop(link, None)
        if known is not None:
            log.debug("mesh: link %d is closed: %s", link, why)
            known.close()

    # --- to others

    async def _dial(self, address: str) -> None:
        try:
            link = await self._reached(address)
        except _Unreached as error:
            self._ears.undialled(address, error.problem)
        else:
            await self._carry(link, address)

    async def _reached(self, address: str) -> Link:
        """Raises `_Unreached`."""
        loop = asyncio.get_running_loop()
        until, problem = self._refused.get(address, (0.0, None))
        if problem is not None and until > loop.time():
            raise _Unreached(problem)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                return await self._met(await self._reach.open(_endpoint(address)), dialled=address)
        except (Hostile, OtherPassword) as error:
            problem = self._complaints.take(address, error)
            if isinstance(error, OtherPassword):
                self._refused = {each: it for each, it in self._refused.items() if it[0] > loop.time()}
                self._refused[address] = (loop.time() + _AGAIN_SECONDS, problem)
        except OSError as error:
            problem = _unanswered(address, error)
        raise _Unreached(problem)

    async def _renew(self, old: Link, address: str) -> None:
        """Replace a link after an hour. When the new one is up, the core closes the old one."""
        await asyncio.sleep(_RENEW_SECONDS * (1 + self._random(1)[0] / 2560))
        while self._links.get(old.number) is old:
            try:
                link = await self._reached(address)
            except _Unreached as error:
                log.debug("mesh: link %d is not replaced yet: %s", old.number, error.problem)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._begin(self._carry(link, address))
                return

    # --- both

    async def _met(self, connection: socket.socket, *, dialled: str | None = None) -> Link:
        """Shake hands. Raises `Hostile`, `OtherPassword` and `OSError`."""
        try:
            shared = await self._keys.now()
        except BaseException:
            connection.close()
            raise
        end = End(
            initiator=dialled is not None,
            static=self._private,
            ephemeral=self._random(KEY_SIZE),
            shared=shared,
            hello=self._hello,
        )
        link = await linked(connection, end, number=next(self._numbers), dialled=dialled)
        await link.meet()
        return link

    async def _carry(self, link: Link, host: str) -> None:
        """Tell the ears of the link and of all that comes over it, as long as it is up."""
        self._links[link.number] = link
        renewal = None if link.dialled is None else self._begin(self._renew(link, link.dialled))
        try:
            self._ears.up(link.number, link.peer, link.dialled)
            while True:
                for message in link.heard:
                    self._ears.received(link.number, message)
                await asyncio.sleep(0)  # others have their turn, also if more is there already
                await link.hear()
        except Hostile as error:
            self._complaints.take(host, error)
        except OSError as error:
            log.debug("mesh: link %d is down: %s", link.number, error)
        finally:
            link.close()
            if renewal is not None:
                renewal.cancel()
            if self._links.pop(link.number, None) is not None:
                self._ears.down(link.number)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = watched(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _endpoint(address: str) -> Endpoint:
    """Raises `OSError`."""
    try:
        host, port = host_and_port(address)
    except ValueError as error:
        raise OSError(str(error)) from None
    return Endpoint(url=address, host=host, port=port, tls=False)


def _unanswered(address: str, error: OSError) -> Problem:
    seen = os.strerror(error.errno) if error.errno else str(error)
    if isinstance(error, TimeoutError):
        seen = f"no answer within {HANDSHAKE_SECONDS:g} s"
    hint = "Check that weftd runs there with --mesh, and that TCP port 51820 is open between the nodes"
    return Problem(code="MESH-001", where=f"mesh: {address}", seen=seen, hint=hint)
