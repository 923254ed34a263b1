"""Talks to an etcd cluster: one connection at a time, the next endpoint when one fails, a deadline on every call.

Knows etcd's calls, not what their keys mean. Errors are `Unavailable` (later) and `ConfigError` (the user must act),
with one problem for each endpoint that was tried. The password goes into the Authenticate request and nowhere else.
"""

import asyncio
import logging
import os
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError
from grpclib import GRPCError, Status

from weft.cluster import tls
from weft.cluster.etcd.access import Access, parse_endpoints, tls_context
from weft.cluster.etcd.link import AUTHENTICATE, BrokenError, Conversation, LargeError, Link, Method
from weft.cluster.etcd.problems import Examiner, answered, handshake, large, plain, refused, silent, unresolved
from weft.cluster.etcd.rpc import etcd_pb2
from weft.cluster.reach import Reach, UnresolvedError
from weft.cluster.secretfile import SecretFile
from weft.model.cluster import Tally
from weft.model.errors import ConfigError, Unavailable, WeftError

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

# An answer that is not etcd's: bytes that are no message, a message that ends early or says it is compressed.
_NOT_ETCD: Final = (DecodeError, AssertionError, NotImplementedError)
# With a token, these may mean that the token is no longer good: a restarted member forgets tokens, and a change
# of users makes old ones invalid.
_STALE_TOKEN: Final = (Status.UNAUTHENTICATED, Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED)


class CompactedError(Exception):
    """The revision asked for is no longer kept: list again."""


