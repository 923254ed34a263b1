"""Worker threads for synchronous work: jobs of one key in order, of different keys at once.

Knows nothing of CNI. Threads are made when needed and kept. How many jobs run at a time is limited, because they
share one interpreter and the kernel's one rtnetlink lock; a job that only waits for somebody else steps aside.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

Job = Callable[[], None]

_log = logging.getLogger(__name__)


class Turns:
    """Runs jobs. All methods may be called from any thread."""

    def __init__(self, *, at_once: int) -> None:
        self._at_once = at_once
        self._changed = threading.Condition()
        self._ready: deque[tuple[str | None, Job]] = deque()
        self._lines: dict[str, deque[Job]] = {}
        self._work: SimpleQueue[tuple[str | None, Job] | None] = SimpleQueue()
        self._running = 0
        self._unfinished = 0
        self._idle = 0
        self._threads = 0

    def submit(self, key: str | None, job: Job) -> None:
        """Have `job` run after all earlier ones with its key; without a key, as soon as there is room."""
        with self._changed:
            self._unfinished += 1
            if key is not None:
                line = self._lines.get(key)
                if line is not None:
                    line.append(job)
                    return
                self._lines[key] = deque()
            self._ready.append((key, job))
            self._start()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For a running job: others may run in its place meanwhile, even those it waits for."""
        with self._changed:
            self._running -= 1
            self._start()
        try:
            yield
        finally:
            with self._changed:
                self._running += 1

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no job is left; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, seconds)

    def close(self) -> None:
        """Let the threads end. Nothing may be submitted any more."""
        with self._changed:
            for _ in range(self._threads):
                self._work.put(None)

    def _start(self) -> None:
        """Give ready jobs to threads, as many as may run. Called with the lock held."""
        while self._ready and self._running < self._at_once:
            self._running += 1
            self._work.put(self._ready.popleft())
            if self._idle:
                self._idle -= 1
                continue
            self._threads += 1
            threading.Thread(target=self._serve, name=f"cni-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while (given := self._work.get()) is not None:
            key, job = given
            try:
                job()
            except Exception:  # noqa: BLE001 - a thread serves the next job whatever this one did
                _log.exception("a CNI request ended in a fault of ours")
            del given, job  # what a job holds must not live until the next one comes
            self._finished(key)

    def _finished(self, key: str | None) -> None:
        with self._changed:
            self._unfinished -= 1
            self._running -= 1
            self._idle += 1
            if key is not None:
                line = self._lines[key]
                if line:
                    self._ready.append((key, line.popleft()))
                else:
                    del self._lines[key]
            self._start()
            if not self._unfinished:
                self._changed.notify_all()
