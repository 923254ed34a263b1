"""A client of the CNI socket until its request is complete. In the event loop, and waits for nothing."""

import asyncio
import errno
import logging
import os
import socket
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from weft.kernel.unixsockets import peer_of
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
