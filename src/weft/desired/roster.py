"""Which leases are believed: leases are data from strangers (decisions.md §7).

A lease that would do harm is refused, by id and with a reason. Of peers that claim the same subnet, address or
MAC the oldest is believed, because the newer one is the copy. A refusal costs that peer alone.

The roster is changed by what the store says and judges nothing but the leases touched by it: those that change, and
younger ones that share a claim with one whose verdict changes. They are found through an index, never by walking over
everybody.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from ipaddress import ip_address
from typing import TypeVar

from weft.desired.harm import Judge, Ours, macs_in
from weft.model.errors import Problem
from weft.model.lease import Lease
from weft.model.net import Ip, Mac
from weft.model.value import Value

_Claim = bytes  # an address as on the wire, or a MAC
_K = TypeVar("_K", bytes, tuple[int, int, int])
_Base = tuple[int, int, int]  # family, prefix length, first address as a number
_Age = tuple[int, str]  # the store's revision at which the lease came, and its id


class _Entry(Value, kw_only=False):
    lease: Lease
    macs: tuple[Mac, ...]
    inside: tuple[Ip, ...]  # public addresses that somebody's subnet might cover: the tunnel into the tunnel

    def claims(self) -> list[_Claim]:
        """What only one node can have: its VTEPs' MACs and its public addresses."""
        found: list[_Claim] = [*self.macs]
        public_v4, public_v6 = self.lease.attrs.public_ip, self.lease.attrs.public_ipv6
        if public_v4 is not None:
            found.append(public_v4.packed)
        if public_v6 is not None:
            found.append(public_v6.packed)
        return found

    def bases(self) -> list[_Base]:
        """The subnets, and single addresses that no other's subnet may cover, as the index has them."""
        found: list[_Base] = []
        found += [(net.version, net.prefixlen, int(net.network_address)) for net in self.lease.subnets]
        if self.inside:
            found += [(ip.version, ip.max_prefixlen, int(ip)) for ip in self.inside]
        return found


