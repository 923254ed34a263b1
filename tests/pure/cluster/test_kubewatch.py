"""A watch of nodes over a client that breaks as no API server does on demand."""

# ruff: noqa: ARG002 - the client has more than this test needs

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.kubernetes.kubeobjects import PREFIX, flannel
from tests.support.store import said, soon
from tests.support.waiting import comes
from weft.cluster.kube.access import Timing
from weft.cluster.kube.collection import is_older
from weft.cluster.kube.nodes import Listing
from weft.cluster.kube.problems import BusyError
from weft.cluster.kube.watch import KubeDirectory
from weft.desired.podcidr import Census
from weft.model.cluster import Changed, Listed, Lost, StoreEvent
from weft.model.errors import Problem, Unavailable
from weft.model.value import replace

EMPTY = Listing(version="1", leases=(), malformed=(), own=None, census=Census(nodes=0, given=0))


def event(name: str, version: int, kind: str = "MODIFIED") -> bytes:
    meta = {"name": name, "resourceVersion": str(version), "annotations": flannel(f"192.168.1.{version}")}
    return json.dumps({"type": kind, "object": {"metadata": meta, "spec": {"podCIDR": "10.244.1.0/24"}}}).encode()


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "code": code}}).encode()


class Script:
    """A client whose watches give these batches, one list a watch; the last goes on for ever."""

    where = "https://k"

    def __init__(self, *watches: list[list[bytes]] | None) -> None:
        self._watches = list(watches)
        self.asked = 0
        self.versions: list[str] = []
        self.rests: list[str] = []  # after which version

    async def get(self, path: str, **query: str) -> bytes:
        self.asked += 1
        return json.dumps({"metadata": {"resourceVersion": "99"}, "items": []}).encode()

    @asynccontextmanager
    async def watch(self, path: str, *, lasts: int, **query: str) -> AsyncIterator[Any]:
        self.versions.append(query["resourceVersion"])
        yield Lines(self, self._watches.pop(0) if self._watches else None)


class Lines:
    """The link of a watch."""

    def __init__(self, script: Script, batches: list[list[bytes]] | None) -> None:
        self._script = script
        self._batches = batches
        self._version = ""

    async def lines(self, quiet: float) -> AsyncGenerator[list[bytes], None]:
        while self._batches is None:
            await asyncio.sleep(quiet)
            yield []
        for batch in self._batches or ():
            with suppress(ValueError, KeyError, TypeError, RecursionError):  # what is no event, too
                self._version = json.loads(batch[-1])["object"]["metadata"].get("resourceVersion", "")
            yield batch

    async def rest(self, seconds: float) -> None:
        self._script.rests.append(self._version)


def directory(script: Any, *, held: float = 0.2, now: Callable[[], float] = lambda: 0.0) -> Any:
    timing = Timing(backoff=0.001, backoff_most=0.002, quiet=0.1, held=held)
    own: Any = SimpleNamespace(known_name="own", seen=lambda _node: None)
    made = KubeDirectory(script, PREFIX, own, timing=timing, now=now, jitter=lambda: 0.5)
    return SimpleNamespace(directory=made)


async def test_a_list_that_was_given_is_not_kept():
    async def take(_event: StoreEvent) -> None:
        """Nothing is kept here, either."""

    script, listing = Script(None), replace(EMPTY, version="7")
    made = directory(script).directory
    made._looked = (0.0, listing)
    before = sys.getrefcount(listing)
    watching = asyncio.create_task(made.watch(take, listing))
    await comes(lambda: script.versions)
    assert script.versions == ["7"]
    assert sys.getrefcount(listing) < before, "neither by the watch nor from an earlier look"
    watching.cancel()


async def test_while_there_is_no_lease_all_but_our_own_node_is_asked_for_now_and_then():
    async def read() -> Any:
        return own.node

    async def name() -> str:
        return "own"

    own: Any = SimpleNamespace(name=name, read=read, node=None, has_lease=False, version="8")  # it has published
    script, now = Script(), [0.0]
    made = KubeDirectory(script, PREFIX, own, timing=Timing(), now=lambda: now[0], jitter=lambda: 0.5)
    for at, asked in (0.0, 1), (1.0, 1), (31.0, 2):
        now[0] = at
        await made.list()
        assert script.asked == asked
    own.has_lease = True
    await made.list()
    assert script.asked == 3


