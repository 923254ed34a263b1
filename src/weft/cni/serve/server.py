"""Accepts CNI clients and reads their requests, in the event loop; the work is done in threads (`session`).

Nothing here waits: a slow client costs descriptors and a timer, a plugin that blocks costs a thread. Clients above a
limit wait in the socket's backlog, and after a while a stand-in does their work.
"""

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from weft.cni.host.host import NodeHandles
from weft.cni.host.locks import VARIABLE, ContainerLocks
from weft.cni.serve.endpoint import Endpoint
from weft.cni.serve.session import Plugins, Service, Session
from weft.cni.serve.workers import Workers
from weft.kernel.unixsockets import peer_of
from weft.model.errors import Problem
from weft.wire import cni, frames
from weft.wire.cni import CniError, Ran
from weft.wire.frames import Call, FrameError, VariableError, VersionError

# MAX_FDS in weft.h. Four are used; older clients send the first-level directories of /proc/sys/net as well.
MAX_DESCRIPTORS: Final = 32
_CHUNK: Final = 1 << 16  # one configuration in one piece; a buffer this small costs no system call
# Plain numbers are quicker than the enum.
_CUT_OFF: Final = int(socket.MSG_CTRUNC)
_NOW: Final = int(socket.MSG_DONTWAIT)
_CLOSED_ON_EXEC: Final = int(socket.MSG_CMSG_CLOEXEC)

# Our own work on one request, without waiting for delegates. The client waits longer (ANSWER_SECONDS in weft.h).
LIMIT_SECONDS: Final = 30.0
# A client writes its request at once; it has nothing to wait for.
_REQUEST_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 1.0
# How long a stop lets requests come in that a client has begun to send, those that run end, and the others undo.
_LAST_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0
_UNDO_SECONDS: Final = 3.0
# How long nothing is accepted after that has failed: the kernel says why at each look, and lets each look fail at once.
_REST_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 60.0
_GLANCE_SECONDS: Final = 0.005
# A service manager's usual 1024 descriptors are too few for a node that starts all its pods.
_ROOM: Final = 1 << 16
# Other work needs so many of them, and one request at most so many: a client and what it has sent (6), the
# container's settings (2), netlink (2), locks (2), and 11 while a program is started, 7 of which stay until it ends.
_RESERVED: Final = 64
_EACH: Final = 23
# Requests at a time, those that wait for something included: no node starts more pods at once, and each is a thread.
_MOST_REQUESTS: Final = 256
_LEAST_REQUESTS: Final = 4
LEAST_DESCRIPTORS: Final = _RESERVED + _LEAST_REQUESTS * _EACH
# All GCs are of one line: the key of no container.
_GC: Final = ""
_log = logging.getLogger(__name__)


