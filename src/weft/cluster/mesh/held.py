"""What a core wants is carried out in its order, and after the disk has what it could tell of.

A sign of life, a path that is asked and a dial tell nothing, and go past: a disk that is slow or full ends no link.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NoReturn

from weft.model.mesh.effects import Close, Dial, Effect, Hop, Keep, Kept, Leases, Probe, Say, Send
from weft.model.mesh.messages import Ping, Pong
from weft.model.mesh.records import Member

_MOST: Final = 4096  # effects; beyond that links are closed: peers compare what they know when they meet again


class Held:
    """`keep` puts on disk what is to be kept; `do` carries out any other effect, and may give more to `take`."""

    def __init__(self, keep: Callable[[Kept], Awaitable[None]], do: Callable[[Effect], None]) -> None:
        self._keep = keep
        self._do = do
        self._waiting: deque[Effect] = deque()  # in the order of the core
        self._fed = asyncio.Event()
        self._is_kept = asyncio.Event()  # no Keep waits or is being written

    async def kept(self) -> None:
        """Wait until the disk has all that is to be kept: what the core knows then is what it would begin with."""
        while not self._is_kept.is_set():
            await self._is_kept.wait()

    def take(self, effects: Iterable[Effect]) -> None:
        """Hold what has to wait, and carry out the rest."""
        now: list[Effect] = []
        for effect in effects:
            (self._waiting if self._waits(effect) else now).append(effect)
            if isinstance(effect, Keep):
                self._is_kept.clear()
        if len(self._waiting) > _MOST:
            now += self._overflow()
        self._fed.set()
        for effect in now:
            self._do(effect)

    def again(self, kept: Kept) -> None:
        """Keep it once more, unless something newer is to be kept: what came before that must not wait for the disk."""
        if self._is_kept.is_set():
            self._is_kept.clear()
            self._waiting.appendleft(Keep(kept=kept))
            self._fed.set()

    def clear(self) -> None:
        """What waits is carried out by no run, nor is it kept: who waits for that waits until the next run."""
        self._waiting.clear()

    async def run(self) -> NoReturn:
        self._look_whether_kept()
        while True:
            await self._fed.wait()
            self._fed.clear()
            while self._waiting:
                effect = self._waiting.popleft()
                if isinstance(effect, Keep):
                    # A later one says all that this one does: what was wanted meanwhile is one write.
                    await self._keep(
                        next((each for each in reversed(self._waiting) if isinstance(each, Keep)), effect).kept
                    )
                    self._look_whether_kept()
                else:
                    self._do(effect)

    def _look_whether_kept(self) -> None:
        if not any(isinstance(each, Keep) for each in self._waiting):
            self._is_kept.set()

    def _waits(self, effect: Effect) -> bool:
        if isinstance(effect, Send):
            return not isinstance(effect.message, Ping | Pong)
        if isinstance(effect, Close):  # behind the last words of its link
            return any(isinstance(each, Send) and each.link == effect.link for each in self._waiting)
        if isinstance(effect, Hop):  # behind the end of the lease that it had before
            return any(isinstance(each, Leases) and effect.key in each.gone for each in self._waiting)
        return not isinstance(effect, Dial | Probe | Say)

    def _overflow(self) -> list[Effect]:
        """Close the links whose messages wait; of all else the newest word is enough."""
        closes: dict[int, Effect] = {}
        newest: dict[object, Effect] = {}
        words: dict[bytes, Member | None] = {}
        for each in self._waiting:
            if isinstance(each, Send):
                closes[each.link] = Close(link=each.link, why="too much waits for the disk")
            elif isinstance(each, Leases):
                words |= {member.key: member for member in each.changed} | dict.fromkeys(each.gone)
            elif not isinstance(each, Close):
                newest[each.key if isinstance(each, Hop) else type(each)] = each
        changed = tuple(member for member in words.values() if member is not None)
        leases = Leases(changed=changed, gone=tuple(key for key, member in words.items() if member is None))
        keep = newest.pop(Keep, None)
        self._waiting.clear()
        self._waiting.extend([*([keep] if keep else []), leases, *newest.values()])
        return list(closes.values())
