"""Which peer has which subnet, by longest prefix match: `relay/table.c` in Python. Pure."""

import errno
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from weft.forward.control import AT_ONCE, CHANGE, CLEAR, DELETE, MAPPED, SET

_LONGEST: Final = {4: 32, 6: 128}
_PREFIX: Final = bytes(10) + b"\xff\xff"  # of a mapped address


class _Subnets:
    """Those of a family; networks are numbers, as in its header, and peers likewise."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._by_length: dict[int, dict[int, int]] = {}
        self._masks: list[tuple[int, dict[int, int]]] = []  # the longest first

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return ((network, length, peer) for length, same in self._by_length.items() for network, peer in same.items())

    def put(self, network: int, length: int, peer: int | None) -> int | None:
        """Set who has a subnet, or with None that nobody has; returns who had it."""
        mask = (1 << self._longest) - (1 << (self._longest - length))
        same = self._by_length.setdefault(length, {})
        before = same.pop(network & mask, None)
        if peer is not None:
            same[network & mask] = peer
        elif not same:
            del self._by_length[length]
        self._masks = [
            ((1 << self._longest) - (1 << (self._longest - each)), self._by_length[each])
            for each in sorted(self._by_length, reverse=True)
        ]
        return before

    def find(self, destination: int) -> int | None:
        """The peer that a packet goes to."""
        for mask, same in self._masks:
            peer = same.get(destination & mask)
            if peer is not None:
                return peer
        return None


class Routes:
    """What is known of both families, `v4` and `v6`."""

    def __init__(self) -> None:
        self.generation = 0
        self.uses: Counter[int] = Counter()  # of each peer, by routes
        self._clear()

    def _clear(self) -> None:
        self.v4, self.v6 = _Subnets(_LONGEST[4]), _Subnets(_LONGEST[6])
        self.uses.clear()

    def change(self, changes: bytes) -> int:
        """Carry out changes up to the first that cannot be; returns that one's errno, 0 if all were."""
        if len(changes) % CHANGE.size:
            return errno.EINVAL
        for what, length, network, peer in CHANGE.iter_unpack(changes):
            if what not in (SET, DELETE, CLEAR) or length > _LONGEST[6]:
                return errno.EINVAL
            self.generation += 1
            if what == CLEAR:
                self._clear()
            else:
                self._put(network, length, number_of(peer) if what == SET else None)
        return 0

    def _put(self, network: bytes, length: int, peer: int | None) -> None:
        if length >= MAPPED and network.startswith(_PREFIX):
            before = self.v4.put(number_of(network), length - MAPPED, peer)
        else:
            before = self.v6.put(int.from_bytes(network, "big"), length, peer)
        if before is not None:
            self.uses[before] -= 1
            self.uses += Counter()  # forgets what is not used
        if peer is not None:
            self.uses[peer] += 1

    def told(self, first: int) -> bytes:
        """All routes from number `first` on, as changes that set them."""
        return b"".join(islice(self._every(), first, first + AT_ONCE))

    def _every(self) -> Iterator[bytes]:
        for network, length, peer in self.v4:
            yield CHANGE.pack(SET, length + MAPPED, _PREFIX + network.to_bytes(4, "big"), packed(peer))
        for network, length, peer in self.v6:
            yield CHANGE.pack(SET, length, network.to_bytes(16, "big"), packed(peer))


def number_of(address: bytes) -> int:
    """The number that an address of a message is in the header of its family."""
    return int.from_bytes(address[12:] if address.startswith(_PREFIX) else address, "big")


def packed(peer: int) -> bytes:
    """A peer's address as it stands in messages."""
    return peer.to_bytes(16, "big") if peer >> _LONGEST[4] else _PREFIX + peer.to_bytes(4, "big")
