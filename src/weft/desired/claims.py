"""What only one node can have, and which lease holds it: subnets, and what the back end says (`claims`).

A believed lease holds each of its claims under a key, one lease a key, until it goes or claims something else. A lease
that comes later waits for one key; when that is free, the first in its line is judged again, not the whole line. The
age of a lease in the store does not count against a holder: anybody who may write there may change what a lease claims.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, number_of
from weft.model.value import Value

# What a lease's data claim, in a form that says itself in words, as a MAC; a public address as its number.
Claim = bytes | int
Base = tuple[int, int, int]  # family, prefix length, first address as a number
Key = Claim | Base
Age = tuple[int, int, str]  # its turn, the store's revision at which the lease was made, and its id
# The turn of leases that hold only what nobody else claims: what a store has lost, and what a lease said before.
WEAK: Final = 1 << 62

_AGE: Final = attrgetter("age")


class Claimant(Value, kw_only=False, frozen=False, gc=False):
    """A lease, and what it claims, which is not looked at before the first judgement: thousands may come at once.

    `turn` counts when it came to us. Those that came together have the same.
    """

    lease: Lease
    turn: int
    keys: tuple[Key, ...] = ()
    waits: Key | None = None  # the key for which it stands in line
    since: float = 0.0  # the moment of the verdict by which it is served, or is not

    @property
    def age(self) -> Age:
        """The smallest is judged first."""
        return self.turn, self.lease.created, self.lease.id

    @property
    def bases(self) -> list[Base]:
        """Its subnets, and the addresses that no other's subnet may cover."""
        return [key for key in self.keys if isinstance(key, tuple)]


def addresses(attrs: LeaseAttrs) -> tuple[Claim, ...]:
    return tuple(number_of(ip) for ip in (attrs.public_ip, attrs.public_ipv6) if ip is not None)


def bases_of(lease: Lease, uncovered: Iterable[Ip]) -> tuple[Base, ...]:
    """The subnets of a lease, and the addresses `uncovered`, which no subnet of another may come to cover."""
    bases = [(net.version, net.prefixlen, int(net.network_address)) for net in lease.subnets]
    bases += [(ip.version, ip.max_prefixlen, int(ip)) for ip in uncovered]
    return tuple(bases)


class Claims:
    """Which lease holds each key, and which wait for it."""

    def __init__(self) -> None:
        self._holders: dict[Key, Claimant] = {}
        # The first addresses of the bases that are held, in order, by family and prefix length: as a rule one length.
        self._lengths: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._lines: defaultdict[Key, list[Claimant]] = defaultdict(list)  # the oldest first
        self._covered: dict[Base, Key] = {}  # where a lease that overlaps a base was found last
        self._freed: list[Key] = []  # whose lines are to be looked at

    def holder(self, key: Key) -> Claimant | None:
        return self._holders.get(key)

    def hold(self, claimant: Claimant) -> None:
        for key in claimant.keys:
            if self._holders.get(key) is not claimant:
                self._holders[key] = claimant
                if isinstance(key, tuple):
                    insort(self._lengths[key[:2]], key[2])

    def release(self, claimant: Claimant) -> None:
        for key in claimant.keys:
            if self._holders.get(key) is not claimant:
                continue
            del self._holders[key]
            if key in self._lines:
                self._freed.append(key)
            if isinstance(key, tuple):
                firsts = self._lengths[key[:2]]
                del firsts[bisect_left(firsts, key[2])]
                if not firsts:
                    del self._lengths[key[:2]]

    def wait(self, claimant: Claimant, key: Key) -> None:
        claimant.waits = key
        insort(self._lines[key], claimant, key=_AGE)

    def leave_line(self, claimant: Claimant) -> None:
        if claimant.waits is not None:
            line = self._lines[claimant.waits]
            del line[bisect_left(line, claimant.age, key=_AGE)]
            if not line:
                del self._lines[claimant.waits]
            claimant.waits = None

    def forget(self, claimant: Claimant) -> None:
        self.leave_line(claimant)
        self.release(claimant)
        for base in claimant.bases:
            self._covered.pop(base, None)

    @property
    def settled(self) -> bool:
        """No key has become free whose line was not looked at."""
        return not self._freed

    def next_in_line(self) -> Claimant | None:
        """Take the first out of the line for a key that is free, or whose holder is weak."""
        while self._freed:
            key = self._freed[-1]
            line, holder = self._lines.get(key), self._holders.get(key)
            if line and (holder is None or holder.turn >= WEAK):
                first = line[0]
                self.leave_line(first)
                return first
            self._freed.pop()
        return None

    def weaken(self, claimant: Claimant) -> None:
        """Those that wait for it included."""
        claimant.turn = WEAK
        self._freed += (key for key in claimant.keys if key in self._lines)

    def taken(self, claimant: Claimant) -> Key | None:
        """The key by which another lease keeps this one out."""
        for key in claimant.keys:
            if _keeps_out(self._holders.get(key), claimant):
                return key
        for base in claimant.bases:
            known = self._covered.get(base, b"")
            if _keeps_out(self._holders.get(known), claimant):
                return known
            for over in self._overlapping(base):
                if _keeps_out(self._holders[over], claimant):
                    self._covered[base] = over
                    return over
        return None

    def weaker(self, claimant: Claimant) -> list[Claimant]:
        """They hold what `entry` claims, or what overlaps it."""
        found = [holder for key in claimant.keys if (holder := self._holders.get(key)) is not None]
        found += [self._holders[over] for base in claimant.bases for over in self._overlapping(base)]
        return list({each.lease.id: each for each in found if each.lease.id != claimant.lease.id}.values())

    def _overlapping(self, base: Base) -> Iterator[Base]:
        """The bases of other prefix lengths, held by some lease, that share addresses with `base`."""
        family, length, first = base
        bits = 32 if family == 4 else 128
        for (other_family, other_length), firsts in self._lengths.items():
            if other_family != family or other_length == length:
                continue
            if other_length < length:
                shift = bits - other_length
                over = (family, other_length, first >> shift << shift)
                if over in self._holders:
                    yield over
            else:
                inside = firsts[bisect_left(firsts, first) : bisect_left(firsts, first + (1 << bits - length))]
                yield from ((family, other_length, other) for other in inside)


def _keeps_out(holder: Claimant | None, claimant: Claimant) -> bool:
    """Unless the holder is weak and the claimant is not."""
    if holder is None or holder.lease.id == claimant.lease.id:
        return False
    return holder.turn < WEAK or claimant.turn >= WEAK
