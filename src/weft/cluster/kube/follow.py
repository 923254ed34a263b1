"""Follows objects of the API: everything once, then changes, whatever happens to the API meanwhile."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Final, Generic, NoReturn, Protocol, TypeVar

from weft.cluster.kube.access import Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import Collection, is_older
from weft.cluster.kube.problems import BusyError, ExpiredError, of_status, reading
from weft.cluster.pace import Pace
from weft.model.errors import Unavailable
from weft.wire.kubelist import Happened

T = TypeVar("T")

# Seconds after which the API ends a watch, so that its servers share the load again: this long to twice this long.
_LASTS: Final = 300
_GONE: Final = 410
# Seconds after events that say nothing, in which more of them gather: 500 a second are taken in 40 reads, not 1,500.
_QUIET: Final = 0.02
_REST_MOST: Final = 60.0  # whatever a server asks for
# Seconds between two lists while the API forgets each list at once: this long, then twice as long each time.
_LISTS: Final = 0.2
_LISTS_MOST: Final = 60.0
_LOOKS: Final = 10  # at a watch that is silent, between two questions beside it


class Hearer(Protocol[T]):
    """What takes what is followed. What it raises ends the following."""

    async def list(self) -> str:
        """List all, and return the version. Raises `Unavailable`."""
        ...

    async def changed(self, events: Sequence[Happened[T]], version: str) -> bool:
        """Take events, and tell whether they said anything."""
        ...

    async def lost(self, error: Unavailable) -> None:
        """The API has failed twice, or the first list has."""
        ...

    async def back(self, version: str) -> None:
        """What was lost is there again, and nothing has changed."""
        ...


class Follower(Generic[T]):
    """One watch at a time. `heard` is when the API last gave a sign of life."""

    def __init__(
        self,
        client: Client,
        what: Collection[T],
        *,
        timing: Timing,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.heard: float | None = None
        self._client = client
        self._what = what
        self._timing = timing
        self._now = now
        self._jitter = jitter
        self._version = ""  # empty: list first
        self._lists = Pace(_LISTS, _LISTS_MOST, jitter)
        self._pace = Pace(timing.backoff, timing.backoff_most, jitter)
        self._lost = False
        self._broken = False
        self._silent = False  # the API gave no sign of life beside a watch that was silent

    async def run(self, hearer: Hearer[T], version: str = "") -> NoReturn:
        """`version` is that of a list that `hearer` has taken already."""
        self._version, self._lost, self._silent = version, False, False
        if version:
            self._listed()
        while True:
            try:
                if self._version and self._broken:
                    await self._check_history()
                if not self._version:
                    self._version = await hearer.list()
                    self._listed()
                if await self._follow(hearer):
                    continue  # from where it was: nothing has failed
            except ExpiredError:
                self._version = ""  # what happened meanwhile is not told any more
                await self._lists.wait()
            except Unavailable as error:
                # One break may be a server's restart: the next one often answers at once. Not after a silence.
                if self._pace.failures or self._silent or not self._version:
                    self._lost = True
                    await hearer.lost(error)
                self._broken = True
                if isinstance(error, BusyError):
                    await asyncio.sleep(min(error.seconds, _REST_MOST))
            await self._pace.wait()

    def _listed(self) -> None:
        self._hear()
        self._broken = self._lost = False

    async def _check_history(self) -> None:
        """List again if the API knows less than it did, as after a restored snapshot: such a watch would be silent."""
        if is_older(await self._what.version_now(self._client), self._version):
            raise ExpiredError
        self._broken = False

    async def _follow(self, hearer: Hearer[T]) -> bool:
        """Until the API ends the watch; True if it was silent for too long."""
        what, look = self._what, self._timing.quiet / _LOOKS
        query = {**what.query, "allowWatchBookmarks": "true", "resourceVersion": self._version}
        lasts = int(_LASTS * (1 + self._jitter()))
        watch = self._client.watch(what.path, lasts=lasts, accept=what.watch_as, **query)
        async with watch as link, aclosing(link.lines(look)) as batches:
            silent = 0
            self._silent = False
            self._answered()
            self._hear()
            async for lines in batches:
                self._answered()
                if lines:
                    self._hear()
                told = await self._take(lines, hearer)
                if lines:
                    silent = 0
                    if not told:
                        await link.rest(_QUIET)
                    continue
                silent += 1
                if silent * look >= self._timing.held:
                    return True
                if silent % _LOOKS == 0:
                    await self._ask_for_life()
        return False

    async def _ask_for_life(self) -> None:
        """Something small, beside a watch that is silent. Raises what `_check_history` does."""
        self._silent = True
        with suppress(BusyError):  # that is an answer
            await self._check_history()
        self._silent = False
        self._hear()

    def _answered(self) -> None:
        self._pace.answered()
        self._lists.answered()

    def _hear(self) -> None:
        self.heard = self._now()

    async def _take(self, lines: Iterable[bytes], hearer: Hearer[T]) -> bool:
        """Up to a line that ends the watch by an error; returns whether anything was said."""
        events: list[Happened[T]] = []
        told = False
        try:
            with reading(self._client.where):
                for line in lines:
                    events.append(self._read(line))  # noqa: PERF401 - those before an error count
        finally:
            if events and (told := await hearer.changed(events, self._version)):
                self._lost = False
        if self._lost:  # until now it might have been anything that answers
            self._lost = False
            await hearer.back(self._version)
        return told

    def _read(self, line: bytes) -> Happened[T]:
        event = self._what.kind.event(line)
        if event.kind == "ERROR":
            if event.code == _GONE:
                raise ExpiredError
            raise of_status(self._client.where, event.code, event.reason, event.message)
        self._version = event.version
        return event
