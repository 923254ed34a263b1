"""What happened on a node: its newest events, and what a reader of them has seen. No clock, no disk."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeVar

from weft.model.node.nodestate import HealthState
from weft.model.text import one_line
from weft.model.value import Value, replace

MOST: Final = 1000
GONE: Final = "gone"  # what `was` is of something that was not there
PERHAPS: Final = "perhaps "  # before who may have done something, where that is likely and not proved
NAMED: Final = 10  # events of a burst that are alike; of what is beyond that, the number
_LONGEST: Final = 200  # characters of a text: some are a peer's

T = TypeVar("T")
Kind = Literal[
    "started",
    "joined",
    "left",
    "changed",
    "refused",
    "repaired",
    "held",
    "failing",
    "recovered",
    "store-lost",
    "store-back",
    "lease-taken",
    "lease-lost",
    "uplink-changed",
    "uplink-lost",
    "uplink-back",
    "fault",
    "ring",
    # of a lab, by its commands
    "killed",
    "stopped",
    "restarted",
    "shaped",
    "cut",
    "healed",
    "broke",
    "mended",
    "resized",
    "configured",
]
HEALTH: Final = "health"


class Event(Value, gc=False):
    """One event at a Unix time. `number` counts events across restarts; texts may be empty.

    `was` and `now` are the states before and after; of a repair, what was found and what it is again. `by` is who had
    changed what is repaired, after `perhaps` where that is not proved.
    """

    number: int
    time: float
    kind: str
    subject: str
    code: str = ""
    words: str = ""
    was: str = ""
    now: str = ""
    by: str = ""

    @property
    def blame(self) -> str:
        changed = self.kind == "held" or self.was not in {"", GONE}
        return blame(self.by, "changed" if changed else "removed" if self.was else "put there")


class EventsSince(Value):
    """A daemon's answer: events after a number, its latest number, and its Unix time."""

    unix: float
    last: int
    events: list[Event]


class History:
    """`unix` tells Unix time, which may jump: only `number` orders events."""

    def __init__(self, unix: Callable[[], float] = float) -> None:
        self.last = 0
        self.restored = False
        self._unix = unix
        self._events: deque[Event] = deque(maxlen=MOST)

    @property
    def events(self) -> tuple[Event, ...]:
        """The oldest first."""
        return tuple(self._events)

    def note(
        self,
        kind: Kind,
        subject: str,
        *,
        code: str = "",
        words: str = "",
        was: str = "",
        now: str = "",
        by: str = "",
    ) -> None:
        self.last += 1
        event = Event(
            number=self.last,
            time=round(self._unix(), 3),
            kind=kind,
            subject=_short(subject),
            code=code,
            words=_short(words),
            was=_short(was),
            now=_short(now),
            by=_short(by),
        )
        self._events.append(event)

    def note_some(self, kind: Kind, things: Sequence[T], note: Callable[[T], None]) -> None:
        """Call `note` for the first ones, and record the number of the others: thousands of peers join together."""
        for thing in things[:NAMED]:
            note(thing)
        if len(things) > NAMED:
            self.note(kind, f"{len(things) - NAMED} more", words="like those before")

    def told(self, after: int) -> EventsSince:
        """The events after that number; all, if it is from another history."""
        known = after if after <= self.last else 0
        return EventsSince(
            unix=self._unix(), last=self.last, events=[each for each in self._events if each.number > known]
        )

    def restore(self, before: Iterable[Event]) -> None:
        """Put the events of earlier runs before those of this one, once."""
        kept = list(before)
        last = kept[-1].number if kept else 0
        own = [replace(event, number=last + event.number) for event in self._events]
        self._events = deque([*kept, *own], maxlen=MOST)
        self.last += last
        self.restored = True


def blame(by: str, deed: str) -> str:
    """`removed by nft (pid 4711)`, `perhaps removed by ip (pid 8)`; empty without `by`."""
    name = by.removeprefix(PERHAPS)
    return f"{by[: len(by) - len(name)]}{deed} by {name}" if by else ""


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class Wanted(Value):
    """Events of these kinds, and with codes that begin so; empty is any."""

    kinds: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def wants(self, event: Event) -> bool:
        return (not self.kinds or event.kind in self.kinds) and (not self.codes or event.code.startswith(self.codes))


class Follower:
    """One daemon's events as they are read, and changes of its health as events, which the daemon does not keep."""

    def __init__(self) -> None:
        self.last = 0  # the number of the latest event
        self._told: deque[Event] = deque(maxlen=MOST)
        self._troubles: dict[str, str] = {}
        self._answers = True

    def events(self, told: EventsSince) -> list[Event]:
        """Return the new events.

        A daemon that has just started has not read its history yet, and a killed one has lost its latest events: its
        numbers begin again below ours. So events are also recognised by their content.
        """
        if told.last < self.last:
            self.last = 0
        later = [event for event in told.events if event.number > self.last]
        found = [event for event in later if _without_number(event) not in self._told]
        self.last = told.last
        self._told.extend(map(_without_number, found))
        return found

    def health(self, now: HealthState, unix: float) -> list[Event]:
        """What went wrong, changed, or is right again, as events of that time."""
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
        """The daemon does not answer: one event, until it does."""
        found = [_event(unix, "weftd", code="INST-003", words="does not answer")] if self._answers else []
        self._answers = False
        return found


def recent(events: list[Event], unix: float, seconds: float | None) -> list[Event]:
    """The events of the last `seconds`; empty without `seconds`."""
    return [] if seconds is None else [event for event in events if event.time >= unix - seconds]


def merged(of: Iterable[tuple[str, list[Event]]]) -> list[tuple[str, Event]]:
    """The events of several nodes in order of time, each with its node's name."""
    return sorted(((name, event) for name, events in of for event in events), key=lambda pair: pair[1].time)


def _without_number(event: Event) -> Event:
    return replace(event, number=0)


def _event(unix: float, subject: str, *, words: str, code: str = "") -> Event:
    return Event(number=0, time=round(unix, 3), kind=HEALTH, subject=subject, code=code, words=words)
