"""Which paths to other peers carry packets, whom we cannot reach ourselves, and the way to each by what all say.

Nothing is asked, and every peer counts as reachable, before the I/O side has said what it saw for the first time.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import Final

from weft.mesh.health import FALLEN, IN_USE, Path
from weft.mesh.paths import Paths, permitted
from weft.mesh.state import State
from weft.mesh.tunnels import Tunnels
from weft.mesh.ways import Pairs, Way, ways
from weft.model.lease import WayKind
from weft.model.mesh.effects import PathFound, PathNow, Probe, Reason, Sights
from weft.model.mesh.records import MAX_CANNOT, Member, short

_IDLE: Final = 60.0  # seconds between two echoes to a peer with which no pod speaks, at least
_A_PEER: Final = 0.2  # seconds that this takes longer for each peer that there is
_SPARE: Final = 4.0  # times as long on a path that is no better than the one that is taken
_FIRST: Final = 2.0  # seconds until the first echo, at most, in a small mesh
_FIRST_A_PEER: Final = 0.02  # seconds for each peer, where these are more
_MEETING: Final = 5.0  # seconds until it is asked again whether WireGuard has met a peer, for which an echo would wait
_SETTLE: Final = 0.05  # seconds after a change until ways are computed: as a rule it does not come alone
_STEPS: Final = 8  # of computing ways, in one turn


class Waying:
    """`cannot` is for our record; the rest is of a peer with a lease."""

    def __init__(self, state: State, tunnels: Tunnels, found: Iterable[PathFound]) -> None:
        self._state = state
        self._tunnels = tunnels
        self._pairs = Pairs()
        self._found = {(each.key, each.kind): each for each in found}  # by an earlier run
        self._own: Member | None = None  # our record, which says what is permitted
        self._paths: dict[bytes, Paths] = {}  # to each other peer with a lease
        self._fallen = set[bytes]()  # whom no path of ours leads to
        self._sees = False
        self._ways: dict[bytes, Way] = {}
        self._apart = set[bytes]()  # to whom no way leads: we cannot reach them, or they say so of us
        self._active = frozenset[bytes]()
        self._solving: Iterator[dict[bytes, Way | None]] | None = None
        self._solve_at = inf
        self._solved = False
        self.cannot: tuple[int, ...] = ()
        self.due = inf

    def way(self, key: bytes) -> Way:
        return self._ways.get(key, (key,))

    def kind(self, key: bytes) -> WayKind:
        """How packets go to a peer that is the next hop."""
        return self._paths[key].kind

    def mtu(self, key: bytes) -> int:
        """Of the path that packets take to a peer that is the next hop; 0 is the device's."""
        return self._paths[key].mtu

    def reason(self, key: bytes) -> Reason:
        """Why the way to a peer is not the best one."""
        paths, straight = self._paths[key], len(self.way(key)) == 1
        if paths.best is None:
            return "no-kernel"
        if key not in self._fallen and (not straight or key in self._apart):
            return "one-way"
        if straight and paths.kind == paths.best:
            return "mtu" if paths.mtu else ""
        if straight:
            return "" if self._tunnels.crosses(key, paths.best) else "port-filtered"  # no NAT lets vxlan pass
        return self._tunnels.reason(key) or "port-filtered"

    def behind(self, relays: Collection[bytes]) -> list[bytes]:
        """The peers whose way begins with one of these and goes on."""
        return [key for key, way in self._ways.items() if len(way) > 1 and way[0] in relays] if relays else []

    def paths_to(self, key: bytes) -> Iterator[PathNow]:
        """To a peer itself, best first: those that are permitted."""
        for kind, path in self._paths.get(key, ()):
            yield PathNow(kind=kind, usable=path.usable, answered=path.answered_at, mtu=path.sizes.mtu)

    @property
    def found(self) -> tuple[PathFound, ...]:
        """What the next run has to know of paths."""
        return tuple(
            PathFound(key=key, kind=kind, fallen=not carries, mtu=path.sizes.mtu)
            for key, paths in self._paths.items()
            for kind, path in paths
            if not (carries := self._carries(key, kind, path)) or path.sizes.mtu
        )

    # --- What happens

    def put(self, key: bytes, member: Member | None, now: float) -> None:
        """The record of ourselves, or of a peer with a lease; None if it has none any more."""
        changed = self._pairs.put(member) if member else self._pairs.remove(key)
        if member and key == self._state.me:
            own, self._own = self._own, member
            if own is None or (own.clear, own.tunnels, own.nat) != (member.clear, member.tunnels, member.nat):
                for each in self._paths:
                    self._permit(each, self._state.known.members[each], now)
        elif member is None:
            self._ways.pop(key, None)
            self._apart.discard(key)
            self._paths.pop(key, None)
            if key in self._fallen:
                self._fallen.discard(key)
                self._list()
            for each in self.behind({key}):
                del self._ways[each]
                self._state.mark(each)
        else:
            self._permit(key, member, now)
        if changed:
            self._solving = None
            self._solve_at = min(self._solve_at, now + _SETTLE)
            self.due = min(self.due, self._solve_at)

    def begin(self, now: float) -> None:
        """All that was put at the start: ways are as they were before anybody hears of leases."""
        if not self._solved and self._own is not None:
            self._solved = True
            while self._solve_at < inf:
                self._solve(now)

    def saw(self, sights: Sights, now: float) -> None:
        if not self._sees:
            self._sees = True
            for key, paths in self._paths.items():
                self._judge(key, now)
                for _, path in paths:
                    path.due = min(path.due, self._sometime(now))
        new, self._active = sights.active - self._active, sights.active
        if new:
            for key, paths in self._paths.items():
                if self.way(key)[0] in new:
                    for _, path in paths:
                        path.hasten(now)
        for answer in sights.answered:
            of_peer = self._paths.get(answer.key)
            known = None if of_peer is None else of_peer.get(answer.kind)
            if known is not None:
                known.answered(answer.size, now, self._interval(answer.key, answer.kind))
                self._judge(answer.key, now)
        self.due = now

    def met(self, key: bytes, now: float) -> None:
        """WireGuard has had an answer of the peer's: packets pass."""
        if path := self._paths[key].get("direct"):
            if not path.missing:  # that it had fallen is an earlier run's word
                path.usable = path.usable or None
            path.hasten(now)
            self._judge(key, now)

    def forgive(self, now: float) -> None:
        for paths in self._paths.values():
            for _, path in paths:
                path.forgive(now + self._state.chance())

    def forget(self) -> None:
        """Another ring."""
        self._pairs = Pairs()
        self._own = None
        self._ways.clear()
        self._apart.clear()
        self._paths.clear()
        self._fallen.clear()
        self._solving, self._solve_at = None, inf
        self.cannot = ()

    def tick(self, now: float) -> None:
        asks = inf
        if self._sees:
            for key, paths in self._paths.items():
                for kind, path in paths:
                    if now >= path.due:
                        self._ask(key, kind, path, now)
                    asks = min(asks, path.due)
        if now >= self._solve_at:
            self._solve(now)
        self.due = min(self._solve_at, asks)

    # --- What follows

    def _permit(self, key: bytes, member: Member, now: float) -> None:
        kinds = permitted(self._own or member, member)
        self._paths.setdefault(key, Paths()).permit(kinds, partial(self._path, key, now))
        self._judge(key, now)

    def _path(self, key: bytes, now: float, kind: WayKind) -> Path:
        found = self._found.pop((key, kind), PathFound(key=key, kind=kind))
        return Path(self._sometime(now), usable=False if found.fallen else None, mtu=found.mtu)

    def _sometime(self, now: float) -> float:
        """Soon, and not all at once."""
        return now + self._state.chance() * max(_FIRST, _FIRST_A_PEER * len(self._state.known.members))

    def _ask(self, key: bytes, kind: WayKind, path: Path, now: float) -> None:
        if path.usable is None and kind == "direct" and self._tunnels.doubtful(key, kind):
            path.due = now + _MEETING
            return
        size = path.tick(now, self._interval(key, kind))
        if size is not None:
            self._state.out.append(Probe(key=key, kind=kind, size=size))
            if kind == "direct":
                self._tunnels.asked(key, now)
        if path.missing:
            paths = self._paths[key]
            if kind == paths.kind and path.usable:
                for _, other in paths:  # so that it is proved when this one has fallen
                    other.hasten(now)
            self._judge(key, now)

    def _interval(self, key: bytes, kind: WayKind) -> float:
        way, paths = self.way(key), self._paths[key]
        idle = max(_IDLE, _A_PEER * len(self._state.known.members))
        if key not in self._fallen and len(way) == 1 and paths.is_worse(kind):
            return _SPARE * idle
        if way[0] not in self._active:
            return idle
        return IN_USE if len(way) == 1 and kind == paths.kind else FALLEN

    def _judge(self, key: bytes, now: float) -> None:
        paths = self._paths[key]
        kind, carries = paths.kind, paths.judge(partial(self._carries, key))
        if kind != paths.kind and (path := paths.get(paths.kind)) is not None:
            path.hasten(now)
        if paths.told != (told := (paths.kind, paths.mtu)):
            paths.told = told
            for each in (key, *self.behind({key})):
                self._state.mark(each)
        if carries == (key in self._fallen):
            self._fallen ^= {key}
            self._state.mark(key)  # the reason of its way is another
            self._list()
            for _, path in paths:
                path.hasten(now + FALLEN)  # the first that comes back is taken

    def _carries(self, key: bytes, kind: WayKind, path: Path) -> bool:
        """Whether it is taken for one that carries packets, as one of which nothing is known is, as a rule."""
        return not self._tunnels.doubtful(key, kind) if path.usable is None else path.usable

    def _list(self) -> None:
        self.cannot = tuple(sorted(map(short, self._fallen))[:MAX_CANNOT])
        self._state.stale = True

    def _solve(self, now: float) -> None:
        self._solve_at = inf
        if self._state.me not in self._pairs.shorts:  # our own record comes
            return
        if self._solving is None:
            if not self._pairs.apart(self._state.me):  # as a rule
                for key in {key for key, way in self._ways.items() if len(way) > 1} | self._apart:
                    self._ways.pop(key, None)
                    self._state.mark(key)
                self._apart.clear()
                return
            self._solving = ways(self._state.me, self._pairs)
        for some in islice(self._solving, _STEPS):
            for key, found in some.items():
                # Where no way leads, straight on: with the last way of each, packets would go round between two peers.
                way = found or (key,)
                if way != self.way(key) or (key in self._apart) != (found is None):
                    self._ways[key] = way
                    (self._apart.add if found is None else self._apart.discard)(key)
                    self._state.mark(key)
                self._solve_at = now
        if self._solve_at == inf:
            self._solving = None
