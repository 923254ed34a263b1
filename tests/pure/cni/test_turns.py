"""Jobs on threads: in order for one key, at once for different ones, and nobody waits for those who wait."""

import threading
from collections.abc import Iterator

import pytest

from weft.cni.serve.workers import Turns

SECONDS = 10


class Work:
    """Jobs that say when they have begun, and end when they are told to."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._go: dict[str, threading.Event] = {}
        self._changed = threading.Condition()
        self.begun: list[str] = []

    def submit(self, name: str, key: str | None = None, *, aside: bool = False) -> bool:
        self._go[name] = threading.Event()
        return self._turns.submit(key, lambda: self._do(name, aside=aside))

    def end(self, name: str) -> None:
        self._go[name].set()

    def await_begun(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun == list(names), SECONDS), self.begun

    def _do(self, name: str, *, aside: bool) -> None:
        with self._changed:
            self.begun.append(name)
            self._changed.notify_all()
        if aside:
            with self._turns.aside():
                assert self._go[name].wait(SECONDS)
        else:
            assert self._go[name].wait(SECONDS)


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = Turns(places=1, most=2)
    yield made
    assert made.wait_idle(SECONDS)
    made.close()


@pytest.fixture
def work(turns: Turns) -> Work:
    return Work(turns)


def test_one_at_a_time_and_who_submits_is_told_that_somebody_waits(work: Work):
    assert not work.submit("a")
    assert work.submit("b")
    work.await_begun("a")
    work.end("a")
    work.await_begun("a", "b")
    work.end("b")


def test_jobs_of_one_key_come_in_order(work: Work):
    work.submit("a", "one")
    work.submit("b", "one")
    work.submit("c", "other")
    work.await_begun("a")
    work.end("a")
    # Behind the one that was ready already.
    work.await_begun("a", "c")
    work.end("c")
    work.await_begun("a", "c", "b")
    work.end("b")


def test_who_steps_aside_lets_others_in(work: Work):
    work.submit("a", aside=True)
    work.submit("b")
    work.await_begun("a", "b")
    work.end("b")
    work.end("a")


def test_who_takes_long_gives_its_place_to_another_and_only_one(turns: Turns, work: Work):
    work.submit("a")
    work.submit("b")
    work.submit("c")
    work.await_begun("a")
    assert turns.relieve(SECONDS), "nobody has taken that long"
    work.await_begun("a")
    assert turns.relieve(0), "one still waits"
    work.await_begun("a", "b")
    work.end("a")  # has no place any more that another could have
    assert not turns.wait_idle(0.05)
    work.await_begun("a", "b")
    work.end("b")
    work.await_begun("a", "b", "c")
    work.end("c")


def test_who_stands_in_line_behind_one_that_ends_does_not_wait_for_another(turns: Turns, work: Work):
    """It becomes ready when nobody submits anything: whoever relieves must not have stopped before."""
    work.submit("a", "one")
    work.await_begun("a")
    assert work.submit("b", "one")
    assert turns.relieve(0)
    work.submit("c", "other")
    work.await_begun("a", "c")
    work.end("a")
    while "b" not in work.begun:
        turns.relieve(0)
    work.await_begun("a", "c", "b")
    work.end("b")
    work.end("c")


def test_no_more_than_the_most_wait_like_that_beside_those_aside(turns: Turns, work: Work):
    for name in ("x", "y", "z"):
        work.submit(name, aside=True)
    work.await_begun("x", "y", "z")
    work.begun.clear()
    for number, name in enumerate("abc"):
        work.submit(name)
        work.await_begun(*"abc"[: number + 1])
        turns.relieve(0)
    assert work.submit("d")
    assert turns.relieve(0)
    work.await_begun("a", "b", "c")
    for name in "abcdxyz":
        work.end(name)


def refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_for_it_a_job_waits(turns: Turns, work: Work, monkeypatch: pytest.MonkeyPatch):
    work.submit("first", aside=True)
    work.await_begun("first")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert work.submit("a"), "somebody has to look after it"
    assert not turns.relieve(SECONDS)
    work.await_begun("first", "a")
    work.end("a")
    work.end("first")


def test_the_thread_that_is_there_from_the_start_does_all_in_turns(
    turns: Turns, work: Work, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for name in "abc":
        work.submit(name)
    for number, name in enumerate("abc"):
        work.await_begun(*"abc"[: number + 1])
        work.end(name)
    assert turns.wait_idle(SECONDS)


def test_without_any_thread_there_are_no_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="can't start new thread"):
        Turns(places=1, most=1)


def test_who_comes_back_from_aside_has_a_place_again(turns: Turns, work: Work):
    work.submit("a", aside=True)
    work.submit("b", aside=True)
    work.await_begun("a", "b")
    work.end("b")
    work.end("a")
    assert turns.wait_idle(SECONDS)
    assert not work.submit("c")
    assert work.submit("d")
    work.await_begun("a", "b", "c")
    work.end("c")
    work.await_begun("a", "b", "c", "d")
    work.end("d")


def test_a_job_that_fails_ends_no_thread(turns: Turns, work: Work, caplog: pytest.LogCaptureFixture):
    turns.submit(None, lambda: 1 // 0)
    assert turns.wait_idle(SECONDS)
    assert "ZeroDivisionError" in caplog.text
    work.submit("a")
    work.await_begun("a")
    work.end("a")
