"""What a watch has seen when etcd splits an answer, without a store."""

import asyncio
from types import SimpleNamespace
from typing import Any

from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.rpc.etcd_pb2 import Event, KeyValue, ResponseHeader, WatchResponse
from weft.cluster.etcd.values import Listing, Mark
from weft.cluster.etcd.watch import EtcdDirectory


async def heedless(_event: object) -> None:
    pass


async def watcher() -> Any:
    nobody: Any = None
    own: Any = SimpleNamespace(name="", touched=asyncio.Event(), is_own=lambda _: False)
    made: Any = EtcdDirectory(nobody, "/p/subnets/", own, timing=Timing(), now=lambda: 0.0, jitter=lambda: 0.0)
    await made._listed(Listing(mark=Mark(revision=5, cluster=1, term=1), entries=()), heedless)
    return made


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
