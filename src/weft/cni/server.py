"""Accepts CNI clients and reads their requests, in the event loop; the work is done in threads (`session`).

Nothing here waits: a slow client costs a descriptor and a timer, and a plugin that blocks costs a thread.
"""

import asyncio
import logging
import os
import resource
import socket
import struct
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from weft.cni.endpoint import Endpoint
from weft.cni.locks import VARIABLE, ContainerLocks
from weft.cni.opened import Node
from weft.cni.session import Plugins, Service, Session
from weft.cni.turns import Turns
from weft.wire import cni, frames
from weft.wire.cni import CniError
from weft.wire.frames import Call, FrameError, VariableError, VersionError

# Our own work on one request, without waiting for delegates. The client waits longer (ANSWER_TIMEOUT in weft.h).
LIMIT_SECONDS: Final = 30.0
# A client writes its request at once; it has nothing to wait for.
_REQUEST_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0
# They share one interpreter and the kernel's one rtnetlink lock: with two or more, each ADD of many takes half as much
# CPU time again, spent on handing the interpreter over at each system call.
_PLACES: Final = 1
# Whoever takes longer is taken to wait: for other hosts, for a program, for a slow disk. No request takes half of it.
_LONG_SECONDS: Final = 0.02
# So many may wait like that, because all of them may run a program, and compete for what it needs. Should as many hang,
# others wait for the first of them.
_MOST: Final = 16
# MAX_FDS in weft.h. Four are used; older clients send the first-level directories of /proc/sys/net as well.
_MAX_DESCRIPTORS: Final = 32
# Seven for each request that waits: a service manager's usual 1024 are too few for a node that starts all its pods.
_ROOM: Final = 1 << 16
_CHUNK: Final = 1 << 16  # one configuration in one piece; a buffer this small costs no system call
# Plain numbers are quicker than the enum.
_CUT_OFF: Final = int(socket.MSG_CTRUNC)
_NOW: Final = int(socket.MSG_DONTWAIT)
_CLOSED_ON_EXEC: Final = int(socket.MSG_CMSG_CLOEXEC)
_UCRED: Final = struct.Struct("=iII")  # unix(7): pid, uid, gid

_log = logging.getLogger(__name__)


async def serve(endpoint: Endpoint, node: Node, *, run: Plugins, limit: float = LIMIT_SECONDS) -> None:
    """Serve clients until cancelled; then finish what runs, and close endpoint and node.

    `run` is called in worker threads, for one container at a time and for different containers at once.
    """
    _make_room()
    server = _Server(
        endpoint,
        Service(
            node=node, locks=ContainerLocks(node.state), turns=Turns(places=_PLACES, most=_MOST), run=run, limit=limit
        ),
    )
    server.start()
    try:
        await server.watch()
    finally:
        await server.stop()


