"""Jobs on threads: in order for one key, at once for different ones."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import looks
from weft.cni.serve.workers import Workers

SECONDS = 10


class Work:
    """Jobs that say when they have begun, and end when they are told to."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._go: dict[str, threading.Event] = {}
        self._changed = threading.Condition()
        self.begun: list[str] = []

    def submit(self, name: str, key: str | None = None) -> None:
        self._go[name] = threading.Event()
        self._workers.submit(key, lambda: self._do(name))

    def end(self, *names: str) -> None:
        for name in names:
            self._go[name].set()

    def await_begun(self, *names: str) -> None:
        """Wait until jobs of these names have begun, and no others; those that begin at once have no order."""
        with self._changed:
            assert self._changed.wait_for(lambda: sorted(self.begun) == sorted(names), SECONDS), self.begun

    def _do(self, name: str) -> None:
        with self._changed:
            self.begun.append(name)
            self._changed.notify_all()
        assert self._go[name].wait(SECONDS)


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    assert made.wait_idle(SECONDS)
    made.close()


@pytest.fixture
def work(workers: Workers) -> Work:
    return Work(workers)


def test_jobs_of_different_keys_and_of_none_run_at_once(work: Work):
    work.submit("a", "one")
    work.submit("b", "other")
    work.submit("c")
    work.submit("d")
    work.await_begun("a", "b", "c", "d")
    work.end("a", "b", "c", "d")


def test_jobs_of_one_key_come_in_order(work: Work):
    for name in "abc":
        work.submit(name, "one")
    work.submit("d", "other")
    work.await_begun("a", "d")
    work.end("a")
    work.await_begun("a", "d", "b")
    work.end("b")
    work.await_begun("a", "d", "b", "c")
    work.end("c", "d")


def test_a_thread_that_has_become_idle_takes_the_next_job(workers: Workers):
    seen: list[int] = []
    for _ in range(3):
        workers.submit(None, lambda: seen.append(threading.get_ident()))
        assert workers.wait_idle(SECONDS)
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_threads_end_when_it_is_closed(workers: Workers, work: Work):
    for name in "abc":
        work.submit(name)
    work.await_begun("a", "b", "c")
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("cni-")]
    work.end("a", "b", "c")
    assert workers.wait_idle(SECONDS)
    workers.close()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def test_few_idle_threads_are_kept(workers: Workers, work: Work):
    names = [f"{number}" for number in range(20)]
    before = set(threading.enumerate())
    for name in names:
        work.submit(name)
    work.await_begun(*names)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 19
    work.end(*names)
    for _ in looks(SECONDS):
        alive = sum(thread.is_alive() for thread in threads)
        if alive <= 8:
            break
    assert 7 <= alive <= 8, "the first one may have stayed"
    work.submit("next")
    work.await_begun(*names, "next")
    work.end("next")


def refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_for_it_a_job_waits_for_one(
    workers: Workers, work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for name in "abc":
        work.submit(name)
    assert caplog.messages == ["a CNI request has to wait: can't start new thread"] * 2
    for number, name in enumerate("abc"):
        work.await_begun(*"abc"[: number + 1])
        work.end(name)
    assert workers.wait_idle(SECONDS)


def test_a_job_that_found_no_thread_gets_one_as_soon_as_there_can_be_one(
    workers: Workers, work: Work, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        for name in "abc":
            work.submit(name)
        workers.catch_up()
        work.await_begun("a")
    workers.catch_up()
    work.await_begun("a", "b", "c")
    work.end("a", "b", "c")


def test_without_any_thread_there_are_no_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="can't start new thread"):
        Workers()


def test_a_job_that_fails_ends_no_thread(workers: Workers, work: Work, caplog: pytest.LogCaptureFixture):
    workers.submit(None, lambda: 1 // 0)
    assert workers.wait_idle(SECONDS)
    assert "ZeroDivisionError" in caplog.text
    work.submit("a")
    work.await_begun("a")
    work.end("a")