class Client:
    """Everything it does can be cancelled."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._endpoints = parse_endpoints(access)
        self._turn = 0
        self._link: Link | None = None
        self.breaks = 0  # how many connections have ended: behind the next one may be another history
        self._token = ""
        self._connecting = asyncio.Lock()
        self._reach = Reach(access.timing.connect)
        self._examiner = Examiner(self._reach)
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)  # by call and status
        if access.tls_files and not any(endpoint.tls for endpoint in self._endpoints):
            log.warning("TLS files are given, but no endpoint is https://: connections are plain")

    async def _password(self) -> str:
        given = self._access.password
        secret = await given.now() if isinstance(given, SecretFile) else given
        return "" if secret is None else secret.reveal()

    def close(self) -> None:
        if self._link is not None:
            self._link.drop()
            self._link = None
            self.breaks += 1

    @property
    def where(self) -> str:
        """The endpoint that is talked to, or would be next."""
        return self._endpoints[self._turn % len(self._endpoints)].url

    async def call(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        *,
        repeat: bool = True,
        timeout: float = 0,  # noqa: ASYNC109 grpclib tells etcd the deadline, too
    ) -> ReplyT:
        """Ask the first endpoint that answers. `timeout` is in seconds, 0 for the usual.

        Without `repeat` the request is sent once at most: when its connection breaks, it may or may not have been
        carried out. Raises `CompactedError`, `Unavailable` (`TooLargeError`: ask for less) or `ConfigError`.
        """
        errors: list[WeftError] = []
        for _ in self._endpoints:
            link = await self._connected(errors)
            try:
                return await self._ask(link, method, request, timeout or self._access.timing.call)
            except GRPCError as error:
                problem = answered(link.endpoint, error, self._access)
                if error.status is Status.OUT_OF_RANGE:
                    raise CompactedError from None
                if error.status is not Status.UNAVAILABLE:
                    raise problem from None
                self._give_up(link)
            except LargeError as error:
                raise large(link.endpoint, str(error)) from None
            except BrokenError as error:
                problem = await self._broken(link, error.cause)
            errors.append(problem)
            if not repeat:
                break
        raise _joined(errors)

    @asynccontextmanager
    async def stream(
        self,
        method: Method[RequestT, ReplyT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Conversation[RequestT, ReplyT]]:
        """Open a stream on the first endpoint that connects; errors inside come out as in `call`."""
        link = await self._connected([])
        try:
            metadata = [*await self._metadata(link), ("hasleader", "true")]
            async with link.converse(method, metadata=metadata, timeout=timeout) as conversation:
                yield conversation
        except GRPCError as error:
            self._stale(error)
            if error.status is Status.UNAVAILABLE:
                self._give_up(link)
            raise answered(link.endpoint, error, self._access) from None
        except Unavailable:
            self._give_up(link)
            raise
        except LargeError as error:
            raise large(link.endpoint, str(error)) from None
        except BrokenError as error:
            raise await self._broken(link, error.cause) from None
        except TimeoutError as error:
            raise await self._broken(link, error) from None

    def forget_token(self) -> None:
        self._token = ""

    async def _ask(
        self,
        link: Link,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        timeout: float,  # noqa: ASYNC109
    ) -> ReplyT:
        name = type(request).__name__.removesuffix("Request").lower()
        try:
            reply = await link.ask(method, request, timeout=timeout, metadata=await self._metadata(link))
        except GRPCError as error:
            self.heard(name, status=error.status.name)
            if not self._stale(error):
                raise
            reply = await link.ask(method, request, timeout=timeout, metadata=await self._metadata(link))
        self.heard(name, reply)
        return reply

    def heard(self, name: str, reply: Any = None, *, status: str = "OK") -> None:
        tally = self.tallies[f"{name} {status}"]
        tally.asked += 1
        tally.received += 0 if reply is None else reply.ByteSize()

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
            request = etcd_pb2.AuthenticateRequest(name=self._access.user, password=await self._password())
            try:
                timeout = self._access.timing.call
                reply = await link.ask(AUTHENTICATE, request, timeout=timeout, metadata=[])
                self._token = reply.token
            except GRPCError as error:
                if error.status is not Status.FAILED_PRECONDITION:
                    raise
                return []  # this etcd has no authentication switched on: nothing to prove
        return [("token", self._token)]

    async def _connected(self, errors: list[WeftError]) -> Link:
        async with self._connecting:
            for _ in self._endpoints:
                try:
                    return await self._connect()
                except (Unavailable, ConfigError) as error:
                    errors.append(error)
                    self._turn += 1
            raise _joined(errors)

    async def _connect(self) -> Link:
        if self._link is not None and self._link.alive:
            return self._link
        self.close()
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        context = None
        if endpoint.tls:
            make, where = partial(tls_context, self._access), "--etcd-cafile, --etcd-certfile, --etcd-keyfile"
            context = await tls.within(self._access.timing.connect, make, key=id(self), where=where)
        link = Link(endpoint, context, self._reach)
        try:
            await link.connect()
        except BrokenError as error:
            link.drop()
            raise await self._unreachable(link, error.cause) from None
        except BaseException:
            link.drop()
            raise
        self._link = link
        return link

    async def _unreachable(self, link: Link, error: BaseException) -> WeftError:
        endpoint, patience = link.endpoint, self._access.timing.connect
        if isinstance(error, TimeoutError):
            return silent(endpoint, f"no connection within {patience:g} s")
        if isinstance(error, UnresolvedError):
            return unresolved(endpoint, str(error))
        if isinstance(error, ssl.SSLError):
            return handshake(endpoint, error)
        hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        if endpoint.tls and hung_up and await self._examiner.speaks_plain(endpoint):
            return plain(endpoint)
        return silent(endpoint, _os_reason(error) if isinstance(error, OSError) else repr(error))

    def _give_up(self, link: Link) -> None:
        """Leave an endpoint that failed, unless someone else has done so already."""
        link.drop()
        if self._link is link:
            self.close()
            self._turn += 1

    async def _broken(self, link: Link, error: BaseException) -> WeftError:
        """Give a link up and say why it broke; look closer at an endpoint that never answered."""
        self._give_up(link)
        timing = self._access.timing
        if isinstance(error, TimeoutError):
            return silent(link.endpoint, f"no answer within {timing.call:g} s")
        if isinstance(error, _NOT_ETCD):
            return refused(link.endpoint, "an answer that is not etcd's", expected="an etcd that speaks the v3 API")
        found = None
        if not link.proven:
            async with self._connecting:  # one connection at a time, to look with or to use
                found = await self._examiner.diagnose(link.endpoint, link.context)
        return found or silent(link.endpoint, f"the connection broke: {str(error) or type(error).__name__}")


def _os_reason(error: OSError) -> str:
    """The system's words; asyncio puts its own in their place, and none for a peer that hung up."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error) or "it hung up"


def _joined(errors: list[WeftError]) -> WeftError:
    """One error for all endpoints. While any of them may come back, it is worth trying again."""
    problems = list(dict.fromkeys(problem for error in errors for problem in error.problems))
    hopeless = all(isinstance(error, ConfigError) for error in errors)
    return ConfigError(*problems) if hopeless else Unavailable(*problems)
