"""Worker threads for synchronous work: jobs of one key in order, of different keys at once.

Knows nothing of CNI. Threads are made when needed and kept. How many jobs have a place at a time is limited, because
they share one interpreter and the kernel's one rtnetlink lock. A job that waits for another program gives its place up:
it steps aside, or is taken to wait because it takes so long.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from weft.beside.threads import start_thread
from weft.model.value import Value

Job = Callable[[], None]

_log = logging.getLogger(__name__)


class _Run(Value, kw_only=False, frozen=False):
    """A job that a thread has or will get; `since` when it had a place, by the clock of `time.monotonic`."""

    key: str | None
    job: Job
    since: float = 0.0
    has_place: bool = False
    relieved: bool = False


class Turns:
    """Runs jobs. All methods may be called from any thread."""

    def __init__(self, *, places: int, most: int) -> None:
        """Let as many jobs run as there are `places`; from no more than `most` at a time theirs is taken.

        `OSError` when there can be no thread at all.
        """
        self._places = places  # that are free
        self._most = most
        self._changed = threading.Condition()
        self._ready: deque[_Run] = deque()
        self._lines: dict[str, deque[_Run]] = {}
        self._work: SimpleQueue[_Run | None] = SimpleQueue()
        self._running: dict[int, _Run] = {}  # by thread
        self._waiting = 0  # for a place, or for an earlier job of the same key
        self._unfinished = 0
        self._idle = 0
        self._threads = 0
        self._start_thread()  # while there can be one: where there can be no more, it does all in turns
        self._idle = self._threads

    def submit(self, key: str | None, job: Job) -> bool:
        """Have `job` run after all earlier ones with its key; without a key, as soon as there is a place.

        Returns whether jobs wait: then `relieve` is to be called.
        """
        run = _Run(key, job)
        with self._changed:
            self._unfinished += 1
            self._waiting += 1
            if key is not None and key in self._lines:
                self._lines[key].append(run)
            else:
                if key is not None:
                    self._lines[key] = deque()
                self._ready.append(run)
                self._start()
            return self._waiting > 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For a running job: others may run in its place meanwhile, even those it waits for."""
        run = self._running[threading.get_ident()]
        with self._changed:
            self._leave(run)
            self._start()
        try:
            yield
        finally:
            with self._changed:
                self._enter(run)

    def relieve(self, seconds: float) -> bool:
        """Take their places from jobs that run for so long; returns whether jobs wait still."""
        with self._changed:
            limit = time.monotonic() - seconds
            taken = sum(run.relieved for run in self._running.values())
            for run in self._running.values():
                if run.has_place and run.since <= limit and taken < self._most:
                    self._leave(run)
                    run.relieved = True
                    taken += 1
            self._start()
            return self._waiting > 0

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no job is left; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, seconds)

    def close(self) -> None:
        """Let the threads end. Nothing may be submitted any more."""
        with self._changed:
            for _ in range(self._threads):
                self._work.put(None)

    # What follows is called with the lock held, but for `_serve`.

    def _enter(self, run: _Run) -> None:
        self._places -= 1
        run.since, run.has_place, run.relieved = time.monotonic(), True, False

    def _leave(self, run: _Run) -> None:
        if run.has_place:
            self._places += 1
            run.has_place = False

    def _start(self) -> None:
        """Give ready jobs to threads, as many as there are places."""
        while self._ready and self._places > 0:
            if self._idle:
                self._idle -= 1
            elif not self._start_thread():
                return  # what waits gets its turn when a job is relieved, or ends
            run = self._ready.popleft()
            self._waiting -= 1
            self._enter(run)
            self._work.put(run)

    def _start_thread(self) -> bool:
        try:
            start_thread(self._serve, name=f"cni-{self._threads + 1}")
        except OSError as error:
            if not self._threads:
                raise
            _log.warning("a CNI request has to wait: %s", error.strerror)
            return False
        self._threads += 1
        return True

    def _serve(self) -> None:
        me = threading.get_ident()
        while (run := self._work.get()) is not None:
            with self._changed:
                self._running[me] = run
            try:
                run.job()
            except Exception:  # noqa: BLE001 - a thread serves the next job whatever this one did
                _log.exception("a CNI request ended in a fault of ours")
            with self._changed:
                del self._running[me]
                self._finished(run)
            del run  # what a job holds must not live until the next one comes

    def _finished(self, run: _Run) -> None:
        self._unfinished -= 1
        self._idle += 1
        self._leave(run)
        if run.key is not None:
            line = self._lines[run.key]
            if line:
                self._ready.append(line.popleft())
            else:
                del self._lines[run.key]
        self._start()
        if not self._unfinished:
            self._changed.notify_all()