def _make_room() -> None:
    """Let this process have as many descriptors as it may allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ROOM if hard == resource.RLIM_INFINITY else min(_ROOM, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Server:
    """The accepting side: connections whose request is not complete, and sessions that run."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint = endpoint
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._incoming: set[_Incoming] = set()
        self._sessions: set[Session] = set()
        self._relief: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._service.locks.sweep()
        self._loop.add_reader(self._endpoint.socket.fileno(), self._accept)

    async def watch(self) -> None:
        """Cut off what takes too long."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            for session in tuple(self._sessions):
                if session.overdue(now):
                    session.cut_off(f"weftd did not finish within {self._service.limit:g} s")
            for incoming in tuple(self._incoming):
                if now - incoming.since > _REQUEST_SECONDS:
                    incoming.refuse(CniError(cni.TRY_AGAIN, f"no request within {_REQUEST_SECONDS:g} s"))

    async def stop(self) -> None:
        """Take nobody in any more, let what runs end, and end it if it does not."""
        self._loop.remove_reader(self._endpoint.socket.fileno())
        self._endpoint.close()
        for incoming in tuple(self._incoming):
            incoming.refuse(CniError(cni.TRY_AGAIN, "weftd is stopping"))
        turns = self._service.turns
        if not await asyncio.to_thread(turns.wait_idle, _STOP_SECONDS):
            for session in tuple(self._sessions):
                session.cut_off("weftd is stopping")
            await asyncio.to_thread(turns.wait_idle, _STOP_SECONDS)
        if self._relief is not None:
            self._relief.cancel()
        turns.close()
        self._service.node.close()

    def _accept(self) -> None:
        """Take one client; if more wait, the event loop calls again."""
        try:
            connection, _ = self._endpoint.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("cannot accept a CNI client: %s", error)
            return
        incoming = _Incoming(connection, loop=self._loop, done=self._incoming.discard, complete=self._dispatch)
        self._incoming.add(incoming)
        incoming.start()

    def _dispatch(self, incoming: "_Incoming", call: Call, version: int) -> None:
        session = Session(
            self._service,
            connection=incoming.connection,
            call=call,
            version=version,
            descriptors=dict(zip(call.descriptors, incoming.descriptors, strict=True)),
        )
        self._sessions.add(session)
        key = call.env.get("CNI_CONTAINERID") or None
        # What a delegate of a running request asks for must not wait for that request.
        if VARIABLE in call.env and self._service.locks.inside(call.env):
            key = None
        if self._service.turns.submit(key, lambda: self._run(session)) and self._relief is None:
            self._relief = self._loop.call_later(_LONG_SECONDS, self._relieve)

    def _relieve(self) -> None:
        """Let requests that are ready not wait for those that wait themselves."""
        self._relief = None
        if self._service.turns.relieve(_LONG_SECONDS):
            self._relief = self._loop.call_later(_LONG_SECONDS, self._relieve)

    def _run(self, session: Session) -> None:
        """In a worker thread."""
        try:
            session.serve()
        finally:
            self._sessions.discard(session)


class _Incoming:
    """A client whose request is being read. Its descriptors are ours from the first byte on."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        loop: asyncio.AbstractEventLoop,
        done: "Callable[[_Incoming], None]",
        complete: "Callable[[_Incoming, Call, int], None]",
    ) -> None:
        self.connection = connection
        self.descriptors: list[int] = []
        self.since = time.monotonic()
        self._done = done
        self._complete = complete
        self._reader = frames.Reader()
        self._loop = loop
        self._watched = False

    def start(self) -> None:
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        if uid != 0:
            _log.warning("CNI client refused: uid=%d", uid)
            self.refuse(CniError(cni.INTERNAL, f"uid {uid} may not ask weftd: only root may"))
            return
        self._readable()

    def refuse(self, error: CniError) -> None:
        """Answer with an error and close."""
        self._leave()
        data = frames.encode_done(frames.Done(exit=1, stdout=error.render()))
        with suppress(OSError):
            self.connection.send(data, _NOW)
        self.connection.close()
        for fd in self.descriptors:
            os.close(fd)

    def _leave(self) -> None:
        if self._watched:
            self._loop.remove_reader(self.connection.fileno())
        self._done(self)

    def _readable(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            self._wait()
            return
        except OSError as error:
            self.refuse(CniError(cni.TRY_AGAIN, f"the request could not be read: {error}"))
            return
        try:
            self._take(data)
        except VersionError as error:
            self.refuse(CniError(cni.TRY_AGAIN, str(error)))
        except VariableError as error:
            self.refuse(CniError(cni.BAD_ENVIRONMENT, str(error)))
        except FrameError as error:
            self.refuse(CniError(cni.INTERNAL, f"the request cannot be read: {error}"))

    def _wait(self) -> None:
        """Be called again when there is more. Mostly the client has sent everything before we look."""
        if not self._watched:
            self._watched = True
            # A number, not the socket: to find that a socket is not registered, asyncio describes it at length.
            self._loop.add_reader(self.connection.fileno(), self._readable)

    def _receive(self) -> bytes:
        if not self._reader.empty:
            return self.connection.recv(_CHUNK, _NOW)
        room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4)
        data, ancillary, flags, _ = self.connection.recvmsg(_CHUNK, room, _NOW | _CLOSED_ON_EXEC)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.descriptors += array("i", content[: len(content) // 4 * 4])
        if flags & _CUT_OFF:
            raise OSError(0, f"more than {_MAX_DESCRIPTORS} descriptors, or no room for them here")
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
