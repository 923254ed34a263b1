"""What each link has still to be told: names of records, whose newest version is sent at most 100 ms later.

Where many records come at once, as when a large mesh starts, they are told together, some 300 ms later.

One pending name a record and link, never a queue: a slow link hears less often, not more.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Final, TypeVar

from weft.model.mesh.messages import Records
from weft.model.mesh.records import MAX_MEMBERS_AT_ONCE, MAX_TOKENS_AT_ONCE, Member, Removal, Token
from weft.model.value import Value, field

SOONEST: Final = 0.05  # seconds; at most twice that,
MANY: Final = 8  # and as long again for each so many records that were told lately,
LATELY: Final = 1.0  # seconds ago,
LONGEST: Final = 4  # up to so many times: what others tell meanwhile need not be told to them
MAX_REMOVALS_AT_ONCE: Final = 16  # each has tokens, too

_R = TypeVar("_R")


class Names(Value, frozen=False):
    """Keys of members, starts of tokens, removed keys. Dicts, as sets that keep the order."""

    members: dict[bytes, None] = field(default_factory=dict)
    tokens: dict[int, None] = field(default_factory=dict)
    removals: dict[bytes, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.members) + len(self.tokens) + len(self.removals)


class Flood:
    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._pending: dict[int, Names] = {}
        self._told, self._when = 0, -inf  # so many records, the last time
        self.due = inf

    def open(self, link: int) -> None:
        self._pending[link] = Names()

    def close(self, link: int) -> None:
        self._pending.pop(link, None)

    def tell(self, names: Names, now: float, *, but: int | None = None) -> None:
        """Tell all links but one."""
        for link, pending in self._pending.items():
            if link != but:
                self._put(pending, names)
        self._wait(now)

    def has(self, link: int, members: Iterable[bytes], tokens: Iterable[int]) -> None:
        """The link knows these as we do: it has told us."""
        pending = self._pending[link]
        for key in members:
            pending.members.pop(key, None)
        for start in tokens:
            pending.tokens.pop(start, None)

    def take(self) -> list[tuple[int, Names]]:
        """What is to be sent now."""
        self._when, self.due = self.due, inf
        taken = [(link, names) for link, names in self._pending.items() if names]
        for link, _ in taken:
            self._pending[link] = Names()
        self._told = max((len(names) for _, names in taken), default=0)
        return taken

    def _put(self, pending: Names, names: Names) -> None:
        pending.members.update(names.members)
        pending.tokens.update(names.tokens)
        pending.removals.update(names.removals)

    def _wait(self, now: float) -> None:
        if self.due == inf and self._pending:
            told = self._told if now < self._when + LATELY else 0
            self.due = now + SOONEST * (1 + self._chance()) * min(LONGEST, 1 + told / MANY)


def in_frames(
    members: Iterable[Member] = (), tokens: Iterable[Token] = (), removals: Iterable[Removal] = ()
) -> list[Records]:
    """Records in messages that are within a frame each; removals go first, as they say how to take tokens."""
    return [
        *(Records(removals=part) for part in _parts(removals, MAX_REMOVALS_AT_ONCE)),
        *(Records(tokens=part) for part in _parts(tokens, MAX_TOKENS_AT_ONCE)),
        *(Records(members=part) for part in _parts(members, MAX_MEMBERS_AT_ONCE)),
    ]


def _parts(records: Iterable[_R], size: int) -> Iterator[tuple[_R, ...]]:
    rest = iter(records)
    while part := tuple(islice(rest, size)):
        yield part