async def test_what_came_before_an_error_in_one_batch_is_told():
    script = Script([[event("n2", 5), error(500)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        changed = await soon(anext(events))
    assert isinstance(changed, Changed)
    assert [(lease.id, lease.attrs.public_ip) for lease in changed.put] == [("n2", IPv4Address("192.168.1.5"))]
    assert changed.mark == ("5",)


async def test_a_watch_that_ends_is_taken_up_where_it_ended_and_nothing_is_said():
    script = Script([[event("n2", 5)]], [[event("n3", 7)]], [[event("n4", 8)]])
    seen = []
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        while len(seen) < 3:
            changed = await soon(anext(events))
            assert isinstance(changed, Changed)
            seen += [lease.id for lease in changed.put]
    assert seen == ["n2", "n3", "n4"]
    assert script.versions[:3] == ["1", "5", "7"]


async def test_after_heartbeats_alone_the_connection_is_left_to_gather_more():
    first, beat, changed = event("n2", 5), event("n2", 5).replace(b'"5"', b'"6"', 1), event("n2", 7)
    script = Script([[first], [beat], [beat, changed], [event("own", 8)], [event("n3", 9)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        while "n3" not in [lease.id for lease in getattr(await soon(anext(events)), "put", ())]:
            pass
    assert script.rests == ["6", "8"]


async def test_errors_in_a_row_are_a_loss_that_ends_with_the_next_watch():
    script = Script([[error(500)]], [[error(500)]], [[error(500)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        lost = await soon(anext(events))
        assert isinstance(lost, Lost)
        assert not lost.refused
        back = await soon(anext(events))
        while isinstance(back, Lost):
            back = await soon(anext(events))
    assert back == Changed(mark=("1",))


@pytest.mark.parametrize("code, refused", [("STORE-001", False), ("FLAG-001", False), ("API-001", True)])
async def test_an_api_that_is_not_asked_because_of_a_file_has_refused_nothing(monkeypatch, code: str, refused: bool):
    @asynccontextmanager
    async def watch(path: str, **query: Any) -> AsyncIterator[Any]:
        raise Unavailable(Problem(code=code, where="ca.crt", seen="not a regular file"))
        yield

    script = Script()
    monkeypatch.setattr(script, "watch", watch)
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        lost = await soon(anext(events))
    assert isinstance(lost, Lost)
    assert (lost.refused, "not a regular file" in lost.reason) == (refused, True)


async def test_what_is_forgotten_is_listed_again():
    script = Script([[event("n2", 5), error(410)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        told = await soon(anext(events))
        if isinstance(told, Changed):  # else the list has overtaken it
            told = await soon(anext(events))
    assert told.mark == ("99",)
    assert script.versions[0] == "1"


async def test_what_answers_and_then_says_nothing_that_can_be_read_stays_a_loss():
    """The head of an answer is no sign of life of an API: readiness went on and off with it."""
    script = Script(*[[[b"garbage"]]] * 5)
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        told = [await soon(anext(events)) for _ in range(2)]
        while not isinstance(told[-1], Changed):
            told.append(await soon(anext(events)))
    assert all(isinstance(each, Lost) and each.refused for each in told[:-1])
    assert len(script.versions) > 5, "and ends with the first watch that is only silent"


async def test_a_watch_that_is_silent_is_given_up_for_another_and_nothing_is_said():
    script = Script()
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        pending = asyncio.ensure_future(anext(events))
        await comes(lambda: len(script.versions) > 3)
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    assert set(script.versions) == {"1"}


async def test_a_watch_that_is_silent_beside_an_api_that_answers_is_kept_and_the_answers_are_heard():
    script, heard = Script(), list[int]()
    async with aclosing(
        said(directory(script, held=1000.0, now=lambda: heard.append(script.asked) or 0.0), EMPTY)
    ) as events:
        await soon(anext(events))
        pending = asyncio.ensure_future(anext(events))
        await comes(lambda: len(heard) > 5)
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    assert script.versions == ["1"]
    assert heard[:6] == [0, 0, 1, 2, 3, 4], "the list, the watch, and each answer, but no silence"


async def test_after_a_silence_a_break_is_the_first_one():
    script = Script(None, [[error(500)]], None, [[error(500)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        await soon(anext(events))
        pending = asyncio.ensure_future(anext(events))
        await comes(lambda: len(script.versions) > 4)
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def test_an_api_that_is_busy_gives_a_sign_of_life_and_one_that_went_back_in_time_is_listed_again(monkeypatch):
    script = Script()
    page, answers = script.get, [BusyError(Problem(code="STORE-001", where="k", seen="busy"), 0.0), None]

    async def get(path: str, **query: str) -> bytes:
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer
        return await page(path, **query)

    monkeypatch.setattr(script, "get", get)
    listing = replace(EMPTY, version="100")
    async with aclosing(said(directory(script, held=1000.0), listing)) as events:
        assert (await soon(anext(events))).mark == ("100",)
        again = await soon(anext(events))
    assert isinstance(again, Listed)
    assert again.mark == ("99",)
    assert script.versions[0] == "100"


async def test_what_is_forgotten_after_a_bookmark_each_time_is_not_listed_again_and_again():
    bookmark = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}).encode()
    script = Script(*[[[bookmark], [error(410)]]] * 1000)
    async with aclosing(said(directory(script), EMPTY)) as events:
        with suppress(TimeoutError):
            async with asyncio.timeout(3):
                async for _ in events:
                    pass
    assert len(script.versions) < 10


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"' + b"9" * 5000 + b'"}}}',
        b'{"type":"ERROR","object":{"code":' + b"9" * 5000 + b"}}",
        b'{"type":"ERROR","object":{"code":1e999}}',
        b'{"type":"MODIFIED","object":{"metadata":{"name":"n2","resourceVersion":"8","creationTimestamp":"0001-01-01T00:00:00Z"}}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
    ],
    ids=["version", "code", "float", "time", "no-text", "deep", "null"],
)
async def test_no_line_ends_the_watch(line: bytes):
    script = Script([[line]], [[event("n3", 9)]])
    async with aclosing(said(directory(script), EMPTY)) as events:
        while "n3" not in [lease.id for lease in getattr(await soon(anext(events)), "put", ())]:
            pass


@pytest.mark.parametrize("digits", [21, 4301, 100_000])
def test_versions_that_are_no_numbers_of_64_bits_tell_nothing(digits: int):
    assert not is_older("1", "9" * digits)
    assert not is_older("1", "\u0662\u0663" * digits)
    assert is_older("1", "18446744073709551615")
