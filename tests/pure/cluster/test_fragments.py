"""What a watch has seen when etcd splits an answer, and what it keeps, without a store."""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

from tests.support.waiting import comes
from weft.cluster.etcd import watch
from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.rpc.etcd_pb2 import Event, KeyValue, ResponseHeader, WatchResponse
from weft.cluster.etcd.values import Listing, Mark
from weft.cluster.etcd.watch import EtcdDirectory
from weft.model.value import replace

LISTING = Listing(mark=Mark(revision=5, cluster=1, term=1), entries=())


async def heedless(_event: object) -> None:
    pass


async def watcher() -> Any:
    nobody: Any = None
    own: Any = SimpleNamespace(name="", touched=asyncio.Event(), is_own=lambda _: False)
    made: Any = EtcdDirectory(nobody, "/p/subnets/", own, timing=Timing(), now=lambda: 0.0, jitter=lambda: 0.0)
    await made._listed(LISTING, heedless)
    return made


async def test_a_list_that_was_given_is_not_kept(monkeypatch):
    follows = asyncio.Event()

    async def follow(*_: object, **__: object) -> None:
        follows.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(watch, "follow", follow)
    made, listing = await watcher(), replace(LISTING)
    before = sys.getrefcount(listing)
    watching = asyncio.create_task(made.watch(heedless, listing))
    await comes(follows.is_set)
    assert sys.getrefcount(listing) == before
    watching.cancel()


def answer(*revisions: int, fragment: bool) -> WatchResponse:
    events = [
        Event(
            type=Event.EventType.DELETE, kv=KeyValue(key=f"/p/subnets/10.3.{number}.0-24".encode(), mod_revision=number)
        )
        for number in revisions
    ]
    return WatchResponse(header=ResponseHeader(revision=99, raft_term=1), events=events, fragment=fragment)


def test_the_last_revision_of_a_fragment_is_asked_for_again():
    """Its other events may be in the next fragment, before which the connection may break."""

    async def seen() -> list[int]:
        made = await watcher()
        marks = []
        for each in (answer(6, 7, fragment=True), answer(7, fragment=True), answer(7, 8, fragment=False)):
            await made._take(heedless, each)
            marks.append(made._mark.revision)
        return marks

    assert asyncio.run(seen()) == [6, 6, 8]
