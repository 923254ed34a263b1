"""Which leases are believed: leases are data from strangers (settled.md §7).

A lease that would do harm is refused, by id and with a reason. Of peers that claim the same subnet, address, MAC or
WireGuard key the oldest is believed, because the newer one is the copy. A refusal costs that peer alone.

Anybody who may write to the store may write thousands of leases that clash, so no judgement looks at all of them.
What a believed lease claims it holds (`desired.claims`). Judging goes in slices, between which others may work; until
its verdict a lease is served, or not, as before.

After the store has lost its data a lease that it does not know any more may still be a living node's. Such a lease is
kept for some time as unproven: younger than all others, and gone for good when any of those claims what it claims.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final

from weft.desired.claims import Age, Claim, Claimant, Claims, Key, keys_of, shared
from weft.desired.leasecheck import Judge, Ours
from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.net import Mac, address_of

_UNPROVEN: Final = 1 << 63  # is added to the revisions of leases that the store does not know: later than its own


class Roster:
    """The peers' leases and which of them are believed. `own_ids` are never peers."""

    def __init__(self, ours: Ours, own_ids: Iterable[str] = ()) -> None:
        self._judge = Judge(ours)
        self._own_ids = frozenset(own_ids)
        self._entries: dict[str, Claimant] = {}
        self._believed: dict[str, Lease] = {}
        self._refused: dict[str, Problem | Key] = {}
        self._until: dict[str, float] = {}
        self._claims = Claims()
        self._doubtful: list[Age] = []  # a heap: to be judged
        self._touched: set[str] = set()
        self._news: dict[str, None] = {}
        self._superseded: list[tuple[str, str]] = []
        self._now = 0.0

    @property
    def believed(self) -> Mapping[str, Lease]:
        """The leases to serve, by id."""
        return self._believed

    @property
    def refused(self) -> Mapping[str, Problem]:
        """Why each other lease is not served, by id."""
        return {lease_id: self._reason(lease_id) for lease_id in self._refused}

    @property
    def refusals(self) -> int:
        """How many are not served."""
        return len(self._refused)

    @property
    def leases(self) -> list[Lease]:
        """All leases of others, believed or not."""
        return [entry.lease for entry in self._entries.values()]

    @property
    def unproven(self) -> Mapping[str, float]:
        """The leases that the store does not know, and until when each is kept."""
        return self._until

    @property
    def made(self) -> Mapping[str, int]:
        """The store's revision at which each lease came that the store knows."""
        return {name: entry.revision for name, entry in self._entries.items() if name not in self._until}

    def known(self, lease_id: str) -> tuple[Lease, float]:
        """A lease of another, and the moment since which it is served as it is, or is refused for this reason."""
        entry = self._entries[lease_id]
        return entry.lease, entry.since

    @property
    def settled(self) -> bool:
        """Tell whether every lease has its verdict."""
        return self._claims.settled and not self._doubtful

    def news(self) -> list[Problem]:
        """What was refused, or for another reason than before, since the last call."""
        news, self._news = self._news, {}
        return [self._reason(lease_id) for lease_id in news if lease_id in self._refused]

    def superseded(self) -> list[tuple[str, str]]:
        """The unproven leases that went since the last call, and what for, in words."""
        gone, self._superseded = self._superseded, []
        return gone

    def listed(self, leases: Iterable[Lease]) -> set[str]:
        """Take a complete list; leases that are not in it are gone. Returns the ids whose service changes."""
        self.note_list(leases)
        return self.judge()

    def changed(self, *, put: Iterable[Lease] = (), gone: Iterable[str] = ()) -> set[str]:
        """Take single changes. Returns the ids whose service changes: served, served otherwise or no more."""
        self.note(put=put, gone=gone)
        return self.judge()

    def note_list(
        self, leases: Iterable[Lease], *, keep_until: float | None = None, no_peers: Iterable[str] = ()
    ) -> None:
        """Take a complete list without judging.

        With `keep_until` absence proves nothing: leases that are not in the list are kept as unproven until then, but
        for those that were refused, or until they are to go anyway. `no_peers` are there as well:
        ours, and what cannot be read.
        """
        new = {lease.id: lease for lease in leases}
        absent = self._entries.keys() - new.keys()
        kept = set()
        if keep_until is not None:
            kept = absent - set(no_peers) - self._refused.keys()
        else:
            absent -= self._until.keys() - set(no_peers)
        self.note(put=new.values(), gone=absent - kept)
        if keep_until is not None:
            self.note_unproven((self._entries[lease_id].lease, keep_until) for lease_id in kept - self._until.keys())

    def note(self, *, put: Iterable[Lease] = (), gone: Iterable[str] = ()) -> None:
        """Take single changes without judging; what is gone is gone at once."""
        for lease_id in set(gone) & self._entries.keys():
            self._drop(lease_id)
        for lease in put:
            if lease.id in self._own_ids:
                continue
            entry = self._entries.get(lease.id)
            proven = self._until.pop(lease.id, None) is not None
            if proven or entry is None or entry.lease != lease:
                self._learn(lease, lease.created)

    def note_unproven(self, leases: Iterable[tuple[Lease, float]]) -> None:
        """Take leases that the store does not know, each until its time, without judging."""
        for lease, until in list(leases):
            self._until[lease.id] = until
            self._learn(lease, _UNPROVEN + lease.created)

    def expire(self, now: float) -> None:
        """Let the unproven leases go whose time is over."""
        for lease_id in [lease_id for lease_id, until in self._until.items() if until <= now]:
            self._drop(lease_id)
            self._superseded.append((lease_id, "its time is over"))

    def judge_by(self, ours: Ours) -> None:
        """Judge all anew by what is ours now."""
        self._judge = Judge(ours)
        for entry in self._entries.values():
            self._claims.leave_line(entry)
            heappush(self._doubtful, entry.age)

    def judge(self, most: int = 0, *, now: float = 0.0) -> set[str]:
        """Judge, `most` leases at a stretch if that is not 0. Returns the ids whose service has changed meanwhile."""
        judged = 0
        self._now = now
        while (not most or judged < most) and (entry := self._next()) is not None:
            self._verdict(entry)
            judged += 1
        touched, self._touched = self._touched, set()
        return touched

    def _next(self) -> Claimant | None:
        """The lease to judge next: the first in the line for a key that is free or held by a younger one; then others.

        A verdict depends on older leases alone, and is overturned when an older one comes: so the order does not
        matter for the outcome. Oldest first, fewest are overturned.
        """
        waiting = self._claims.next_in_line()
        if waiting is not None:
            return waiting
        while self._doubtful:
            age = heappop(self._doubtful)
            entry_or_none = self._entries.get(age[1])
            if entry_or_none is not None and entry_or_none.age == age and entry_or_none.waits is None:
                return entry_or_none
        return None

    def _verdict(self, entry: Claimant) -> None:
        if not entry.keys:
            self._examine(entry)
        lease = entry.lease
        problem = self._judge.harm(lease, [key for key in entry.keys if isinstance(key, Mac)])
        why = problem or self._claims.older(entry)
        if why is not None:
            self._refuse(entry, why)
            return
        for younger in self._claims.rivals(entry):
            self._refuse(younger, shared(younger, entry))
        self._claims.hold(entry)
        self._refused.pop(lease.id, None)
        if self._believed.get(lease.id) != lease:
            self._believed[lease.id] = lease
            entry.since = self._now
            self._touched.add(lease.id)

    def _refuse(self, entry: Claimant, why: Problem | Key) -> None:
        """Serve a lease no more, for a problem, or until a key is free; one that is unproven goes for good."""
        lease_id = entry.lease.id
        if lease_id in self._until:
            self._drop(lease_id)
            self._superseded.append((lease_id, why.seen if isinstance(why, Problem) else "another claims the same"))
            return
        self._claims.release(entry)
        if self._believed.pop(lease_id, None) is not None:
            self._touched.add(lease_id)
        if not isinstance(why, Problem):
            self._claims.wait(entry, why)
        if self._refused.get(lease_id) != why:
            self._news[lease_id] = None
            entry.since = self._now
        self._refused[lease_id] = why

    def _reason(self, lease_id: str) -> Problem:
        why = self._refused[lease_id]
        if isinstance(why, Problem):
            return why
        holder = self._claims.holder(why)
        theirs = () if holder is None else holder.keys  # the one before it may have gone, and the next is not known yet
        both = [_shown(key) for key in self._entries[lease_id].keys if key in theirs and not isinstance(key, tuple)]
        older = "an older lease" if holder is None else f"the older lease {holder.lease.id}"
        seen = f"claims {', '.join(both) or 'addresses'} like {older}"
        hint = "One of the two is a copy"
        return Problem(code="ADDR-002", where=f"lease {lease_id}", seen=seen, hint=hint)

    def _learn(self, lease: Lease, revision: int) -> None:
        """Have a lease judged; what it was before stands until then."""
        before = self._entries.get(lease.id)
        if before is not None:
            self._forget(lease.id)
        since = 0.0 if before is None else before.since
        entry = self._entries[lease.id] = Claimant(lease, revision, since=since)
        heappush(self._doubtful, entry.age)

    def _examine(self, entry: Claimant) -> None:
        attrs = entry.lease.attrs
        # In the cluster's networks a subnet might come to cover a public address: the tunnel into the tunnel.
        inside = [ip for ip in (attrs.public_ip, attrs.public_ipv6) if ip is not None and self._judge.inside(ip)]
        entry.keys = keys_of(entry.lease, inside)

    def _drop(self, lease_id: str) -> None:
        """A lease is gone."""
        self._forget(lease_id)
        self._refused.pop(lease_id, None)
        self._until.pop(lease_id, None)
        if self._believed.pop(lease_id, None) is not None:
            self._touched.add(lease_id)

    def _forget(self, lease_id: str) -> None:
        self._claims.forget(self._entries.pop(lease_id))


def _shown(claim: Claim) -> str:
    if isinstance(claim, int):
        return str(address_of(claim))
    return str(claim) if isinstance(claim, Mac) else f"key {b64encode(claim).decode()}"
