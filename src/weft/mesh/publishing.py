"""Our own record, as a rule at most once a second, and which leases the others' records give."""

from collections.abc import Iterable
from math import inf
from typing import Final

from weft.mesh.flood import Names
from weft.mesh.outside import Outside
from weft.mesh.state import AHEAD, State
from weft.mesh.tunnels import Tunnels
from weft.mesh.waying import Waying
from weft.model.mesh.effects import Hop, Leases, Publish
from weft.model.mesh.records import MAX_LINKS, MAX_RECORD, Member, short
from weft.model.value import fields_of

PAUSE: Final = 1.0  # seconds between two versions of our record
FIRST: Final = 2  # versions, after which one in which links alone have changed waits longer:
FOR_EACH: Final = 0.02  # seconds for each member
LONGEST: Final = 10.0  # seconds, at most
SHOWN: Final = ("home", "attrs", "name", "tunnels", "clear")  # what leases, and ways by such a peer, are made of
PLAIN: Final = 160  # bytes of a record, at most, that are not counted below
# What others wait for, and is rare.
URGENT: Final = frozenset(("attrs", "home", "settled", "cannot", "clear", "relays"))


class Publishing:
    def __init__(self, state: State, waying: Waying, outside: Outside, tunnels: Tunnels) -> None:
        self._state = state
        self._waying = waying
        self._outside = outside
        self._tunnels = tunnels
        self.shown: dict[bytes, Member] = {}  # as leases
        self._hops: dict[bytes, Hop] = {}  # of those that are shown
        self._last = -inf
        self._count = 0
        self.told = Publish(attrs=b"")
        self.due = inf

    def publish(self, told: Publish) -> None:
        self.told = told
        self._outside.own(told.tunnels)
        self._state.stale = True

    def tick(self, now: float) -> None:
        state = self._state
        self.due = inf
        # Without attributes others have our record of before, and would take our lease for one that is gone.
        state.stale = state.ring is None or (state.kept.home is not None and not self.told.attrs)
        if state.stale:
            return
        made = self._record(state.version + 1)
        changed = self._changed(made)
        if not changed:
            return
        if now < self._last + self._patience(changed):
            self.due = self._last + self._patience(changed)
            return
        self._last = now
        self._count += 1
        state.version += 1
        if state.version > state.kept.version:
            state.keep(version=state.version + AHEAD)
        state.put(made)
        state.flood.tell(Names(members={state.me: None}), now)

    def _patience(self, changed: list[str]) -> float:
        """Many peers that begin at once have other links each second, of which nobody needs to hear."""
        if not URGENT.isdisjoint(changed):
            return 0.0
        if changed == ["links"] and self._count >= FIRST:
            return min(LONGEST, len(self._state.known.members) * FOR_EACH)
        return PAUSE

    def _record(self, version: int) -> Member:
        state, told = self._state, self.told
        links = sorted(short(link.key) for link in state.links.of(state.known.ring))
        addresses = sum(2 + len(address) for address in (*told.endpoints, *self._outside.tunnels))
        others = len(told.attrs) + addresses + 4 * MAX_LINKS
        return Member(
            key=state.me,
            run=state.options.run,
            version=version,
            name=state.options.name,
            endpoints=told.endpoints,
            attrs=told.attrs,
            home=state.kept.home,
            settled=state.kept.settled,
            links=tuple(links[:MAX_LINKS]),
            cannot=self._waying.cannot[: (MAX_RECORD - PLAIN - others) // 4],
            over=state.kept.over,
            done=state.kept.done,
            tunnels=self._outside.tunnels,
            nat=self._outside.nat,
            clear=told.clear,
            relays=told.relays,
        )

    def _changed(self, made: Member) -> list[str]:
        state = self._state
        old = state.known.members.get(state.me)
        if old is None or old.version != state.version:
            return ["version"]
        return [part for part in fields_of(made) if part != "version" and getattr(old, part) != getattr(made, part)]

    def leases(self, now: float) -> None:
        """Show the leases that have changed, and the next hop to each: the ring gives its member the home block."""
        state = self._state
        changed, gone = [], []
        for key in (marked := state.take_changed()):
            member = state.known.members.get(key)
            if key == state.me:
                self._waying.put(key, member, now)
                continue
            shown = self.shown.get(key)
            lease = member if member and self._holds(member) else None
            if lease is None and shown is None:
                continue
            self._tunnels.put(key, lease, now)
            self._waying.put(key, lease, now)
            if lease is None:
                del self.shown[key]
                self._hops.pop(key, None)
                gone.append(key)
            elif shown is None or any(getattr(shown, each) != getattr(lease, each) for each in SHOWN):
                self.shown[key] = lease
                changed.append(lease)
        self._waying.begin(now)
        marked |= state.take_changed()  # the ways to others are other ones now
        self._show_hops([*marked, *self._waying.behind({lease.key for lease in changed})])  # first: a lease has its way
        if changed or gone:
            state.out.append(Leases(changed=tuple(changed), gone=tuple(gone)))

    def _show_hops(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if lease := self.shown.get(key):
                hop = self._hop(lease)
                if hop != self._hops.get(key, Hop(key=key, next=lease, kind="vxlan", reason="")):
                    self._hops[key] = hop
                    self._state.out.append(hop)

    def _hop(self, lease: Member) -> Hop:
        relay = self.shown[self._waying.way(lease.key)[0]]
        return Hop(
            key=lease.key,
            next=relay,
            kind=self._waying.kind(relay.key),
            reason=self._waying.reason(lease.key),
            endpoint=self._tunnels.endpoint(lease.key),
            keepalive=self._tunnels.keepalive(lease.key),
            mtu=self._waying.mtu(relay.key),
        )

    def _holds(self, member: Member) -> bool:
        if member.home is None:
            return False
        token = self._state.known.tokens.at(member.home)
        return token is not None and token.owner == member.key

    def forget(self) -> None:
        """Another ring: all leases of the one before are gone."""
        if self.shown:
            self._state.out.append(Leases(gone=tuple(self.shown)))
        self.shown.clear()
        self._hops.clear()
        self._waying.forget()
        self._tunnels.forget()
