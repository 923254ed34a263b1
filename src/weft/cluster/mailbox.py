"""What the daemon has not taken yet of what a store said: the newest word for each lease, nothing twice."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from weft.beside.tasks import awaited
from weft.model.cluster import Changed, Listed, Lost, Malformed, StoreEvent, Token
from weft.model.lease import Lease

# The newest word for an id: a lease, a malformed entry, or None for gone.
Word = Lease | Malformed | None


class Mailbox:
    """What the consumer has not taken yet: at most a list, the changes since, and a loss, in that order."""

    def __init__(self) -> None:
        self._listed: Listed | None = None
        self._words: dict[str, Word] | None = None
        self._mark: Token | None = None
        self._lost: Lost | None = None
        self._filled = asyncio.Event()

    def listed(self, listed: Listed) -> None:
        """Everything there is: what was waiting is overtaken."""
        self._listed, self._words, self._lost = listed, None, None
        self._filled.set()

    def changed(self, words: Iterable[tuple[str, Word]], mark: Token | None) -> None:
        """Some leases changed; without words: the store is back and nothing changed. Ends a loss."""
        if self._words is None:
            self._words = {}
        for name, word in words:
            self._words.pop(name, None)  # the newest word goes to the end: the store's order
            self._words[name] = word
        self._mark, self._lost = mark, None
        self._filled.set()

    def lost(self, reason: str, *, refused: bool = False) -> None:
        """The store went away, or refuses us. What was said before is still true and is still delivered."""
        self._lost = Lost(reason=reason, refused=refused)
        self._filled.set()

    async def deliver(self, pump: Callable[[], Awaitable[None]]) -> AsyncGenerator[StoreEvent, None]:
        """All events, while `pump` fills the box: in a task of its own, so that what comes meanwhile is merged."""
        pumping = awaited(pump())
        pumping.add_done_callback(lambda _: self.lost("the watch ended"))
        try:
            while True:
                event = await self.take()
                if pumping.done():
                    pumping.result()  # it ends only by a fault of ours, which must not stay hidden
                yield event
        finally:
            pumping.cancel()
            await asyncio.wait((pumping,))

    async def take(self) -> StoreEvent:
        """Wait for the next event."""
        event: StoreEvent | None = None
        while event is None:
            await self._filled.wait()
            if self._listed is not None:
                event, self._listed = self._listed, None
            elif self._words is not None:
                event, self._words = _changed(self._words, self._mark), None
            elif self._lost is not None:
                event, self._lost = self._lost, None
            else:
                self._filled.clear()
        return event


def _changed(words: dict[str, Word], mark: Token | None) -> Changed:
    return Changed(
        put=tuple(word for word in words.values() if isinstance(word, Lease)),
        gone=tuple(name for name, word in words.items() if word is None),
        malformed=tuple(word for word in words.values() if isinstance(word, Malformed)),
        mark=mark,
    )
