"""What a core wants, as far as it waits for the disk: all that could tell of what a restart would not know.

A sign of life, a path that is asked and a dial tell nothing, and go past: a disk that is slow or full ends no link.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from weft.model.mesh.effects import Close, Dial, Effect, Hop, Keep, Leases, Probe, Say, Send
from weft.model.mesh.messages import Ping, Pong
from weft.model.mesh.records import Member

_MOST: Final = 4096  # effects; beyond that links are closed: peers compare what they know when they meet again


class Held(deque[Effect]):
    """In the order of the core."""

    def take(self, effects: Iterable[Effect]) -> list[Effect]:
        """Hold what has to wait, and return the rest, for now."""
        now: list[Effect] = []
        for effect in effects:
            (self if self._waits(effect) else now).append(effect)
        return now + self._overflow() if len(self) > _MOST else now

    def _waits(self, effect: Effect) -> bool:
        if isinstance(effect, Send):
            return not isinstance(effect.message, Ping | Pong)
        if isinstance(effect, Close):  # behind the last words of its link
            return any(isinstance(each, Send) and each.link == effect.link for each in self)
        if isinstance(effect, Hop):  # behind the end of the lease that it had before
            return any(isinstance(each, Leases) and effect.key in each.gone for each in self)
        return not isinstance(effect, Dial | Probe | Say)

    def _overflow(self) -> list[Effect]:
        """Close the links whose messages wait; of all else the newest word is enough."""
        closes: dict[int, Effect] = {}
        newest: dict[object, Effect] = {}
        words: dict[bytes, Member | None] = {}
        for each in self:
            if isinstance(each, Send):
                closes[each.link] = Close(link=each.link, why="too much waits for the disk")
            elif isinstance(each, Leases):
                words |= {member.key: member for member in each.changed} | dict.fromkeys(each.gone)
            elif not isinstance(each, Close):
                newest[each.key if isinstance(each, Hop) else type(each)] = each
        changed = tuple(member for member in words.values() if member is not None)
        leases = Leases(changed=changed, gone=tuple(key for key, member in words.items() if member is None))
        keep = newest.pop(Keep, None)
        self.clear()
        self.extend([*([keep] if keep else []), leases, *newest.values()])
        return list(closes.values())
