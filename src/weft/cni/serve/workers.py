"""Worker threads for synchronous work: jobs of one key in order, all others at once. Knows nothing of CNI.

A job that finds no idle thread gets a new one. Few idle ones are kept: each counts against a limit of processes.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from weft.beside.threads import start_thread
from weft.model.value import Value

Job = Callable[[], None]

_MOST_IDLE: Final = 8

_log = logging.getLogger(__name__)


class _Keyed(Value, kw_only=False):
    key: str | None
    job: Job


class Workers:
    """Any thread may call its methods."""

    def __init__(self) -> None:
        """Start the first thread, which does all jobs while no other can be started. `OSError` if not even this can."""
        self._changed = threading.Condition()
        self._lines: dict[str, deque[_Keyed]] = {}  # for each key with a job, those that wait for that one
        self._work: SimpleQueue[_Keyed | None] = SimpleQueue()
        self._unfinished = 0
        self._threads = 0
        self._spare = 0  # idle threads, less the jobs that wait for a thread
        self._start_thread()

    def submit(self, key: str | None, job: Job) -> None:
        """Run `job` after all earlier ones with its key."""
        keyed = _Keyed(key, job)
        with self._changed:
            self._unfinished += 1
            if key is not None and key in self._lines:
                self._lines[key].append(keyed)
                return
            if key is not None:
                self._lines[key] = deque()
            self._hand_over(keyed)

    def catch_up(self) -> None:
        """Start threads for the jobs that found none, as far as that is possible by now."""
        with self._changed, suppress(OSError):
            while self._spare < 0:
                self._start_thread()

    def wait_idle(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, seconds)

    def close(self) -> None:
        with self._changed:
            for _ in range(self._threads):
                self._work.put(None)

    # What follows is called with the lock held, but for `_serve`.

    def _hand_over(self, keyed: _Keyed) -> None:
        self._work.put(keyed)
        self._spare -= 1
        if self._spare < 0:
            try:
                self._start_thread()
            except OSError as error:
                _log.warning("a CNI request has to wait: %s", error.strerror)

    def _start_thread(self) -> None:
        start_thread(self._serve, name=f"cni-{self._threads + 1}")
        self._threads += 1
        self._spare += 1

    def _serve(self) -> None:
        while (keyed := self._work.get()) is not None:
            try:
                keyed.job()
            except Exception:  # noqa: BLE001 - a thread serves the next job whatever this one did
                _log.exception("a CNI request ended in a fault of ours")
            with self._changed:
                self._finished(keyed.key)
                if self._spare > _MOST_IDLE:
                    self._spare -= 1
                    self._threads -= 1
                    return
            del keyed  # what a job holds must not live until the next one comes

    def _finished(self, key: str | None) -> None:
        self._spare += 1
        if key is not None:
            if line := self._lines[key]:
                self._hand_over(line.popleft())
            else:
                del self._lines[key]
        self._unfinished -= 1
        if not self._unfinished:
            self._changed.notify_all()
