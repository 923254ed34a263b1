"""Talks to an etcd cluster: one connection at a time, the next endpoint when one fails, a deadline on every call.

Knows etcd's calls, not what their keys mean. Errors are `Unavailable` (later) and `ConfigError` (the user must act),
with one problem for each endpoint that was tried. The password goes into the Authenticate request and nowhere else.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError
from grpclib import GRPCError, Status
from grpclib.client import Channel, Stream, StreamStreamMethod, UnaryUnaryMethod
from grpclib.exceptions import ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from weft.cluster.etcd.access import Access, Endpoint, parse_endpoints, tls_context
from weft.cluster.etcd.problems import answered, diagnose, handshake, plain, refused, silent, speaks_plain
from weft.cluster.etcd.rpc import etcd_grpc, etcd_pb2
from weft.model.errors import ConfigError, Unavailable, WeftError

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")
T = TypeVar("T")

# What a broken connection looks like through grpclib, h2 and protobuf. A call cut short by its deadline is among
# them, and so is a message that ends early (AssertionError) or says it is compressed (NotImplementedError).
BROKEN: Final = (
    StreamTerminatedError, ProtocolError, H2Error, OSError, TimeoutError,
    DecodeError, AssertionError, NotImplementedError,
)  # fmt: skip
# With a token, these may mean that the token is no longer good: a restarted member forgets tokens, and a change
# of users makes old ones invalid.
_STALE_TOKEN: Final = (Status.UNAUTHENTICATED, Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED)


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in a task of its own.

    When a connection breaks, grpclib cancels the tasks that use it and turns that into an error, but the task's
    count of cancellations stays raised (a TaskGroup around it then misbehaves), and a cancellation from outside
    that comes at the same time is lost. In a task of its own neither reaches the caller.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 a coroutine always runs in a task
    before = caller.cancelling()
    try:
        return await asyncio.create_task(work)
    except BaseException:
        if caller.cancelling() > before:
            raise asyncio.CancelledError from None
        raise


class CompactedError(Exception):
    """The revision asked for is no longer kept: list again."""


class Link:
    """A connection to one endpoint and etcd's services on it. `proven` once it has answered."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self.context = context
        self.channel = Channel(endpoint.host, endpoint.port, ssl=context)
        self.kv = etcd_grpc.KVStub(self.channel)
        self.lease = etcd_grpc.LeaseStub(self.channel)
        self.watch = etcd_grpc.WatchStub(self.channel)
        self.auth = etcd_grpc.AuthStub(self.channel)
        self.proven = False


