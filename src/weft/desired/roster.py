"""Which leases are believed: leases are data from strangers (settled.md §7).

A lease that would do harm is refused, by id and with a reason. A subnet, and whatever else the back end says only one
node can have, belongs to the lease that claimed it first on this node. Another lease that claims it, new or changed, is
refused until it is free. Of leases that come together the one that is older in the store counts as first, because the
newer one is the copy. A refusal costs that peer alone.

A peer whose lease becomes unreadable or harmful, or claims what is another's, is served by what it said before, until
another lease claims that.

Anybody who may write to the store may write thousands of leases that clash, so no judgement looks at all of them.
What a believed lease claims it holds (`desired.claims`). Judging goes in slices, between which others may work; until
its verdict a lease is served, or not, as before.

After the store has lost its data a lease that it does not know any more may still be a living node's. Such a lease is
kept for some time as unproven: it gives way to all others, for good.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final

from weft.desired.backends import BACKENDS
from weft.desired.claims import WEAK, Age, Claim, Claimant, Claims, Key, addresses, bases_of
from weft.desired.leasecheck import Judge, Ours
from weft.model.cluster import Malformed
from weft.model.errors import Problem
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import address_of
from weft.model.value import replace

_TYPES: Final = frozenset({*BACKENDS, ""})  # that leases bear: one of udp bears none

# Says what of a lease the back end cannot use, None if it can use all.
Usable = Callable[[Lease], Problem | None]
# Says what only one node can have of that which a lease says, as the back end does.
Claiming = Callable[[LeaseAttrs], tuple[Claim, ...]]


class Roster:
    """Puts the leases that are believed into `believed`. `own_ids` are never peers."""

    def __init__(
        self,
        ours: Ours,
        own_ids: Iterable[str] = (),
        *,
        claiming: Claiming = addresses,
        usable: Usable = lambda _: None,
        believed: dict[str, Lease] | None = None,
    ) -> None:
        self._judge = Judge(ours)
        self._claiming = claiming
        self._own_ids = frozenset(own_ids)
        self._usable = usable
        self._entries: dict[str, Claimant] = {}
        self._former: dict[str, Claimant] = {}  # by which those are served that say something else now
        self._believed = {} if believed is None else believed
        self._refused: dict[str, Problem | Key] = {}
        self._garbled: dict[str, Problem] = {}  # why the newest word of an entry cannot be read
        self._unreadable: dict[str, Problem] = {}  # the same, of ids without an entry
        self._until: dict[str, float] = {}
        self._claims = Claims()
        self._turn = 0
        self._doubtful: list[Age] = []  # a heap: to be judged
        self._touched: set[str] = set()
        self._news: dict[str, None] = {}
        self._superseded: list[tuple[str, str]] = []
        self._now = 0.0

    @property
    def believed(self) -> Mapping[str, Lease]:
        return self._believed

    @property
    def refused(self) -> Mapping[str, Problem]:
        """By id, whether the lease could be read or not."""
        refused = {lease_id: self._reason(lease_id) for lease_id in self._refused if lease_id not in self._former}
        return refused | self._unreadable

    @property
    def refusals(self) -> int:
        served = sum(lease_id in self._refused for lease_id in self._former)  # there are few of those
        return len(self._refused) - served + len(self._unreadable)

    def doubt(self, lease_id: str) -> Problem | None:
        """Why a lease is served by what it said before; None if it is served as it is."""
        if lease_id in self._former and lease_id in self._refused:
            return self._garbled.get(lease_id) or self._reason(lease_id)
        return self._garbled.get(lease_id)

    @property
    def leases(self) -> list[Lease]:
        """All that can be read, believed or not."""
        return [entry.lease for entry in self._entries.values()]

    @property
    def worth_keeping(self) -> list[Lease]:
        """By these a later run believes the same: all that are served, or not judged yet."""
        names = (name for name in self._entries if name in self._believed or name not in self._refused)
        return [self._believed.get(name, self._entries[name].lease) for name in names]

    @property
    def unproven(self) -> Mapping[str, float]:
        """Until when each is kept, by id."""
        return self._until

    @property
    def made(self) -> Mapping[str, int]:
        """By id: the store's revision at which each lease came that the store knows."""
        return {name: entry.lease.created for name, entry in self._entries.items() if name not in self._until}

    def known(self, lease_id: str) -> tuple[Lease | None, float | None]:
        """A refused lease, None if it could never be read, and since when it is refused."""
        entry = self._entries.get(lease_id)
        return (None, None) if entry is None else (entry.lease, entry.since)

    def served_since(self, lease_id: str) -> float:
        return self._former.get(lease_id, self._entries[lease_id]).since

    @property
    def settled(self) -> bool:
        return self._claims.settled and not self._doubtful

    def news(self) -> dict[str, Problem]:
        """By id, the leases that were refused since the last call, or are refused for another reason than before."""
        news, self._news = self._news, {}
        return {lease_id: self._reason(lease_id) for lease_id in news if lease_id in self._refused}

    def superseded(self) -> list[tuple[str, str]]:
        """The unproven leases that were dropped since the last call, each with the reason in words."""
        gone, self._superseded = self._superseded, []
        return gone

    def recall(self, leases: Iterable[Lease], unproven: Mapping[str, float]) -> None:
        """Take what an earlier run believed. Call `judge` before the next list is noted."""
        leases = list(leases)
        self.note(put=[lease for lease in leases if lease.id not in unproven])
        self.note_unproven((lease, unproven[lease.id]) for lease in leases if lease.id in unproven)

    def note_list(
        self,
        leases: Iterable[Lease],
        *,
        malformed: Iterable[Malformed] = (),
        own: Iterable[Lease] = (),
        keep_until: float | None = None,
    ) -> None:
        """Take a complete list without judging; `own` are ours, and there as well.

        With `keep_until` absence proves nothing: leases that are served and not in the list are kept as unproven until
        then, in the form in which they are served. Those that were unproven before keep their time.
        """
        new = {lease.id: lease for lease in leases}
        spoilt = {entry.id: entry for entry in malformed}
        ours = {lease.id for lease in own}
        absent = self._entries.keys() - new.keys() - spoilt.keys()
        kept = set()
        if keep_until is not None:
            kept = absent - ours - (self._refused.keys() - self._former.keys())
        else:
            absent -= self._until.keys() - ours
        self._unreadable.clear()
        self.note(put=new.values(), gone=absent - kept, malformed=spoilt.values())
        if keep_until is not None:
            lost = kept - self._until.keys()
            served = [self._believed.get(lease_id, self._entries[lease_id].lease) for lease_id in lost]
            self.note_unproven((lease, keep_until) for lease in served)

    def note(self, *, put: Iterable[Lease] = (), gone: Iterable[str] = (), malformed: Iterable[Malformed] = ()) -> None:
        """Take changes without judging; a lease that is `gone` is dropped at once."""
        self._turn += 1
        for lease_id in gone:
            self._unreadable.pop(lease_id, None)
            if lease_id in self._entries:
                self._drop(lease_id)
        for spoilt in malformed:
            if spoilt.id not in self._own_ids:
                self._spoil(spoilt)
        for lease in put:
            if lease.id in self._own_ids:
                continue
            self._garbled.pop(lease.id, None)
            self._unreadable.pop(lease.id, None)
            entry = self._entries.get(lease.id)
            proven = self._until.pop(lease.id, None) is not None
            if proven or entry is None or entry.lease != lease:
                self._learn(lease, self._turn)

    def note_unproven(self, leases: Iterable[tuple[Lease, float]]) -> None:
        """Leases that the store does not know, each until its time."""
        for lease, until in list(leases):
            self._until[lease.id] = until
            self._garbled.pop(lease.id, None)
            self._learn(lease, WEAK)

    def _spoil(self, spoilt: Malformed) -> None:
        """Serve an entry that cannot be read by what it said before, if it is the same lease and was believed."""
        lease_id = spoilt.id
        entry = self._entries.get(lease_id)
        before = self._believed.get(lease_id)
        if entry is None or before is None or before.created != spoilt.created:
            if entry is not None:
                self._drop(lease_id)
            self._unreadable[lease_id] = spoilt.problem
            return
        self._garbled[lease_id] = spoilt.problem
        if self._until.pop(lease_id, None) is not None:
            self._learn(entry.lease, self._turn)

    def expire(self, now: float) -> None:
        for lease_id in [lease_id for lease_id, until in self._until.items() if until <= now]:
            self._drop(lease_id)
            self._superseded.append((lease_id, "its time is over"))

    def judge_by(self, ours: Ours) -> None:
        self._judge = Judge(ours)
        for lease_id in [name for name, former in self._former.items() if self._harm(former) is not None]:
            self._give_up(lease_id)
        self._turn += 1
        for lease_id, entry in self._entries.items():
            self._claims.leave_line(entry)
            if lease_id in self._refused:
                entry.turn = self._turn
            heappush(self._doubtful, entry.age)

    def judge(self, most: int = 0, *, now: float = 0.0) -> set[str]:
        """At most `most` leases, 0 for all. Returns the ids whose service has changed."""
        judged = 0
        self._now = now
        while (not most or judged < most) and (entry := self._next()) is not None:
            self._verdict(entry)
            judged += 1
        touched, self._touched = self._touched, set()
        return touched

    def _next(self) -> Claimant | None:
        """The first in the line for a key that is free; then the one that came first."""
        waiting = self._claims.next_in_line()
        if waiting is not None:
            return waiting
        while self._doubtful:
            age = heappop(self._doubtful)
            entry_or_none = self._entries.get(age[-1])
            if entry_or_none is not None and entry_or_none.age == age and entry_or_none.waits is None:
                return entry_or_none
        return None

    def _verdict(self, entry: Claimant) -> None:
        lease = entry.lease
        why = self._harm(entry) or self._nonsense(lease) or self._claims.taken(entry)
        if why is not None:
            self._refuse(entry, why)
            return
        for weak in self._claims.weaker(entry):
            self._supersede(weak.lease.id, "another claims the same")
        former = self._let_go(lease.id)
        if former is not None and former.lease == lease:
            entry.since = former.since
        self._claims.hold(entry)
        self._refused.pop(lease.id, None)
        if self._believed.get(lease.id) != lease:
            self._believed[lease.id] = lease
            entry.since = self._now
            self._touched.add(lease.id)

    def _harm(self, claimant: Claimant) -> Problem | None:
        if not claimant.keys:
            self._examine(claimant)
        return self._judge.harm(claimant.lease, claimant.keys)

    def _nonsense(self, lease: Lease) -> Problem | None:
        """Say why the back end cannot use the changed type or data of a lease. All else is taken as it was before.

        A node that has moved to another back end is reached no more by what it said before; a type that no back end
        has is no such move.
        """
        former, now = self._former.get(lease.id), lease.attrs
        if former is None or (now.backend != former.lease.attrs.backend and now.backend in _TYPES):
            return None
        said = replace(former.lease.attrs, backend=now.backend, data=now.data, data_v6=now.data_v6)
        return self._usable(replace(former.lease, attrs=said))

    def _refuse(self, entry: Claimant, why: Problem | Key) -> None:
        """Refuse a lease for a problem, or until a key is free; what it said before, if known, is served instead."""
        lease_id = entry.lease.id
        if lease_id in self._until:
            self._supersede(lease_id, why.seen if isinstance(why, Problem) else "another claims the same")
            return
        former = self._former.get(lease_id)
        if former is not None and former.lease.created == entry.lease.created and self._harm(former) is None:
            self._claims.weaken(former)
        else:
            self._claims.release(entry)
            self._give_up(lease_id)
        if not isinstance(why, Problem):
            self._claims.wait(entry, why)
        if self._refused.get(lease_id) != why:
            self._news[lease_id] = None
            entry.since = self._now
        self._refused[lease_id] = why

    def _supersede(self, lease_id: str, why: str) -> None:
        """An unproven lease, or what a lease said before."""
        if lease_id in self._until:
            self._drop(lease_id)
            self._superseded.append((lease_id, why))
        else:
            self._give_up(lease_id)

    def _give_up(self, lease_id: str) -> None:
        self._let_go(lease_id)
        if self._believed.pop(lease_id, None) is not None:
            self._touched.add(lease_id)

    def _let_go(self, lease_id: str) -> Claimant | None:
        former = self._former.pop(lease_id, None)
        if former is not None:
            self._claims.forget(former)
        return former

    def _reason(self, lease_id: str) -> Problem:
        why = self._refused[lease_id]
        if isinstance(why, Problem):
            return why
        holder = self._claims.holder(why)
        theirs = () if holder is None else holder.keys  # the one before it may have gone, and the next is not known yet
        both = [_shown(key) for key in self._entries[lease_id].keys if key in theirs and not isinstance(key, tuple)]
        first = "another lease" if holder is None else f"lease {holder.lease.id}"
        seen = f"claims {', '.join(both) or 'addresses'} like {first}, which had it first"
        hint = "One of the two is a copy"
        return Problem(code="ADDR-002", where=f"lease {lease_id}", seen=seen, hint=hint)

    def _learn(self, lease: Lease, turn: int) -> None:
        """Have a lease judged; what it was before stands until then, with all that it holds."""
        before = self._entries.get(lease.id)
        if before is not None:
            if lease.id in self._believed and lease.id not in self._former:
                self._former[lease.id] = before
            else:
                self._claims.forget(before)
        since = 0.0 if before is None else before.since
        entry = self._entries[lease.id] = Claimant(lease, turn, since=since)
        heappush(self._doubtful, entry.age)

    def _examine(self, entry: Claimant) -> None:
        lease, attrs = entry.lease, entry.lease.attrs
        if lease.way is not None:  # what it calls public is so where it lives: elsewhere another may have it, too
            attrs = replace(attrs, public_ip=None, public_ipv6=None)
        # In the cluster's networks a subnet might come to cover such an address: the tunnel into the tunnel.
        inside = [ip for ip in lease.dialled if self._judge.inside(ip)]
        entry.keys = (*self._claiming(attrs), *bases_of(lease, inside))

    def _drop(self, lease_id: str) -> None:
        self._claims.forget(self._entries.pop(lease_id))
        for said in (self._refused, self._garbled, self._until):
            said.pop(lease_id, None)
        self._give_up(lease_id)


def _shown(claim: Claim) -> str:
    return str(address_of(claim)) if isinstance(claim, int) else str(claim)
