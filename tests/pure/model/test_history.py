"""The newest events, numbered across restarts, and of a burst some."""

from collections.abc import Iterator

import pytest

from weft.model.node.history import MOST, NAMED, Event, History


@pytest.fixture
def history() -> History:
    times: Iterator[int] = iter(range(1, 9999))
    return History(lambda: next(times) / 8)


def subjects(history: History) -> list[str]:
    return [event.subject for event in history.events]


def test_an_event_has_a_number_and_a_time(history):
    history.note("joined", "a", words="by foot")
    history.note("repaired", "b", code="ROUTE-001", was="gone", now="there")
    assert history.events == (
        Event(number=1, time=0.125, kind="joined", subject="a", words="by foot"),
        Event(number=2, time=0.25, kind="repaired", subject="b", code="ROUTE-001", was="gone", now="there"),
    )


def test_texts_are_short_and_on_one_line(history):
    history.note("joined", "a\nb\x1b[1m\ud800", words="x" * 999)
    [event] = history.events
    assert event.subject == "a; b\\x1b[1m\\ud800"
    assert (len(event.words), event.words[-1]) == (200, "…")


def test_the_newest_are_kept(history):
    for number in range(MOST + 5):
        history.note("left", str(number))
    assert len(history.events) == MOST
    assert (history.events[0].number, history.events[-1].number, history.last) == (6, MOST + 5, MOST + 5)


@pytest.mark.parametrize("count, last", [(0, []), (NAMED, ["9"]), (NAMED + 1, ["9", "1 more"])])
def test_of_a_burst_some_are_kept_and_the_number_of_the_others(history, count, last):
    history.note_some("joined", range(count), lambda each: history.note("joined", str(each)))
    assert subjects(history) == [*map(str, range(min(count, 9))), *last]


def test_what_is_told_comes_after_a_number(history):
    for name in "abc":
        history.note("left", name)
    told = history.told(1)
    assert ([event.subject for event in told.events], told.last) == (["b", "c"], 3)
    assert history.told(3).events == []
    assert len(history.told(4).events) == 3, "of another history"


def test_the_history_of_earlier_runs_comes_first(history):
    before = History()
    for name in "ab":
        before.note("left", name)
    history.note("joined", "c")
    history.restore(before.events)
    assert subjects(history) == ["a", "b", "c"]
    assert [event.number for event in history.events] == [1, 2, 3]
    history.note("joined", "d")
    assert (history.events[-1].number, history.restored) == (4, True)


def test_without_a_history_of_earlier_runs_counting_goes_on(history):
    history.note("joined", "c")
    history.restore([])
    history.note("joined", "d")
    assert [event.number for event in history.events] == [1, 2]
