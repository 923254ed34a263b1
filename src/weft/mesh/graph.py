"""Who is to be linked with whom, and over which links a message goes on. Pure arithmetic over keys and records."""

from bisect import bisect, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from weft.mesh.digest import hashed
from weft.model.mesh.records import Member, short

FULL: Final = 8  # up to so many peers, all are linked with all
SUCCESSORS: Final = 2
SPREAD: Final = 4


def weight(one: bytes, other: bytes) -> int:
    """Rendezvous: the peers of the highest weight are the neighbours of `one`; each peer has others."""
    return hashed(one + other)


class Neighbours:
    """Whom `me` wants a link to: two in the order of keys, and four by weight."""

    __slots__ = ("_keys", "_me", "_spread", "_wanted")

    def __init__(self, me: bytes) -> None:
        self._me = me
        self._keys: list[bytes] = []  # sorted, without us
        self._spread: list[tuple[int, bytes]] = []  # of the highest weights
        self._wanted: frozenset[bytes] | None = None

    def add(self, key: bytes) -> None:
        at = bisect(self._keys, key)
        if key == self._me or (at and self._keys[at - 1] == key):
            return
        self._keys.insert(at, key)
        insort(self._spread, (weight(self._me, key), key))
        del self._spread[:-SPREAD]
        self._wanted = None

    def remove(self, key: bytes) -> None:
        at = bisect(self._keys, key) - 1
        if at < 0 or self._keys[at] != key:
            return
        del self._keys[at]
        if any(key == near for _, near in self._spread):
            self._spread = sorted(nlargest(SPREAD, ((weight(self._me, other), other) for other in self._keys)))
        self._wanted = None

    @property
    def wanted(self) -> frozenset[bytes]:
        if self._wanted is None:
            if len(self._keys) < FULL:
                self._wanted = frozenset(self._keys)
            else:
                at = bisect(self._keys, self._me)
                after = (self._keys[(at + step) % len(self._keys)] for step in range(SUCCESSORS))
                self._wanted = frozenset((*after, *(key for _, key in self._spread)))
        return self._wanted


class Hops:
    """The next hop to each peer over links that both ends publish, from our own `linked`."""

    __slots__ = ("_first",)

    def __init__(self, members: Mapping[bytes, Member], linked: Iterable[bytes]) -> None:
        self._first: dict[bytes, bytes] = {key: key for key in sorted(linked)}
        left: dict[int, list[bytes]] = {}  # whom no link has led to yet, by shorts
        for key in members:
            if key not in self._first:
                left.setdefault(short(key), []).append(key)
        queue = deque(self._first)
        while queue and left:
            at = queue.popleft()
            member, name = members.get(at), short(at)
            for link in left.keys() & member.links if member else ():
                both = [key for key in left[link] if name in members[key].links]
                queue += both
                self._first.update(dict.fromkeys(both, self._first[at]))
                left[link] = [key for key in left[link] if key not in both]
                if not left[link]:
                    del left[link]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._first)

    def first(self, key: bytes) -> bytes | None:
        return self._first.get(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._first
