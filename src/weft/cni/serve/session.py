"""One request of one client, from its frame to its answer. Runs in a worker thread and may block.

An ADD whose answer the client has not read is undone, and a request does not begin when the client has gone.
"""

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from struct import Struct
from typing import Final

from weft.cni.host.host import ClientGone, Host, NodeHandles, Request
from weft.cni.host.locks import GC_SECONDS, VARIABLE, ContainerLocks, Turn
from weft.model.value import Value, replace
from weft.wire import cni, frames
from weft.wire.cni import CniError, Ran, failure
from weft.wire.frames import Call, FrameError

# How long a client may take to read what it has been waiting for.
_READ_SECONDS: Final = 10.0
# How long a client may take for what it is asked to do while it waits: to open something, to take an order.
_ORDER_SECONDS: Final = 10.0
# How long the delegates of one request may run: longer than any runtime waits for a plugin.
_DELEGATE_SECONDS: Final = 300.0
_CHUNK: Final = 1 << 16
_TIMEVAL: Final = Struct("@ll")
_SEND: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_PEEK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # a plain number is quicker than the enum

_log = logging.getLogger(__name__)

Plugins = Callable[[Request, Host], Ran]


class Service(Value):
    """`limit` is in seconds and counts our own work alone."""

    node: NodeHandles
    locks: ContainerLocks
    run: Plugins
    limit: float