class Client:
    """An etcd cluster's client. Everything it does can be cancelled; `close()` drops the connection."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._endpoints = parse_endpoints(access)
        self._turn = 0
        self._link: Link | None = None
        self._token = ""
        self._connecting = asyncio.Lock()
        if access.tls_files and not any(endpoint.tls for endpoint in self._endpoints):
            log.warning("TLS files are given, but no endpoint is https://: connections are plain")

    def close(self) -> None:
        """Drop the connection; calls under way end as broken."""
        if self._link is not None:
            self._link.channel.close()
            self._link = None

    @property
    def where(self) -> str:
        """The endpoint that is talked to, or would be next."""
        return self._endpoints[self._turn % len(self._endpoints)].url

    async def call(
        self,
        method: Callable[[Link], UnaryUnaryMethod[RequestT, ReplyT]],
        request: RequestT,
        *,
        repeat: bool = True,
        timeout: float = 0,  # noqa: ASYNC109 grpclib tells etcd the deadline, too
    ) -> ReplyT:
        """Ask the first endpoint that answers. `timeout` is in seconds, 0 for the usual.

        Without `repeat` the request is sent once at most: when its connection breaks, it may or may not have been
        carried out. Raises `CompactedError`, `Unavailable` or `ConfigError`.
        """
        errors: list[WeftError] = []
        for _ in self._endpoints:
            link = await self._connected(errors)
            try:
                return await apart(self._ask(link, method, request, timeout or self._access.timing.call))
            except GRPCError as error:
                problem = answered(link.endpoint, error, self._access)
                if error.status is Status.OUT_OF_RANGE:
                    raise CompactedError from None
                if error.status is not Status.UNAVAILABLE:
                    raise problem from None
            except BROKEN as error:
                problem = await self._broken(link, error)
            errors.append(problem)
            self._give_up(link)
            if not repeat:
                break
        raise _joined(errors)

    @asynccontextmanager
    async def stream(
        self,
        method: Callable[[Link], StreamStreamMethod[RequestT, ReplyT]],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Stream[RequestT, ReplyT]]:
        """Open a stream on the first endpoint that connects; errors inside come out as in `call`."""
        link = await self._connected([])
        try:
            metadata = [*await self._metadata(link), ("hasleader", "true")]
            async with method(link).open(metadata=metadata, timeout=timeout) as stream:
                yield stream
        except GRPCError as error:
            self._stale(error)
            if error.status is Status.UNAVAILABLE:
                self._give_up(link)
            raise answered(link.endpoint, error, self._access) from None
        except Unavailable:
            self._give_up(link)
            raise
        except BROKEN as error:
            problem = await self._broken(link, error)
            self._give_up(link)
            raise problem from None

    def forget_token(self) -> None:
        """Authenticate again before the next request."""
        self._token = ""

    async def _ask(
        self,
        link: Link,
        method: Callable[[Link], UnaryUnaryMethod[RequestT, ReplyT]],
        request: RequestT,
        timeout: float,  # noqa: ASYNC109
    ) -> ReplyT:
        try:
            reply = await method(link)(request, timeout=timeout, metadata=await self._metadata(link))
        except GRPCError as error:
            if not self._stale(error):
                raise
            reply = await method(link)(request, timeout=timeout, metadata=await self._metadata(link))
        link.proven = True
        return reply

    def _stale(self, error: GRPCError) -> bool:
        """Tell whether another token may help, and drop this one."""
        if not self._token or error.status not in _STALE_TOKEN:
            return False
        self._token = ""
        return True

    async def _metadata(self, link: Link) -> list[tuple[str, str]]:
        if not self._access.user:
            return []
        if not self._token:
            password = self._access.password.reveal() if self._access.password is not None else ""
            request = etcd_pb2.AuthenticateRequest(name=self._access.user, password=password)
            try:
                self._token = (await link.auth.Authenticate(request, timeout=self._access.timing.call)).token
            except GRPCError as error:
                if error.status is not Status.FAILED_PRECONDITION:
                    raise
                return []  # this etcd has no authentication switched on: nothing to prove
        return [("token", self._token)]

    async def _connected(self, errors: list[WeftError]) -> Link:
        """A live link: the present one, else the first endpoint in turn that accepts a connection."""
        async with self._connecting:
            for _ in self._endpoints:
                try:
                    return await self._connect()
                except (Unavailable, ConfigError) as error:
                    errors.append(error)
                    self._turn += 1
            raise _joined(errors)

    async def _connect(self) -> Link:
        link = self._link
        if link is None:
            endpoint = self._endpoints[self._turn % len(self._endpoints)]
            link = Link(endpoint, tls_context(self._access) if endpoint.tls else None)
        try:
            async with asyncio.timeout(self._access.timing.connect):
                await link.channel.__connect__()
        except TimeoutError:
            error: WeftError = silent(link.endpoint, f"no connection within {self._access.timing.connect:g} s")
        except ssl.SSLError as failure:
            error = handshake(link.endpoint, failure)
        except OSError as failure:
            hung_up = isinstance(failure, ConnectionError) and not isinstance(failure, ConnectionRefusedError)
            if (
                link.endpoint.tls
                and hung_up
                and await speaks_plain(link.endpoint, patience=self._access.timing.connect)
            ):
                error = plain(link.endpoint)
            else:
                error = silent(link.endpoint, _os_reason(failure))
        else:
            self._link = link
            return link
        link.channel.close()
        self._link = None
        raise error from None

    def _give_up(self, link: Link) -> None:
        """Leave an endpoint that failed, unless someone else has done so already."""
        link.channel.close()
        if self._link is link:
            self._link = None
            self._turn += 1

    async def _broken(self, link: Link, error: BaseException) -> WeftError:
        """Say why a connection broke; look closer at an endpoint that never answered."""
        timing = self._access.timing
        if isinstance(error, TimeoutError):
            return silent(link.endpoint, f"no answer within {timing.call:g} s")
        if isinstance(error, DecodeError | AssertionError | NotImplementedError):
            return refused(link.endpoint, "an answer that is not etcd's", expected="an etcd that speaks the v3 API")
        found = None if link.proven else await diagnose(link.endpoint, link.context, patience=timing.connect)
        return found or silent(link.endpoint, f"the connection broke: {str(error) or type(error).__name__}")


def _os_reason(error: OSError) -> str:
    """The system's words; asyncio puts its own in their place, and none for a peer that hung up."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error) or "it hung up"


def _joined(errors: list[WeftError]) -> WeftError:
    """One error for all endpoints. While any of them may come back, it is worth trying again."""
    problems = list(dict.fromkeys(problem for error in errors for problem in error.problems))
    hopeless = all(isinstance(error, ConfigError) for error in errors)
    return ConfigError(*problems) if hopeless else Unavailable(*problems)