class Incoming:
    """Its descriptors are ours from the first byte on."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        loop: asyncio.AbstractEventLoop,
        done: "Callable[[Incoming], None]",
        complete: "Callable[[Incoming, Call, int], None]",
    ) -> None:
        self.connection = connection
        self.descriptors: list[int] = []
        self.since = time.monotonic()
        self._done = done
        self._complete = complete
        self._reader = frames.FrameReader()
        self._loop = loop
        self._watched = False

    def start(self) -> None:
        _, uid = peer_of(self.connection)
        if uid != 0:
            _log.warning("CNI client refused: uid=%d", uid)
            self.refuse(CniError(cni.INTERNAL, f"uid {uid} may not ask weftd: only root may"))
            return
        self._readable()

    def refuse(self, error: CniError) -> None:
        data = frames.encode_done(Ran(exit=1, stdout=error.render()))
        with suppress(OSError):
            self.connection.send(data, _NOW)
        self.hang_up()

    def hang_up(self) -> None:
        self._leave()
        self.connection.close()
        for fd in self.descriptors:
            os.close(fd)

    def _leave(self) -> None:
        if self._watched:
            self._loop.remove_reader(self.connection.fileno())
        self._done(self)

    def _readable(self) -> None:
        try:
            self._take(self._receive())
        except BlockingIOError:
            self._wait()
        except OSError:
            self.hang_up()
        except VersionError as error:
            self.refuse(CniError(cni.TRY_AGAIN, str(error)))
        except VariableError as error:
            self.refuse(CniError(cni.BAD_ENVIRONMENT, str(error)))
        except FrameError as error:
            self.refuse(CniError(cni.INTERNAL, f"the request cannot be read: {error}"))

    def _wait(self) -> None:
        if not self._watched:
            self._watched = True
            # A number, not the socket: to find that a socket is not registered, asyncio describes it at length.
            self._loop.add_reader(self.connection.fileno(), self._readable)

    def _receive(self) -> bytes:
        if not self._reader.empty:
            return self.connection.recv(_CHUNK, _NOW)
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
        data, ancillary, flags, _ = self.connection.recvmsg(_CHUNK, room, _NOW | _CLOSED_ON_EXEC)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.descriptors += array("i", content[: len(content) // 4 * 4])
        if flags & _CUT_OFF and len(self.descriptors) < MAX_DESCRIPTORS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if flags & _CUT_OFF:
            raise FrameError(f"more than {MAX_DESCRIPTORS} descriptors")
        return data

    def _take(self, data: bytes) -> None:
        if not data:
            raise FrameError("the connection was closed in the middle of a frame")
        frame = self._reader.feed(data)
        if frame is None:
            self._wait()
            return
        call = frames.decode_call(frame)
        if len(call.descriptors) != len(self.descriptors) or len(set(call.descriptors)) != len(self.descriptors):
            raise FrameError(f"{len(self.descriptors)} descriptors with the names {call.descriptors}")
        self._leave()
        self._complete(self, call, frame.version)


async def serve(
    endpoint: Endpoint, node: NodeHandles, *, run: Plugins, limit: float = LIMIT_SECONDS, idle: float = math.inf
) -> None:
    """Until cancelled, or without a client for `idle` seconds. `run` is called in worker threads."""
    room = _make_room()
    server = _Server(endpoint, room, Service(node=node, locks=ContainerLocks(node.state), run=run, limit=limit))
    server.start()
    try:
        await server.watch(idle)
    finally:
        await server.stop()


def _make_room() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ROOM if hard == resource.RLIM_INFINITY else min(_ROOM, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    room = _ROOM if soft == resource.RLIM_INFINITY else soft
    return max(_LEAST_REQUESTS, min(_MOST_REQUESTS, (room - _RESERVED) // _EACH))


class _Server:
    def __init__(self, endpoint: Endpoint, room: int, service: Service) -> None:
        self._endpoint = endpoint
        self._room = room
        self._service = service
        self._workers = Workers()
        self._loop = asyncio.get_running_loop()
        self._incoming: set[Incoming] = set()
        self._sessions: set[Session] = set()
        self._busy_until = time.monotonic()
        self._accepts = False
        self._rests_until = 0.0
        self._says_again = 0.0

    def start(self) -> None:
        self._service.locks.sweep()
        self._admit()

    async def watch(self, idle: float) -> None:
        while time.monotonic() - self._busy_until < idle:
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            if self._sessions or self._incoming:
                self._busy_until = now
            for session in tuple(self._sessions):
                if session.deserted():
                    self._drop(session)
                elif session.overdue(now):
                    session.cut_off(f"weftd did not finish within {self._service.limit:g} s")
            for incoming in tuple(self._incoming):
                if now - incoming.since > _REQUEST_SECONDS:
                    incoming.refuse(CniError(cni.TRY_AGAIN, f"no request within {_REQUEST_SECONDS:g} s"))
            self._admit()
            self._workers.catch_up()

    async def stop(self) -> None:
        self._endpoint.hide()
        end = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < end:
            while self._accept():
                pass
            if not self._incoming:
                break
            await asyncio.sleep(_GLANCE_SECONDS)
        self._loop.remove_reader(self._endpoint.socket.fileno())
        self._endpoint.close()
        for incoming in tuple(self._incoming):
            incoming.hang_up()
        if not await self._is_idle_within(_STOP_SECONDS):
            for session in tuple(self._sessions):
                if not self._drop(session):
                    session.cut_off("weftd is stopping")
            await self._is_idle_within(_UNDO_SECONDS)
        self._workers.close()
        self._service.node.close()

    async def _is_idle_within(self, seconds: float) -> bool:
        """Not in a thread: there may be none left for it."""
        end = time.monotonic() + seconds
        while not (idle := self._workers.wait_idle(0)) and time.monotonic() < end:  # noqa: ASYNC110 - a thread tells it
            await asyncio.sleep(_GLANCE_SECONDS)
        return idle

    def _admit(self) -> None:
        """Accept clients, unless there is no room for more requests, or accepting has just failed."""
        room = self._room - len(self._incoming) - len(self._sessions)
        accepts = room > 0 and time.monotonic() >= self._rests_until
        if accepts == self._accepts:
            return
        self._accepts = accepts
        if accepts:
            self._loop.add_reader(self._endpoint.socket.fileno(), self._accept)
        else:
            self._loop.remove_reader(self._endpoint.socket.fileno())

    def _accept(self) -> bool:
        try:
            connection, _ = self._endpoint.socket.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            self._rest(error)
            return False
        self._busy_until = time.monotonic()
        incoming = Incoming(connection, loop=self._loop, done=self._incoming.discard, complete=self._dispatch)
        self._incoming.add(incoming)
        incoming.start()
        self._admit()
        return True

    def _rest(self, error: OSError) -> None:
        now = time.monotonic()
        self._rests_until = now + _REST_SECONDS
        if now >= self._says_again:
            self._says_again = now + _SILENCE_SECONDS
            seen = f"cannot accept a client: {error}"
            hint = "Clients wait; after 15 s a stand-in does the work where there is one."
            _log.warning("%s", Problem(code="RES-001", where="--cni-socket", seen=seen, hint=hint))
        self._admit()

    def _drop(self, session: Session) -> bool:
        dropped = session.drop()
        if dropped:
            self._sessions.discard(session)
        return dropped

    def _dispatch(self, incoming: Incoming, call: Call, version: int) -> None:
        session = Session(
            self._service,
            connection=incoming.connection,
            call=call,
            version=version,
            descriptors=dict(zip(call.descriptors, incoming.descriptors, strict=True)),
        )
        self._sessions.add(session)
        key = call.env.get("CNI_CONTAINERID") or (_GC if call.env.get("CNI_COMMAND") == "GC" else None)
        # What a delegate of a running request asks for must not wait for that request.
        if VARIABLE in call.env and self._service.locks.inside(call.env):
            key = None
        self._workers.submit(key, partial(self._run, session))

    def _run(self, session: Session) -> None:
        try:
            session.serve()
        finally:
            self._sessions.discard(session)
            if not self._accepts:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._admit)
