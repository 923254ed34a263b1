"""What happened on a node: the newest events, a bounded number of them. Knows no clock and no disk."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeVar

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


class Event(Value, gc=False):
    """One thing that happened, at Unix time `time`, to `subject`. `number` counts events, across restarts.

    `words` say more; `was` and `now` what it was and what it is, where that is the point; of a repair what was found
    and what it is again. `by` is who had changed what is repaired, with `perhaps` before it where that is not proved.
    A text may be empty.
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
        """See `blame`."""
        changed = self.kind == "held" or self.was not in {"", GONE}
        return blame(self.by, "changed" if changed else "removed" if self.was else "put there")


class EventsSince(Value):
    """What a daemon answers who asks for events: those after a number, its latest number, and its Unix time."""

    unix: float
    last: int
    events: list[Event]


class History:
    """`unix` tells Unix time, which may jump: the number gives the order."""

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
        """`note` the first of many alike, and the number of the others: thousands of peers come together."""
        for thing in things[:NAMED]:
            note(thing)
        if len(things) > NAMED:
            self.note(kind, f"{len(things) - NAMED} more", words="like those before")

    def told(self, after: int) -> EventsSince:
        """The events after that number; all, if it is of another history."""
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
    """In words: `removed by nft (pid 4711)`, `perhaps removed by ip (pid 8)`; empty for nobody."""
    name = by.removeprefix(PERHAPS)
    return f"{by[: len(by) - len(name)]}{deed} by {name}" if by else ""


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
