"""A netlink socket: messages out; acknowledgements, dumps and errors in (linux/netlink.h).

Synchronous: rtnetlink works inside `send`, so an answer waits when `send` returns. One thread at a time.
"""

import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, Self

from weft.kernel.rtnetlink.attributes import Malformed, parse

NETLINK_ROUTE: Final = 0

NLM_F_REQUEST: Final = 0x001
NLM_F_ACK: Final = 0x004
NLM_F_DUMP_INTR: Final = 0x010
NLM_F_DUMP: Final = 0x300
NLM_F_REPLACE: Final = 0x100
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_APPEND: Final = 0x800

NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3

_SOL_NETLINK: Final = 270
_NETLINK_ADD_MEMBERSHIP: Final = 1
_NETLINK_DROP_MEMBERSHIP: Final = 2
_NETLINK_CAP_ACK: Final = 10
_NETLINK_EXT_ACK: Final = 11
_NETLINK_GET_STRICT_CHK: Final = 12
_NLMSGERR_ATTR_MSG: Final = 1
_NLM_F_ACK_TLVS: Final = 0x200

# Have the kernel tell the whole length of a datagram (recv(2)). A plain number: the enum takes longer to be passed.
_TRUNCATED: Final = int(socket.MSG_TRUNC)

# A dump fills at most 32 KiB at a time. A single answer may be larger than this (a link with 496 alternative names):
# then it is lost, asked for again, and finds room.
_BUFFER: Final = 1 << 16
_DUMP_ATTEMPTS: Final = 20
# Counting starts again here: far from where 32 bits end, whatever one batch adds.
_LAST_SEQUENCE: Final = 1 << 31
# Nothing takes so long; it only keeps a broken socket from hanging its thread for good.
_TIMEOUT_SECONDS: Final = 30
_TIMEVAL: Final = struct.Struct("@ll")
_HEADER: Final = struct.Struct("=IHHII")
_ERRNO: Final = struct.Struct("=i")
_ERROR_HEAD: Final = _ERRNO.size + _HEADER.size
_FORCED: Final = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}  # SO_SNDBUFFORCE, SO_RCVBUFFORCE: asm-generic/socket.h


class NetlinkError(OSError):
    """The kernel's refusal: a positive `errno`, and in `extended` the extended-ACK text (often empty)."""

    def __init__(self, number: int, extended: str = "") -> None:
        reason = os.strerror(number)
        super().__init__(number, f"{reason}: {extended}" if extended else reason)
        self.extended = extended


class Torn(NetlinkError):
    """A list that is not whole: ask again."""


class Message(NamedTuple):
    """A request without its header; `flags` are those beyond NLM_F_REQUEST."""

    kind: int
    flags: int
    body: bytes


class Reply(NamedTuple):
    kind: int
    flags: int
    sequence: int
    port: int
    body: bytes


