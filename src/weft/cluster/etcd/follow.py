"""Follows changes of keys from a point in etcd's history, until something ends it.

Carries no meaning of keys and keeps no state: the caller decides whether to go on from the last mark or to
list again. A watch that is silent is asked for a sign of life, because a dead endpoint sends no goodbye.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from grpclib import GRPCError

from weft.beside.tasks import watched
from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.link import WATCH, BrokenError, Conversation
from weft.cluster.etcd.listing import mark_of
from weft.cluster.etcd.rpc.etcd_pb2 import WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse
from weft.cluster.etcd.values import Mark
from weft.model.errors import Problem, Unavailable

_Watch = Conversation[WatchRequest, WatchResponse]


class OtherHistoryError(Exception):
    """Another cluster, or a snapshot was restored: list again."""


class _TouchedError(Exception):
    """Something happened to the key."""


async def until_touched(client: Client, key: bytes, *, after: Mark, timing: Timing) -> None:
    """Wait for something to happen to one key behind `after`; raises what `follow` does."""
    with suppress(_TouchedError):
        await follow(client, key, b"", after=after, timing=timing, take=_touched)


async def _touched(answer: WatchResponse) -> None:
    if answer.events:
        raise _TouchedError


async def follow(
    client: Client,
    key: bytes,
    range_end: bytes,
    *,
    after: Mark,
    timing: Timing,
    take: Callable[[WatchResponse], Awaitable[None]],
    heard: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Give `take` one answer behind `after` after the other; the first, without events, says that the watch stands.

    `heard` is called at each sign of life.
    Of an answer that is a fragment, the last revision is not complete.
    Ends by raising: `CompactedError`, `OtherHistoryError` and `TooLargeError` (list again), `Unavailable` and
    `ConfigError` (try again from the last event's revision).
    """
    # Without fragments, etcd puts a thousand events into one answer, whatever their size.
    request = WatchCreateRequest(
        key=key, range_end=range_end, start_revision=after.revision + 1, progress_notify=True, fragment=True
    )
    async with client.stream(WATCH) as watch:
        async with asyncio.timeout(timing.call) as alarm:
            await watch.send(WatchRequest(create_request=request))
            asker = watched(_ask_for_life(watch, timing.ping))
            try:
                async for answer in _answers(client, watch):
                    heard()
                    alarm.reschedule(None)  # what takes its time from here on is not etcd
                    if answer.created and not after.precedes(mark_of(answer.header)):
                        raise OtherHistoryError
                    if answer.watch_id >= 0:  # answers to `_ask_for_life` carry -1: no promise about events
                        await take(answer)
                    alarm.reschedule(asyncio.get_running_loop().time() + timing.ping + timing.pong)
            finally:
                asker.cancel()
    raise AssertionError("what etcd ends is raised")


async def _answers(client: Client, watch: _Watch) -> AsyncIterator[WatchResponse]:
    while (answer := await watch.receive()) is not None:
        client.heard("watch", answer)
        if answer.canceled:
            if answer.compact_revision:
                raise CompactedError
            client.forget_token()  # the one reason for refusing a watch that passes by itself
            raise _ended(client, f"etcd refused the watch: {answer.cancel_reason or 'no reason given'}")
        yield answer
    raise _ended(client, "etcd ended the watch")


async def _ask_for_life(watch: _Watch, every: float) -> None:
    """Make etcd say something now and then; that it does not is noticed by the reader's alarm."""
    with suppress(BrokenError, GRPCError):  # the reader sees the same break, and reports it
        while True:
            await asyncio.sleep(every)
            await watch.send(WatchRequest(progress_request=WatchProgressRequest()))


def _ended(client: Client, seen: str) -> Unavailable:
    return Unavailable(Problem(code="STORE-001", where=client.where, seen=seen))
