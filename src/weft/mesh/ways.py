"""Which way leads to each peer of a mesh: by one pair of peers if that is usable, else over others.

A pair is usable unless one of the two says in its record that it cannot reach the other. Who says that it does not
relay is at the ends of ways only. All peers have the same records, so each finds by itself the same way from a peer to
another, and its reverse as the way back: the one of the fewest pairs, and of these the one whose pairs have the least
sum of hashes, which spreads ways over relays.
"""

from collections.abc import Iterator
from typing import Final

from weft.model.mesh.records import Member, short

_FACTOR: Final = 0x9E3779B1  # odd, near 2^32 / golden ratio: it carries low bits into high ones
_MASK: Final = 0xFFFFFFFF
_NOBODY: Final = frozenset[int]()  # one for all: as a rule a peer reaches all others

Way = tuple[bytes, ...]  # the keys of the peers on it, from the next hop to the peer itself


class Pairs:
    """All members, ourselves included, and who of them cannot reach whom."""

    def __init__(self) -> None:
        self.shorts: dict[bytes, int] = {}
        self.ends = set[bytes]()  # who does not relay
        self._names: dict[bytes, frozenset[int]] = {}  # whom a peer cannot reach, as its record says
        self._named_by: dict[int, set[bytes]] = {}
        self._keys: dict[int, tuple[bytes, ...]] = {}  # as a rule one key has this short

    def put(self, member: Member) -> bool:
        """Take a record in; tell whether a pair has changed."""
        key, names = member.key, frozenset(member.cannot) or _NOBODY
        before = self._names.get(key)
        if names == before and member.relays == (key not in self.ends):
            return False
        (self.ends.discard if member.relays else self.ends.add)(key)
        if before is None:
            self.shorts[key] = number = short(key)
            self._keys[number] = tuple(sorted((*self._keys.get(number, ()), key)))
        for each in names - (before or frozenset()):
            self._named_by.setdefault(each, set()).add(key)
        for each in (before or frozenset()) - names:
            self._forget(self._named_by, each, key)
        self._names[key] = names
        return True

    def remove(self, key: bytes) -> bool:
        """Tell whether it was there."""
        names = self._names.pop(key, None)
        if names is None:
            return False
        for each in names:
            self._forget(self._named_by, each, key)
        self.ends.discard(key)
        number = self.shorts.pop(key)
        if twins := tuple(twin for twin in self._keys.pop(number) if twin != key):
            self._keys[number] = twins
        return True

    def apart(self, key: bytes) -> set[bytes]:
        """The peers that make no usable pair with this member."""
        found = set(self._named_by.get(self.shorts[key], ()))
        for each in self._names[key]:
            found.update(self._keys.get(each, ()))
        found.discard(key)  # another peer has its short
        return found

    @staticmethod
    def _forget(table: dict[int, set[bytes]], number: int, key: bytes) -> None:
        table[number].remove(key)
        if not table[number]:
            del table[number]


def ways(me: bytes, pairs: Pairs) -> Iterator[dict[bytes, Way | None]]:
    """The ways from `me` to all other members, None to one that no way leads to; those of one pair come first, at once.

    Every further step costs at most one look at each peer, so that the caller may pause between two. If a pair changes
    meanwhile, it must begin again.
    """
    shorts = pairs.shorts
    far = pairs.apart(me)
    # The peers of the last round, with the sum and the way of each.
    reached: dict[bytes, tuple[int, Way]] = {
        key: (_hash(shorts[me], shorts[key]), (key,)) for key in shorts if key != me and key not in far
    }
    yield {key: way for key, (_, way) in reached.items()}
    while far and reached:
        found: dict[bytes, tuple[int, Way]] = {}
        for key in sorted(far):
            if relays := reached.keys() - pairs.apart(key) - pairs.ends:
                total, relay = min((reached[each][0] + _hash(shorts[each], shorts[key]), each) for each in relays)
                found[key] = total, (*reached[relay][1], key)
                yield {key: found[key][1]}
        far = far - found.keys()
        reached = found
    if far:
        yield dict.fromkeys(far)


def _hash(one: int, other: int) -> int:
    return (one ^ other) * _FACTOR & _MASK
