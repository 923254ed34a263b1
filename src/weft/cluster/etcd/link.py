"""A connection to one endpoint, and the one door to grpclib: nothing that happens behind it reaches our tasks.

When a connection breaks, grpclib cancels the tasks that use it and makes an error of that, but a task's count of
cancellations stays raised: `asyncio.timeout` and `TaskGroup` then misbehave in it, and a cancellation from outside
at the same time is lost. What it raises is a matter of chance: errors of h2 and protobuf, an AttributeError where
it has taken its own objects apart. So whatever is asked of it runs in a task of its own, and ends with an answer,
with etcd's own error (`GRPCError`), or with `BrokenError`.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from grpclib import GRPCError
from grpclib.client import Channel, Stream, StreamStreamMethod, UnaryUnaryMethod
from grpclib.protocol import H2Protocol

from weft.beside.tasks import awaited
from weft.cluster.etcd.rpc import etcd_pb2 as pb
from weft.cluster.reach import Endpoint, Reach

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")
T = TypeVar("T")

# Bytes of an answer that are received: every writer of the store could else fill this node's memory. etcd takes no
# value over 1.5 MiB unless told to, and a page of leases has 100 kB.
LARGEST: Final = 4 << 20
_NO_LINGER: Final = struct.pack("ii", 1, 0)  # struct linger, socket(7)

Metadata = list[tuple[str, str]]


class Method(NamedTuple, Generic[RequestT, ReplyT]):
    """A call of etcd's API, as etcd.proto has it."""

    path: str
    request: type[RequestT]
    reply: type[ReplyT]


RANGE: Final = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN: Final = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
WATCH: Final = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
GRANT: Final = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE: Final = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE: Final = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
AUTHENTICATE: Final = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)


class BrokenError(Exception):
    """The connection broke, or what came over it is not gRPC. `cause` is what was raised then."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.cause = cause


class LargeError(Exception):
    """An answer is larger than `LARGEST`, and was not received. The connection is as good as before."""


class Link:
    """A connection to one endpoint, made once. `proven` once it has answered.

    Every method may raise `BrokenError`, `GRPCError` and `LargeError`.
    """

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None, reach: Reach) -> None:
        self.endpoint = endpoint
        self.context = context
        self._channel = _Channel(endpoint, context, reach)
        self.proven = False

    @property
    def alive(self) -> bool:
        return self._channel.alive

    async def connect(self) -> None:
        await _apart(self._channel.__connect__())

    async def ask(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout: float,  # noqa: ASYNC109 grpclib tells etcd the deadline, too
        metadata: Metadata,
    ) -> ReplyT:
        called = UnaryUnaryMethod(self._channel, method.path, method.request, method.reply)
        reply = await _apart(_ask(called.open(timeout=timeout, metadata=metadata), request))
        self.proven = True
        return reply

    @asynccontextmanager
    async def converse(
        self,
        method: Method[RequestT, ReplyT],
        *,
        timeout: float | None,  # noqa: ASYNC109
        metadata: Metadata,
    ) -> AsyncIterator["Conversation[RequestT, ReplyT]"]:
        called = StreamStreamMethod(self._channel, method.path, method.request, method.reply)
        stream = called.open(timeout=timeout, metadata=metadata)
        await _apart(stream.__aenter__())
        try:
            yield Conversation(self, stream)
        except BrokenError as error:
            await _apart(_leave(stream, error.cause))  # raises etcd's reason instead, if that has come
            raise
        except BaseException as error:
            with suppress(BrokenError, GRPCError):
                await _apart(_leave(stream, error))
            raise
        await _apart(_leave(stream, None))

    def drop(self) -> None:
        """Does not tell the other end first."""
        self._channel.drop()


class Conversation(Generic[RequestT, ReplyT]):
    """A stream of requests and a stream of replies. Both methods raise what a `Link`'s raise."""

    def __init__(self, link: Link, stream: Stream[RequestT, ReplyT]) -> None:
        self._link = link
        self._stream = stream
        self._ended = False

    async def send(self, request: RequestT, *, end: bool = False) -> None:
        self._ended = end
        await _apart(self._stream.send_message(request, end=end))

    async def receive(self) -> ReplyT | None:
        """None when etcd ended the stream and gave no reason."""
        reply = await _apart(self._receive())
        self._link.proven = True
        return reply

    async def _receive(self) -> ReplyT | None:
        _bound(self._stream)
        reply = await self._stream.recv_message()
        if reply is None:
            if not self._ended:
                await self._stream.end()
            await self._stream.recv_trailing_metadata()  # raises etcd's reason
        return reply


class _Channel(Channel):
    """grpclib's channel, but its connection is made once, not again behind our back, and can be dropped at once."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None, reach: Reach) -> None:
        super().__init__(endpoint.host, endpoint.port, ssl=context)
        self._endpoint = endpoint
        self._context = context
        self._reach = reach
        self._socket: socket.socket | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def drop(self) -> None:
        if self._socket is not None:
            # A connection that is closed in order stays in the kernel, and a TLS one in the loop, until the other
            # end has agreed: for a minute or more when that is gone.
            with suppress(OSError):  # it is closed already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        try:
            self.close()
        except Exception as error:  # of whatever kind: it may have taken its own objects apart
            log.debug("the library says: %r", error, exc_info=True)
            self._protocol = None  # it would close that once more when it is collected
        if self._transport is not None:
            with suppress(AttributeError):  # Python 3.11's TLS transport has none of its parts left once it is closed
                self._transport.abort()
        elif self._socket is not None:
            self._socket.close()

    async def _create_connection(self) -> H2Protocol:
        if self._socket is not None:
            raise ConnectionResetError("Connection lost")  # in grpclib's words
        self._socket = await self._reach.open(self._endpoint)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._reach.patience):
            name = self._endpoint.host if self._context else None
            self._transport, protocol = await loop.create_connection(
                self._protocol_factory, sock=self._socket, ssl=self._context, server_hostname=name
            )
        return protocol


async def _ask(opened: Stream[RequestT, ReplyT], request: RequestT) -> ReplyT:
    async with opened as stream:
        await stream.send_message(request, end=True)
        _bound(stream)
        reply = await stream.recv_message()
    assert reply is not None  # noqa: S101 grpclib's own
    return reply


def _bound(stream: Stream[Any, Any]) -> None:
    """Refuse messages by the size that they say they have, before they come; grpclib has no limit."""
    inner = stream._stream  # noqa: SLF001
    receive = type(inner).recv_data

    async def recv_data(size: int) -> bytes:
        if size > LARGEST:
            raise LargeError(f"an answer of {size} bytes")
        return await receive(inner, size)

    inner.recv_data = recv_data  # type: ignore[method-assign]


async def _leave(stream: Stream[Any, Any], error: BaseException | None) -> None:
    kind = None if error is None else type(error)
    await stream.__aexit__(kind, error, None)


async def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which is grpclib's, in a task of its own; raises what a `Link` does, and `CancelledError`."""
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 a coroutine always runs in a task
    before = caller.cancelling()
    try:
        answer = await awaited(work)
    except (Exception, asyncio.CancelledError) as error:
        if caller.cancelling() > before:
            raise asyncio.CancelledError from None
        if isinstance(error, GRPCError | LargeError):
            raise
        log.debug("the library says: %r", error, exc_info=True)
        raise BrokenError(error) from error
    if caller.cancelling() > before:
        raise asyncio.CancelledError
    return answer