class Roster:
    """The peers' leases and which of them are believed. `own_ids` are never peers."""

    def __init__(self, ours: Ours, own_ids: Iterable[str] = ()) -> None:
        self._judge = Judge(ours)
        self._own_ids = frozenset(own_ids)
        self._entries: dict[str, _Entry] = {}
        self._believed: dict[str, Lease] = {}
        self._refused: dict[str, Problem] = {}
        self._news: list[Problem] = []
        # Tuples, because nearly all have one id, and a set takes four times the room.
        self._claims: defaultdict[_Claim, tuple[str, ...]] = defaultdict(tuple)
        self._bases: defaultdict[_Base, tuple[str, ...]] = defaultdict(tuple)
        # The first addresses in order, by family and prefix length: as a rule there is one length.
        self._lengths: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    @property
    def believed(self) -> Mapping[str, Lease]:
        """The leases to serve, by id."""
        return self._believed

    @property
    def refused(self) -> Mapping[str, Problem]:
        """Why each other lease is not served, by id."""
        return self._refused

    def news(self) -> list[Problem]:
        """What was refused, or for another reason than before, since the last call."""
        news, self._news = self._news, []
        return news

    @property
    def leases(self) -> list[Lease]:
        """All leases of others, believed or not."""
        return [entry.lease for entry in self._entries.values()]

    def listed(self, leases: Iterable[Lease]) -> set[str]:
        """Take a complete list; leases that are not in it are gone. Returns the ids whose service changes."""
        new = {lease.id: lease for lease in leases}
        return self.changed(put=new.values(), gone=self._entries.keys() - new.keys())

    def changed(self, *, put: Iterable[Lease] = (), gone: Iterable[str] = ()) -> set[str]:
        """Take single changes. Returns the ids whose service changes: served, served otherwise or no more."""
        before: dict[str, Lease | None] = {}
        doubtful: set[str] = set()
        for gone_id in set(gone) & self._entries.keys():
            doubtful |= self._forget(gone_id, before)
            self._refused.pop(gone_id, None)
        for lease in put:
            entry = self._entries.get(lease.id)
            if lease.id in self._own_ids or (entry is not None and entry.lease == lease):
                continue
            if entry is not None:
                doubtful |= self._forget(lease.id, before)
            self._learn(lease)
            doubtful.add(lease.id)
        self._judge_again(doubtful & self._entries.keys(), before)
        return {lease_id for lease_id, lease in before.items() if self._believed.get(lease_id) != lease}

    def _judge_again(self, doubtful: set[str], before: dict[str, Lease | None]) -> None:
        """Judge `doubtful` leases, and those whose older rival has come or gone by that; note in `before` who was.

        A verdict depends on older leases alone, so each lease is judged once, oldest first.
        """
        waiting = sorted(self._age(lease_id) for lease_id in doubtful)
        while waiting:
            age = heappop(waiting)
            _, lease_id = age
            if waiting and waiting[0] == age:
                continue
            was = self._believed.pop(lease_id, None)
            rivals = self._verdict(self._entries[lease_id])
            before.setdefault(lease_id, was)
            if self._believed.get(lease_id) is not was:
                for younger in filter(age.__lt__, map(self._age, rivals)):
                    heappush(waiting, younger)

    def _verdict(self, entry: _Entry) -> set[str]:
        """Believe or refuse one lease; return its rivals."""
        lease, rivals = entry.lease, self._rivals(entry)
        reason = self._refused.pop(lease.id, None)
        problem = self._judge.harm(lease, entry.macs) or self._older_claim(entry, rivals)
        if problem is None:
            self._believed[lease.id] = lease
        else:
            self._refused[lease.id] = problem
            if problem != reason:
                self._news.append(problem)
        return rivals

    def _older_claim(self, entry: _Entry, rivals: set[str]) -> Problem | None:
        age = self._age(entry.lease.id)
        oldest = min((self._age(rival) for rival in rivals if rival in self._believed), default=age)
        if oldest >= age:
            return None
        _, rival_id = oldest
        theirs = self._entries[rival_id].claims()
        shared = [_shown(claim) for claim in entry.claims() if claim in theirs]
        seen = f"claims {', '.join(shared) or 'addresses'} like the older lease {rival_id}"
        hint = "One of the two is a copy"
        return Problem(code="ADDR-002", where=f"lease {entry.lease.id}", seen=seen, hint=hint)

    def _age(self, lease_id: str) -> _Age:
        return self._entries[lease_id].lease.created, lease_id

    def _rivals(self, entry: _Entry) -> set[str]:
        rivals: set[str] = set()
        for claim in entry.claims():
            if len(self._claims[claim]) > 1:
                rivals.update(self._claims[claim])
        for base in entry.bases():
            if len(self._bases[base]) > 1:
                rivals.update(self._bases[base])
            if len(self._lengths) > 1:
                rivals.update(self._overlapping(base))
        rivals.discard(entry.lease.id)
        return rivals

    def _overlapping(self, base: _Base) -> Iterator[str]:
        """The leases of other prefix lengths that share addresses with `base`."""
        family, length, first = base
        bits = 32 if family == 4 else 128
        for (other_family, other_length), firsts in self._lengths.items():
            if other_family != family or other_length == length:
                continue
            if other_length < length:
                shift = bits - other_length
                yield from self._bases.get((family, other_length, first >> shift << shift), ())
            else:
                inside = firsts[bisect_left(firsts, first) : bisect_left(firsts, first + (1 << bits - length))]
                for other in inside:
                    yield from self._bases[family, other_length, other]

    def _learn(self, lease: Lease) -> None:
        public = (lease.attrs.public_ip, lease.attrs.public_ipv6)
        inside = tuple(ip for ip in public if ip is not None and self._judge.inside(ip))
        entry = _Entry(lease, macs_in(lease), inside)
        self._entries[lease.id] = entry
        for claim in entry.claims():
            self._claims[claim] += (lease.id,)
        for base in entry.bases():
            if base not in self._bases:
                insort(self._lengths[base[:2]], base[2])
            self._bases[base] += (lease.id,)

    def _forget(self, lease_id: str, before: dict[str, Lease | None]) -> set[str]:
        """Drop a lease; return those that its claims kept out."""
        entry = self._entries[lease_id]
        was = self._believed.pop(lease_id, None)
        before.setdefault(lease_id, was)
        age = self._age(lease_id)
        kept_out = set() if was is None else {one for one in self._rivals(entry) if self._age(one) > age}
        del self._entries[lease_id]
        for claim in entry.claims():
            _drop(self._claims, claim, lease_id)
        for base in entry.bases():
            _drop(self._bases, base, lease_id)
            if base not in self._bases:
                self._forget_base(base)
        return kept_out

    def _forget_base(self, base: _Base) -> None:
        firsts = self._lengths[base[:2]]
        del firsts[bisect_left(firsts, base[2])]
        if not firsts:
            del self._lengths[base[:2]]


def _shown(claim: _Claim) -> str:
    return str(claim if isinstance(claim, Mac) else ip_address(claim))


def _drop(index: dict[_K, tuple[str, ...]], key: _K, lease_id: str) -> None:
    rest = tuple(other for other in index[key] if other != lease_id)
    if rest:
        index[key] = rest
    else:
        del index[key]
