"""What pages are told, of a source that is in memory: first all, then what changes, for as long as one is open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from tests.support.pages import MadeSource, lab, state
from tests.support.waiting import HANGS, comes
from weft.lab.links import Cut
from weft.model.errors import Problem, Unavailable
from weft.model.value import replace
from weft.ui.watch import Watch

Told = AsyncIterator[tuple[str, dict]]


async def until(page: Told, is_it):
    async with asyncio.timeout(HANGS):
        async for name, data in page:
            if is_it(data):
                return name, data
    raise AssertionError("the page has ended")


def has_all_edges(data) -> bool:
    return "edge/node1/node2" in data["put"]


@pytest.fixture
def source():
    return MadeSource(lab(2))


async def test_a_page_is_told_all_and_then_what_changes(source):
    source.happen("node1", "started", "weftd")
    async with aclosing(Watch(source).page()) as page:
        name, data = await anext(page)
        assert name == "all"
        assert has_all_edges(data)
        if "ms" not in data["put"]["edge/node1/node2"]:
            await until(page, lambda each: each["put"].get("edge/node1/node2", {}).get("ms") == 0.08)
        source.seen = lab(2, states={"node2": state(2, 2, faults=3)})
        source.happen("node2", "left", "10.244.1.0-24")
        _, data = await until(page, lambda each: any(event["kind"] == "left" for event in each["events"]))
        assert data["events"][-1]["pairs"] == [["node2", "node1"]]
        if "node/node2" not in data["put"]:
            _, data = await until(page, lambda each: "node/node2" in each["put"])
        assert data["put"].keys() == {"node/node2"}


async def test_each_event_comes_once_and_in_order(source):
    kinds = [f"kind{number}" for number in range(30)]
    async with aclosing(Watch(source).page()) as page:
        seen = [event["kind"] for event in (await anext(page))[1]["events"]]
        for kind in kinds:
            source.happen("node1", kind, "x")
        while seen[-1:] != kinds[-1:]:
            _, data = await until(page, lambda each: each["events"])
            seen += [event["kind"] for event in data["events"]]
    assert seen == kinds


async def test_two_pages_are_told_the_same_and_the_source_is_asked_by_one(source):
    watch = Watch(source)
    async with aclosing(watch.page()) as one, aclosing(watch.page()) as other:
        await anext(one)
        await anext(other)
        assert source.looks == 1
        source.happen("node1", "repaired", "route")
        for page in (one, other):
            await until(page, lambda each: [event["kind"] for event in each["events"]] == ["repaired"])


async def test_without_a_page_nothing_is_asked(source):
    watch = Watch(source)
    async with aclosing(watch.page()) as page:
        await anext(page)
    before = source.looks
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others
    async with aclosing(watch.page()) as page:
        assert (await anext(page))[0] == "all"
        await comes(lambda: source.looks > before)


async def test_a_source_that_goes_away_is_told_and_what_was_seen_stays(source):
    async with aclosing(Watch(source).page()) as page:
        await anext(page)
        source.fails = Unavailable(Problem(code="LAB-002", where="the lab", seen="it is down"))
        source.happen("node1", "fault", "x")  # has it look at once
        _, data = await until(page, lambda each: each["away"])
        assert "it is down" in data["away"]
        assert not data["gone"]
        source.fails = None
        await until(page, lambda each: not each["away"])


async def test_a_source_that_was_never_there_is_told(source):
    source.fails = ConnectionRefusedError(111, "Connection refused")
    async with aclosing(Watch(source).page()) as page:
        name, data = await anext(page)
    assert (name, data["put"]) == ("all", {})
    assert data["away"] == "it does not answer: Connection refused"


async def test_a_page_ends_when_it_is_to(source):
    ends: list[bool] = []
    page = Watch(source, ending=lambda: bool(ends)).page()
    await anext(page)
    ends.append(True)
    async with asyncio.timeout(HANGS):
        assert [name async for name, _ in page][1:] == []


async def test_what_is_known_of_a_daemon_that_is_dead_is_there_for_a_page_that_comes_later(source):
    source.happen("node1", "started", "weftd")
    watch = Watch(source)
    async with aclosing(watch.page()) as page:
        await until(page, lambda each: each["events"])
        source.seen = replace(source.seen, states={**source.seen.states, "node1": None})
        source.happen("node1", "fault", "x")  # has it look at once
        _, data = await until(page, lambda each: "heard" in each["put"].get("node/node1", {}))
    async with aclosing(watch.page()) as page:
        _, later = await anext(page)
    old = later["put"]["node/node1"]
    assert (old["health"], old["heard"]) == ("unknown", data["put"]["node/node1"]["heard"])
    assert old["detail"]["peers"][0]["name"] == "node2"
    assert [event["kind"] for event in later["events"]][:1] == ["started"]


async def test_a_daemon_that_begins_again_and_tells_all_anew_adds_only_what_is_new(source):
    for kind in ("started", "joined", "repaired"):
        source.happen("node1", kind, "x")
    watch = Watch(source)
    await watch.once(pings=0)
    source.forget("node1")
    await watch.once(pings=0)
    for kind in ("joined", "left"):
        source.happen("node1", kind, "y")
    found = await watch.once(pings=0)
    assert [event["kind"] for event in found["events"]] == ["started", "joined", "repaired", "joined", "left"]


async def test_a_ping_that_comes_back_does_not_heal_a_cut():
    made = lab(2)
    cuts = [Cut(source="node1", target="node2")]
    source = MadeSource(replace(made, lab=msgspec.structs.replace(made.lab, cuts=cuts)))
    async with aclosing(Watch(source).page()) as page:
        _, data = await until(page, lambda each: "ms" in each["put"].get("edge/node1/node2", {}))
    assert data["put"]["edge/node1/node2"]["cut"]


async def test_one_look_has_all_with_measurements(source):
    source.happen("node1", "started", "weftd")
    found = await Watch(source).once(pings=9)
    assert found["put"]["edge/node1/node2"]["ms"] == 0.08
    assert len(found["events"]) == 1
