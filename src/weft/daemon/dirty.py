"""What has to be looked at again: sources mark it, the loop takes it.

A burst of marks while a round runs is the next round; the first mark of a quiet time starts one at once.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from weft.model.objects import Key
from weft.model.value import Value, field


class Dirty(Value, kw_only=False, frozen=False):
    """The difference since the last round: `everything` asks for a full look at the kernel.

    `sweep` says that nobody asked for that look, the time between two of them was over.
    `inputs` says that what decides about every part has changed, `shared` that only the part has that is no peer's;
    `peers` are lease ids, `keys` kernel objects
    that someone else touched.
    """

    everything: bool = False
    sweep: bool = False
    inputs: bool = False
    shared: bool = False
    peers: set[str] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.everything or self.inputs or self.shared or bool(self.peers) or bool(self.keys)


class Wake:
    """Collects marks and lets the one loop wait for them."""

    def __init__(self) -> None:
        self._dirty = Dirty()
        self._event = asyncio.Event()
        self._looked: float | None = None  # when everything was asked for last; None before the first wait

    def everything(self) -> None:
        """Ask for a full look."""
        self._dirty.everything = True
        self._event.set()

    def inputs(self) -> None:
        """Say that settings, facts or our own lease changed."""
        self._dirty.inputs = True
        self._event.set()

    def shared(self) -> None:
        """Say that something changed that no peer depends on."""
        self._dirty.shared = True
        self._event.set()

    def peers(self, ids: Iterable[str]) -> None:
        """Mark peers by lease id."""
        self._dirty.peers.update(ids)
        self._event.set()

    def keys(self, keys: Iterable[Key]) -> None:
        """Mark kernel objects."""
        self._dirty.keys.update(keys)
        self._event.set()

    async def next(self, *, at_most: float) -> Dirty:
        """Wait for a mark and take all there are; ask for everything when nobody has for `at_most` seconds."""
        now = asyncio.get_running_loop().time
        due = (now() if self._looked is None else self._looked) + at_most
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._event.wait()
        if now() >= due and not self._dirty.everything:
            self._dirty.everything = self._dirty.sweep = True
        if self._dirty.everything or self._looked is None:
            self._looked = now()
        return self.take()

    def take(self) -> Dirty:
        """Take all marks there are, without waiting for one."""
        dirty, self._dirty = self._dirty, Dirty()
        self._event.clear()
        return dirty