class Session:
    """A connection whose request has been read. `serve` ends it; other threads may call all that is public."""

    def __init__(
        self, service: Service, *, connection: socket.socket, call: Call, version: int, descriptors: Mapping[str, int]
    ) -> None:
        self._service = service
        self._connection = connection
        self._call = call
        self._version = version
        self._descriptors = descriptors
        self._opened = list(descriptors.values())
        self._turn: Turn | None = None
        self._guard = threading.Lock()
        self._taken = False
        self._answered = False
        self._came = time.monotonic()
        self._since: float | None = self._came
        self._spent = 0.0
        self._patience = GC_SECONDS if call.env.get("CNI_COMMAND") == "GC" else _DELEGATE_SECONDS

    @property
    def request(self) -> Request:
        call = self._call
        return Request(
            plugin=call.plugin,
            command=call.env.get("CNI_COMMAND", ""),
            env=call.env,
            stdin=call.stdin,
            stdin_error=call.stdin_error,
            waited=time.monotonic() - self._came,
        )

    def serve(self) -> None:
        if not self._take():
            return
        self._start_clock()
        try:
            with ExitStack() as held:
                try:
                    self._turn = held.enter_context(self._service.locks.hold(self._call.env))
                except OSError as error:  # without the locks two could do the same
                    raise CniError(cni.IO_FAILURE, f"STATE-002 locks below --state-dir: {error.strerror}") from error
                self._serve()
        except CniError as error:
            self._reply(Ran(exit=1, stdout=error.render()))
        except OSError as error:
            if not self._reply(Ran(exit=1, stdout=failure(str(error)).render())):
                _log.error("after the answer to a CNI request: %s", error)
        finally:
            self._close()

    def drop(self) -> bool:
        """Hang up unless a thread has taken it: its client then asks another server. Returns whether it is over."""
        taken = self._take()
        if taken:
            self._close()
        return taken

    def deserted(self) -> bool:
        with self._guard:
            return not self._taken and self._gone()

    def _take(self) -> bool:
        with self._guard:
            taken, self._taken = self._taken, True
        return not taken

    def _close(self) -> None:
        self._close_descriptors()
        self._connection.close()

    def overdue(self, now: float) -> bool:
        with self._guard:
            since, spent = self._since, self._spent
        return not self._answered and since is not None and spent + now - since > self._service.limit

    def cut_off(self, why: str) -> None:
        """Answer in place of the worker, which then finds no client to answer and undoes what it did."""
        done = Ran(exit=1, stdout=CniError(cni.TRY_AGAIN, why).render())
        with self._guard:
            answered, self._answered = self._answered, True
        if not answered:
            with suppress(OSError):
                self._connection.send(self._encode(done), socket.MSG_DONTWAIT)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        request = self.request
        with closing(
            Host(
                self._service.node,
                plugin=request.plugin,
                descriptors=self._descriptors,
                env=request.env,
                netns_problem=self._call.netns_problem,
                delegate=self._delegate,
                settings=self._open_settings,
            )
        ) as host:
            self._service.node.keep_root(self._descriptors["root"])
            if not self._begin():
                return  # nothing has been done for it yet
            try:
                done = self._service.run(request, host)
            except ClientGone:
                self._abandon(request, host)
                return
            if request.command == "ADD" and done.exit == 0:
                # The container's namespace stays open until the client has what it asked for: to undo it, if need be.
                if self._gone() or not self._reply(done) or not self._was_read():
                    self._abandon(request, host)
                return
        self._close_descriptors()
        self._reply(done)

    def _begin(self) -> bool:
        if self._version < frames.TELLS_BEGUN:
            return not self._gone()
        if self._answered:
            return False
        try:
            self._connection.send(frames.encode_begun(version=self._version), _SEND)
        except OSError:
            return False
        return True

    def _gone(self) -> bool:
        """Tell whether the client has closed its end, or was cut off."""
        if self._answered:
            return True
        try:
            return not self._connection.recv(1, _PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _reply(self, done: Ran) -> bool:
        with self._guard:
            if self._answered:
                return False
            self._answered = True
        try:
            self._connection.settimeout(_READ_SECONDS)
            self._connection.sendall(self._encode(done))
        except OSError:
            return False
        return True

    def _encode(self, done: Ran) -> bytes:
        try:
            return frames.encode_done(done, version=self._version)
        except FrameError as error:
            refusal = CniError(cni.INTERNAL, f"the answer cannot be sent: {error}")
            return frames.encode_done(Ran(exit=1, stdout=refusal.render()), version=self._version)

    def _was_read(self) -> bool:
        """Wait for the client's end. The kernel says ECONNRESET if it closed without having read everything."""
        try:
            return not self._connection.recv(1)
        except TimeoutError:
            return True  # it lives and is slow; what it has been sent stands
        except OSError:
            return False

    def _delegate(self, name: str, command: str, env: Mapping[str, str], stdin: bytes) -> Ran | None:
        if not frames.is_name(name):
            return None
        changes = {**env, "CNI_COMMAND": command}
        if self._turn is not None:
            changes[VARIABLE] = self._turn.token()
        try:
            order = frames.encode_run(frames.Run(name=name, stdin=stdin, changes=changes), version=self._version)
        except FrameError as error:
            raise CniError(cni.INTERNAL, f"delegate {name!r} cannot be called: {error}") from error
        with self._guard:
            if self._since is not None:
                self._spent += time.monotonic() - self._since
            self._since = None
        began = time.monotonic()
        try:
            self._order(order, seconds=max(self._patience, 1e-3))
            ran = frames.decode_ran(self._receive())
        except BlockingIOError as error:
            limit = time.monotonic() - began
            self.cut_off(f"the plugin {name!r} has not ended within {limit:.0f} s and is not waited for any more")
            raise ClientGone(f"{name} hangs") from error
        except (OSError, FrameError) as error:
            raise ClientGone(str(error)) from error
        finally:
            self._patience -= time.monotonic() - began
            self._start_clock()
        return ran

    def _open_settings(self, name: str) -> int:
        if not frames.is_name(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        try:
            self._order(frames.encode_open(name, version=self._version), seconds=_ORDER_SECONDS)
            data, found, _, _ = socket.recv_fds(self._connection, _CHUNK, 1, socket.MSG_CMSG_CLOEXEC)
            self._opened += found
            number = frames.decode_opened(self._receive(data))
        except (OSError, FrameError) as error:
            raise ClientGone(str(error)) from error
        if number:
            raise OSError(number, os.strerror(number), name)
        if not found:
            raise ClientGone("the client says that it has opened settings, and has sent no descriptor")
        return found[0]

    def _order(self, order: bytes, *, seconds: float) -> None:
        """Tell the client what to do; it may take so long. What takes longer is a `BlockingIOError`."""
        # Not `settimeout`, with which each call costs another one.
        for option, limit in ((socket.SO_SNDTIMEO, _ORDER_SECONDS), (socket.SO_RCVTIMEO, seconds)):
            self._connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(limit), int(limit % 1 * 1e6)))
        self._connection.sendall(order)

    def _receive(self, data: bytes = b"") -> frames.Frame:
        reader = frames.FrameReader()
        while data := data or self._connection.recv(_CHUNK):
            frame = reader.feed(data)
            if frame is not None:
                return frame
            data = b""
        raise ClientGone("the client left before it had answered")

    def _start_clock(self) -> None:
        with self._guard:
            self._since = time.monotonic()

    def _abandon(self, request: Request, host: Host) -> None:
        """Undo an ADD that no client waits for any more; the plugin notes what it could not have a delegate do."""
        container = request.env.get("CNI_CONTAINERID", "")
        _log.warning("client gone: plugin=%s command=%s container=%s", request.plugin, request.command, container)
        if request.command != "ADD":
            return
        undo = replace(request, command="DEL", env={**request.env, "CNI_COMMAND": "DEL"})
        with suppress(ClientGone):
            done = self._service.run(undo, host)
            if done.exit != 0:
                answer = done.stdout.decode("utf-8", "replace")
                _log.error("could not undo: plugin=%s container=%s answer=%s", request.plugin, container, answer)

    def _close_descriptors(self) -> None:
        while self._opened:
            os.close(self._opened.pop())
