"""Which paths to other peers carry packets, whom we cannot reach ourselves, and the way to each by what all say.

Nothing is asked, and every peer counts as reachable, before the I/O side has said what it saw for the first time.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from math import inf
from typing import Final

from weft.mesh.health import FALLEN, IN_USE, Path
from weft.mesh.state import State
from weft.mesh.ways import Pairs, Way, ways
from weft.model.mesh.effects import Probe, Reason, Sights
from weft.model.mesh.records import MAX_CANNOT, Member, short

_IDLE: Final = 60.0  # seconds between two echoes to a peer with which no pod speaks, at least
_A_PEER: Final = 0.2  # … and so many for each peer that there is
_SETTLE: Final = 0.05  # seconds after a change until ways are computed: as a rule it does not come alone
_STEPS: Final = 8  # of computing ways, in one turn


class Waying:
    """`cannot` is for our record; `way` and `reason` are of a peer with a lease."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pairs = Pairs()
        self._paths: dict[bytes, Path] = {}  # to each other peer with a lease
        self._sees = False
        self._ways: dict[bytes, Way] = {}
        self._active = frozenset[bytes]()
        self._solving: Iterator[dict[bytes, Way | None]] | None = None
        self._solve_at = inf
        self.cannot: tuple[int, ...] = ()
        self.due = inf

    def way(self, key: bytes) -> Way:
        return self._ways.get(key, (key,))

    def reason(self, key: bytes) -> Reason:
        """Why the way to a peer is not the shortest one."""
        if len(self.way(key)) == 1:
            return ""
        return "port-filtered" if short(key) in self.cannot else "one-way"

    def behind(self, relays: Collection[bytes]) -> list[bytes]:
        """The peers whose way begins with one of these and goes on."""
        return [key for key, way in self._ways.items() if len(way) > 1 and way[0] in relays] if relays else []

    # --- What happens

    def put(self, key: bytes, member: Member | None, now: float) -> None:
        """The record of ourselves, or of a peer with a lease; None if it has none any more."""
        changed = self._pairs.put(member) if member else self._pairs.remove(key)
        if member is None:
            self._ways.pop(key, None)
            self._paths.pop(key, None)
            for each in self.behind({key}):
                del self._ways[each]
                self._state.mark(each)
        elif key != self._state.me and key not in self._paths:
            self._paths[key] = Path(self._sometime(key, now))
        if changed:
            self._solving = None
            self._solve_at = min(self._solve_at, now + _SETTLE)
            self.due = min(self.due, self._solve_at)

    def saw(self, sights: Sights, now: float) -> None:
        if not self._sees:
            self._sees = True
            for key, path in self._paths.items():
                path.due = self._sometime(key, now)
        new, self._active = sights.active - self._active, sights.active
        if new:
            for key, path in self._paths.items():
                if self.way(key)[0] in new:
                    path.hasten(now)
        for answer in sights.answered:
            if known := self._paths.get(answer.key):
                known.answered(now, self._interval(answer.key))
        self.due = now

    def forgive(self, now: float) -> None:
        for path in self._paths.values():
            path.forgive(now + self._state.chance())

    def forget(self) -> None:
        """Another ring."""
        self._pairs = Pairs()
        self._ways.clear()
        self._paths.clear()
        self._solving, self._solve_at = None, inf
        self.cannot = ()

    def tick(self, now: float) -> None:
        if self._sees:
            for key, path in self._paths.items():
                if now >= path.due and path.tick(now, self._interval(key)):
                    self._state.out.append(Probe(key=key, kind="vxlan"))
            self._judge()
        if now >= self._solve_at:
            self._solve(now)
        asks = min((path.due for path in self._paths.values()), default=inf) if self._sees else inf
        self.due = min(self._solve_at, asks)

    # --- What follows

    def _sometime(self, key: bytes, now: float) -> float:
        """Not all at once."""
        return now + self._state.chance() * self._interval(key)

    def _interval(self, key: bytes) -> float:
        way = self.way(key)
        if way[0] not in self._active:
            return max(_IDLE, _A_PEER * len(self._state.known.members))
        return IN_USE if len(way) == 1 else FALLEN

    def _judge(self) -> None:
        fallen = (short(key) for key, path in self._paths.items() if path.usable is False)
        cannot = tuple(sorted(fallen)[:MAX_CANNOT])
        if cannot != self.cannot:
            differ = {*cannot} ^ {*self.cannot}
            self.cannot = cannot
            self._state.stale = True
            for key in self._ways:
                if short(key) in differ:
                    self._state.mark(key)  # the reason of its way is another

    def _solve(self, now: float) -> None:
        self._solve_at = inf
        if self._state.me not in self._pairs.shorts:  # our own record comes
            return
        if self._solving is None:
            self._solving = ways(self._state.me, self._pairs)
        for some in islice(self._solving, _STEPS):
            for key, found in some.items():
                # Where no way leads, straight on: with the last way of each, packets would go round between two peers.
                way = found or (key,)
                if way != self.way(key):
                    self._ways[key] = way
                    self._state.mark(key)
                self._solve_at = now
        if self._solve_at == inf:
            self._solving = None
