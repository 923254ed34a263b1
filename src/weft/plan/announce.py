"""Which Events a node's problems are worth: one per code, none twice within ten minutes, few at once.

Time is an argument, in seconds of any clock that only goes forward.
"""

from collections.abc import Iterable
from typing import Final

from weft.model.errors import Problem
from weft.model.text import one_line
from weft.model.value import Value

BURST: Final = 10
PAUSE: Final = 30.0  # between two Events after a burst
AGAIN: Final = 600.0  # before a problem that is still there, or there again, is said once more
# Of the cluster, not of the node: each node says it once.
ONCE: Final = frozenset({"POL-001"})
LONGEST: Final = 1024  # characters of a message, which the API bounds so (events.k8s.io/v1, note)


class Event(Value):
    """`kind` is the API's type, `Warning` or `Normal`; `reason` is a word, or a code."""

    kind: str
    reason: str
    message: str


READY: Final = Event(kind="Normal", reason="NetworkReady", message="Pods of this node have their network")


class Announcer:
    def __init__(self, now: float) -> None:
        self._said: dict[str, float] = {}
        self._was_ready = False
        self._tokens = float(BURST)
        self._last = now

    def take(self, problems: Iterable[Problem], now: float, *, ready: bool) -> list[Event]:
        """What there is no room for is said later, if it is there then."""
        self._tokens = min(float(BURST), self._tokens + (now - self._last) / PAUSE)
        self._last = now
        events = []
        if ready and not self._was_ready and self._may():
            self._was_ready = True
            events.append(READY)
        for problem in problems:
            said = self._said.get(problem.code)
            again = said is not None and problem.code not in ONCE and now - said >= AGAIN
            if (said is None or again) and self._may():
                self._said[problem.code] = now
                events.append(self._warning(problem))
        return events

    def _may(self) -> bool:
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _warning(self, problem: Problem) -> Event:
        message = one_line(str(problem).removeprefix(f"{problem.code} "))
        if len(message) > LONGEST:
            message = f"{message[: LONGEST - 1]}…"
        return Event(kind="Warning", reason=problem.code, message=message)
