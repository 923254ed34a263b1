"""A conversation with a charon by its vici socket. Not for an event loop: each call waits for its answer."""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final, Self

from weft.kernel.unixsockets import peer_of
from weft.wire import vici
from weft.wire.vici import Message, Section

LONGEST_PATH: Final = 107  # bytes of a socket's path (struct sockaddr_un)
_SECONDS: Final = 5.0  # for one answer, or one event of a list
_LENGTH: Final = Struct("!I")
_MOST: Final = 512 * 1024  # bytes of a packet (vici's README.md)


class Session:
    """A connection to a charon. A context manager; `close` it otherwise.

    Answers do not say which request they belong to: after a missing one, each would be taken for the next. So every
    failure but a refusal ends the session, and all later calls raise ENOTCONN.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._ended = ""
        self.pid, _ = peer_of(connection)

    @classmethod
    def to(cls, path: Path) -> Self | None:
        """None if no charon listens there. Raises `OSError`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_SECONDS)
        try:
            connection.connect(str(path))
            return cls(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, command: str, message: Message | None = None) -> Section:
        """Raises `OSError`: EREMOTEIO with charon's words for what it refuses."""
        with self._whole():
            self._send(vici.packet(vici.REQUEST, command, message))
            return _checked(command, self._receive())

    def list(self, command: str, event: str, take: Callable[[Section], None]) -> None:
        """Have charon send a list, an event for each entry, which `take` gets. Raises `OSError`."""
        with self._whole():
            self._register(vici.REGISTER, event)
            self._send(vici.packet(vici.REQUEST, command, {}))
            while (answer := self._receive())[0] == vici.EVENT:
                take(answer[1])
            _checked(command, answer)
            self._register(vici.UNREGISTER, event)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._ended:
            raise OSError(errno.ENOTCONN, f"the conversation with charon has ended: {self._ended}")
        try:
            yield
        except OSError as error:
            if error.errno != errno.EREMOTEIO:
                self._ended = error.strerror or str(error)
                self.close()
            raise

    def _register(self, kind: int, event: str) -> None:
        self._send(vici.packet(kind, event))
        answer, _ = self._receive()
        if answer != vici.CONFIRM:
            raise OSError(errno.EPROTO, f"charon does not know the event {event}")

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(_SECONDS)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def _receive(self) -> tuple[int, Section]:
        end = time.monotonic() + _SECONDS
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size, end))
        if length > _MOST:
            raise OSError(errno.EPROTO, f"charon announces {length} bytes")
        try:
            return vici.unpack(self._bytes(length, end))
        except vici.Unreadable as error:
            raise OSError(errno.EPROTO, f"charon's answer: {error}") from None

    def _bytes(self, count: int, end: float) -> bytes:
        """Read so many bytes before the time `end`, however slowly they come."""
        data = bytearray()
        while len(data) < count:
            self._socket.settimeout(max(end - time.monotonic(), 0.001))
            more = self._socket.recv(count - len(data))
            if not more:
                raise OSError(errno.EPIPE, "charon has closed the connection")
            data += more
        return bytes(data)


def _checked(command: str, answer: tuple[int, Section]) -> Section:
    kind, told = answer
    if kind != vici.RESPONSE:
        raise OSError(errno.EPROTO, f"charon does not know the command {command}")
    if told.get("success", "yes") != "yes":
        raise OSError(errno.EREMOTEIO, f"charon refuses {command}: {told.get('errmsg', 'it does not say why')}")
    return told
