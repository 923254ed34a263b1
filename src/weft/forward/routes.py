"""Which peer has which subnet, by longest prefix match: `relay/table.c` in Python. Pure."""

import errno
from collections import Counter
from itertools import islice
from typing import Final

from weft.forward.control import CHANGE, CLEAR, DELETE, SET

_LONGEST: Final = 32
_MOST_TOLD: Final = 4096  # at once


class Routes:
    """Networks and peers are numbers, as in an IPv4 header."""

    def __init__(self) -> None:
        self.generation = 0
        self.uses: Counter[int] = Counter()  # of each peer, by routes
        self._by_length: dict[int, dict[int, int]] = {}
        self._lengths: list[int] = []

    def change(self, changes: bytes) -> int:
        """Carry out changes up to the first that cannot be; returns that one's errno, 0 if all were."""
        if len(changes) % CHANGE.size:
            return errno.EINVAL
        for what, length, network, peer in CHANGE.iter_unpack(changes):
            if what not in (SET, DELETE, CLEAR) or length > _LONGEST:
                return errno.EINVAL
            self.generation += 1
            if what == CLEAR:
                self.uses.clear()
                self._by_length.clear()
            else:
                self._put(_number(network), length, _number(peer) if what == SET else None)
            self._lengths = sorted(self._by_length, reverse=True)
        return 0

    def _put(self, network: int, length: int, peer: int | None) -> None:
        same = self._by_length.setdefault(length, {})
        network &= _mask(length)
        before = same.pop(network, None)
        if before is not None:
            self.uses[before] -= 1
            self.uses += Counter()  # forgets what is not used
        if peer is not None:
            same[network] = peer
            self.uses[peer] += 1
        elif not same:
            del self._by_length[length]

    def find(self, destination: int) -> int | None:
        """The peer that a packet goes to."""
        for length in self._lengths:
            peer = self._by_length[length].get(destination & _mask(length))
            if peer is not None:
                return peer
        return None

    def told(self, first: int) -> bytes:
        """All routes from number `first` on, as changes that set them."""
        every = ((network, length, peer) for length, same in self._by_length.items() for network, peer in same.items())
        return b"".join(
            CHANGE.pack(SET, length, network.to_bytes(4, "big"), peer.to_bytes(4, "big"))
            for network, length, peer in islice(every, first, first + _MOST_TOLD)
        )


def _number(packed: bytes) -> int:
    return int.from_bytes(packed, "big")


def _mask(length: int) -> int:
    return (1 << _LONGEST) - (1 << (_LONGEST - length))
