"""Remembers which events of a daemon were shown, and finds the new ones in an answer. Pure.

Changes of a node's health become events of their own kind: the daemon keeps none of them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from weft.model.node.history import MOST, Event, EventsSince
from weft.model.node.nodestate import HealthState
from weft.model.value import Value, replace

HEALTH: Final = "health"


class Wanted(Value):
    """Events of these kinds, with a code that begins with one of these; empty is any."""

    kinds: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def wants(self, event: Event) -> bool:
        return (not self.kinds or event.kind in self.kinds) and (not self.codes or event.code.startswith(self.codes))


class Follower:
    """One daemon, and the last of its events that was shown."""

    def __init__(self) -> None:
        self.last = 0  # the number of the latest event
        self._told: deque[Event] = deque(maxlen=MOST)
        self._troubles: dict[str, str] = {}
        self._answers = True

    def events(self, told: EventsSince) -> list[Event]:
        """Return the new events.

        A daemon that has just started has not read its history yet, and a killed one has lost its latest events: its
        numbers begin again before ours, and it tells all. So events are recognised by their content, too.
        """
        if told.last < self.last:
            self.last = 0
        later = [event for event in told.events if event.number > self.last]
        found = [event for event in later if _without_number(event) not in self._told]
        self.last = told.last
        self._told.extend(map(_without_number, found))
        return found

    def health(self, now: HealthState, unix: float) -> list[Event]:
        """What became wrong, changed, or is right again, as events of that time."""
        troubles = {name: str(problem) for name, problem in now.troubles.items()}
        codes = {name: problem.code for name, problem in now.troubles.items()}
        found = [
            _event(unix, name, code=codes[name], words=words.removeprefix(f"{codes[name]} "))
            for name, words in troubles.items()
            if self._troubles.get(name) != words
        ]
        found += [_event(unix, name, words="is well again") for name in self._troubles.keys() - troubles]
        if not self._answers:
            found.append(_event(unix, "weftd", words="answers again"))
        self._troubles, self._answers = troubles, True
        return found

    def silence(self, unix: float) -> list[Event]:
        """The daemon does not answer, as an event of that time; once, until it does."""
        found = [_event(unix, "weftd", code="INST-003", words="does not answer")] if self._answers else []
        self._answers = False
        return found


def recent(events: list[Event], unix: float, seconds: float | None) -> list[Event]:
    """Events of the last `seconds` before the time `unix`; without `seconds` none."""
    return [] if seconds is None else [event for event in events if event.time >= unix - seconds]


def merged(of: Iterable[tuple[str, list[Event]]]) -> list[tuple[str, Event]]:
    """The events of several nodes in the order of their times, each with its node's name."""
    return sorted(((name, event) for name, events in of for event in events), key=lambda pair: pair[1].time)


def _without_number(event: Event) -> Event:
    return replace(event, number=0)


def _event(unix: float, subject: str, *, words: str, code: str = "") -> Event:
    return Event(number=0, time=round(unix, 3), kind=HEALTH, subject=subject, code=code, words=words)