class NetlinkSocket:
    """It acts in the namespace in which it was opened."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`, perhaps from another process. `OSError` before Linux 4.20."""
        self._socket = sock
        self._sequence = 0
        self._buffer = bytearray(_BUFFER)
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(_TIMEOUT_SECONDS, 0))
        for option in (_NETLINK_CAP_ACK, _NETLINK_EXT_ACK, _NETLINK_GET_STRICT_CHK):
            sock.setsockopt(_SOL_NETLINK, option, 1)
        if sock.getsockname()[0] == 0:
            sock.bind((0, 0))
        self.port: int = sock.getsockname()[0]

    @classmethod
    def open(cls, protocol: int = NETLINK_ROUTE) -> Self:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        try:
            return cls(sock)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def request(self, message: Message) -> None:
        """Wait for the acknowledgement. Raises `NetlinkError`."""
        for error in self.batch((message,)).values():
            raise error

    def batch(self, messages: Sequence[Message]) -> dict[int, NetlinkError]:
        """Send all at once, in order, with one acknowledgement; each takes effect on its own.

        Returns the refusals by position. Raises `NetlinkError` when the answers themselves are lost (ENOBUFS): then it
        is unknown what was done.
        """
        if not messages:
            return {}
        return self._refusals(self._send(messages), len(messages))

    def transaction(self, messages: Sequence[Message]) -> dict[int, NetlinkError]:
        """Send an nfnetlink batch: all of it takes effect or, if anything is refused, nothing.

        The first message opens the batch and the last closes it; refusals come by position. A refusal of the first is
        one of the whole, and the only answer.
        """
        # Before Linux 6.10 the closing message is never acknowledged.
        return self._refusals(self._send(messages, acknowledged=-2), len(messages) - 1, whole=True)

    def _refusals(self, first: int, count: int, *, whole: bool = False) -> dict[int, NetlinkError]:
        """With `whole`, a refusal of the first is the only answer."""
        last = first + count - 1
        refused: dict[int, NetlinkError] = {}
        while True:
            replies = self._receive()
            if replies is None:
                raise NetlinkError(errno.EMSGSIZE, "an acknowledgement was larger than any should be")
            for reply in replies:
                if reply.kind != NLMSG_ERROR or not first <= reply.sequence <= last:
                    continue
                error = _refusal(reply)
                if error is not None:
                    refused[reply.sequence - first] = error
                if reply.sequence == last or (whole and 0 in refused):
                    return refused

    def ask(self, message: Message) -> bytes:
        """Send a question with a single answer (RTM_GETLINK of one link). Returns its body.

        There is no acknowledgement, which would be one more datagram to wait for. A message that the kernel may leave
        unanswered asks for one itself (NLM_F_ACK); acknowledged without an answer is ENOENT.
        """
        sequence = self._send((message,), acknowledged=None)
        while True:
            replies = self._receive()
            if replies is None:
                sequence = self._send((message,), acknowledged=None)
                continue
            for reply in replies:
                if reply.sequence != sequence:
                    continue
                if reply.kind != NLMSG_ERROR:
                    return reply.body
                raise _refusal(reply) or NetlinkError(errno.ENOENT, "acknowledged, and not answered")

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """The bodies of the answers to a list request (RTM_GETROUTE with a header that filters).

        A list that changes meanwhile is inconsistent (NLM_F_DUMP_INTR) and asked for again; `NetlinkError` with EINTR
        when it never held still.
        """
        for _ in range(_DUMP_ATTEMPTS):
            with suppress(Torn):
                return list(self.each(kind, body))
        raise NetlinkError(errno.EINTR, "the kernel's list kept changing while it was read")

    @contextmanager
    def notices(self, group: int) -> Iterator[Callable[[float], None]]:
        """Listen to a multicast group between questions; call the result to wait for the next notice.

        It waits at most so many seconds, few ones, because an answer that is read in between may have swallowed a
        notice. What came is dropped: look again.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)

        def wait(seconds: float) -> None:
            if poll.poll(seconds * 1000):
                self._drain()

        join(self._socket, group)
        try:
            yield wait
        finally:
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_DROP_MEMBERSHIP, group)

    def each(self, kind: int, body: bytes) -> Iterator[bytes]:
        """As `dump`, but as they come, so that a long list is never in memory as a whole.

        Raises `Torn` at the end of a list that changed meanwhile or lost a part.
        """
        sequence = self._send((Message(kind, NLM_F_DUMP, body),), acknowledged=None)
        torn = False
        while True:
            replies = self._receive()
            if replies is None:
                torn = True
                continue
            for reply in replies:
                if reply.sequence != sequence:
                    continue
                torn = torn or bool(reply.flags & NLM_F_DUMP_INTR)
                if reply.kind in (NLMSG_DONE, NLMSG_ERROR):
                    error = _refusal(reply)
                    if error is not None:
                        raise error
                    if torn:
                        raise Torn(errno.EINTR, "the kernel's list changed while it was read")
                    return
                yield reply.body

    def _send(self, messages: Sequence[Message], *, acknowledged: int | None = -1) -> int:
        """`acknowledged`, counted from the end, has NLM_F_ACK. Returns the first sequence number."""
        pack = _HEADER.pack
        if self._sequence > _LAST_SEQUENCE:
            self._sequence = 0
        first = self._sequence + 1
        self._sequence += len(messages)
        parts: list[bytes] = []
        for sequence, (kind, flags, body) in enumerate(messages, first):
            parts += (pack(16 + len(body), kind, flags | NLM_F_REQUEST, sequence, 0), body)
        if acknowledged is not None:
            kind, flags, body = messages[acknowledged]
            sequence = self._sequence + 1 + acknowledged
            parts[2 * acknowledged] = pack(16 + len(body), kind, flags | NLM_F_REQUEST | NLM_F_ACK, sequence, 0)
        try:
            self._socket.send(b"".join(parts))
        except OSError as error:
            raise NetlinkError(error.errno or 0, "sending to the kernel") from error
        return first

    def _receive(self) -> Iterator[Reply] | None:
        """One datagram's messages, from the kernel alone. None for one larger than the buffer, which grows."""
        try:
            size, sender = self._socket.recvfrom_into(self._buffer, 0, _TRUNCATED)
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                self._drain()
            raise NetlinkError(error.errno or 0, "waiting for the kernel's answer") from error
        if sender[0] != 0:
            return iter(())
        if size > len(self._buffer):
            self._buffer = bytearray(2 * size)
            return None
        return messages_in(bytes(memoryview(self._buffer)[:size]))

    def _drain(self) -> None:
        """Drop all that is waiting.

        After an overrun the kernel drops new answers silently until the queue is empty, not only until it has room:
        NETLINK_S_CONGESTED stays set that long (netlink_rcv_wake in net/netlink/af_netlink.c).
        """
        while True:
            try:
                self._socket.recv_into(self._buffer, flags=socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise


def messages_in(data: bytes) -> Iterator[Reply]:
    """Raises `Malformed`."""
    offset = 0
    end = len(data)
    while offset < end:
        try:
            length, kind, flags, sequence, port = _HEADER.unpack_from(data, offset)
        except struct.error as error:
            raise Malformed(f"{end - offset} bytes left over after the last message") from error
        if length < 16 or offset + length > end:
            raise Malformed(f"message of {length} bytes where {end - offset} are left")
        yield Reply(kind, flags, sequence, port, data[offset + 16 : offset + length])
        offset += (length + 3) & ~3


def _refusal(reply: Reply) -> NetlinkError | None:
    """None for an acknowledgement."""
    if len(reply.body) < _ERRNO.size:
        raise Malformed("an acknowledgement without its number")
    (number,) = _ERRNO.unpack_from(reply.body)
    if number >= 0:
        return None
    if not reply.flags & _NLM_F_ACK_TLVS:
        return NetlinkError(-number)
    # With NETLINK_CAP_ACK the request's header alone is echoed before the kernel's own attributes.
    offset = _ERROR_HEAD if reply.kind == NLMSG_ERROR else _ERRNO.size
    return NetlinkError(-number, parse(reply.body, offset).text(_NLMSGERR_ATTR_MSG))


def join(sock: socket.socket, *groups: int) -> None:
    """Have a socket that is bound hear these multicast groups."""
    for group in groups:
        sock.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)


def widen(sock: socket.socket, size: int, *options: int) -> None:
    """Set buffers in bytes: `SO_RCVBUF`, or the named `options`.

    Without CAP_NET_ADMIN in the first user namespace net.core.rmem_max and wmem_max limit them.
    """
    for option in options or (socket.SO_RCVBUF,):
        try:
            sock.setsockopt(socket.SOL_SOCKET, _FORCED[option], size)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
