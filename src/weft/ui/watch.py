"""Follows a source while a page is open, and sends each page what is new to it.

A slow page gets fewer messages, and misses nothing: each compares with what it got last.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

from weft.beside.tasks import watched
from weft.model.errors import WeftError
from weft.model.node.history import EventsSince, Follower
from weft.ui import picture, words
from weft.ui.measuring import Measured, Pair
from weft.ui.picture import Piece, View
from weft.ui.sources import Source

MOST: Final = 2000  # events of all nodes together that a page has
_EVENTS_AGAIN: Final = 0.2  # seconds between two questions for events,
_EVENTS_NODE: Final = 0.002  # and so much more for each node that is asked
_STATES_AGAIN: Final = 2.0  # seconds between two looks at all when nothing happens,
_STATES_NODE: Final = 0.02  # and so much more for each node
_AFTER_EVENT: Final = 0.1  # seconds from an event to a look: what follows from it may still be under way
_AWAY_AGAIN: Final = 1.0  # seconds before a source that does not answer is asked again
_QUIET: Final = 10.0  # seconds without news after which a page gets word that all is quiet
_LOOK_UP: Final = 0.25  # seconds between two looks at whether the page is to end


class Watch:
    """One for all pages; `ending` when they are to end."""

    def __init__(self, source: Source, *, ending: Callable[[], bool] = lambda: False) -> None:
        self._source = source
        self._ending = ending
        self._view: View | None = None
        self._measured: dict[Pair, Measured] = {}
        self._picture: picture.Picture = {}
        self._events: deque[Piece] = deque(maxlen=MOST)
        self._count = 0  # of events so far
        self._followers: dict[str, Follower] = {}
        self._last_said: dict[str, tuple[Piece, int]] = {}  # by nodes' daemons, and when
        self._away = ""
        self._pages = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._happened = asyncio.Event()

    async def once(self, *, pings: int) -> dict[str, Any]:
        """One look, after so many measurements. Raises what the source raises."""
        view = await self._look()
        for _ in range(min(pings, len(view.pairs))):
            self._measured |= await self._source.measure(view, self._measured)
        self._picture = picture.picture(view, self._measured)
        await self._take(await self._source.events(self._last))
        return self._all()

    @property
    def _last(self) -> dict[str, int]:
        """The number of each node's latest event."""
        return {node: follower.last for node, follower in self._followers.items()}

    async def _look(self) -> View:
        view = await self._source.look()
        self._view = picture.with_last(view, self._last_said, time.time())
        return self._view

    async def page(self) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """`all` first, then each `change`; `quiet` now and then when there is none."""
        self._pages += 1
        if self._pages == 1:
            loops = (self._follow_events, self._follow_states, self._follow_pings)
            self._tasks = [watched(loop()) for loop in loops]
        try:
            while not self._picture and not self._away and not self._ending():
                await self._news(self._count, self._picture, _QUIET)
            seen, away, count = self._picture, self._away, self._count
            yield "all", self._all()
            while not self._ending():
                if not await self._news(count, seen, _QUIET, away):
                    yield "quiet", {"unix": time.time()}
                    continue
                new = list(self._events)[-(self._count - count) :] if self._count > count else []
                change = {**picture.changes(seen, self._picture), "events": new, **self._now()}
                seen, away, count = self._picture, self._away, self._count
                yield "change", change
        finally:
            self._pages -= 1
            if not self._pages:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _news(self, count: int, seen: picture.Picture, seconds: float, away: str = "") -> bool:
        """For so many seconds, or until the page's end."""

        def is_new() -> bool:
            return self._count != count or self._picture is not seen or self._away != away

        for _ in range(int(seconds / _LOOK_UP)):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_UP), self._changed:
                    await self._changed.wait_for(is_new)
                    return True
            if self._ending():
                break
            for task in self._tasks:
                if task.done():
                    task.result()  # a mistake of ours ends the page, and is logged
        return False

    def _all(self) -> dict[str, Any]:
        return {"put": self._picture, "gone": [], "events": list(self._events), **self._now()}

    def _now(self) -> dict[str, Any]:
        return {"unix": time.time(), "away": self._away}

    async def _follow_events(self) -> None:
        while True:
            nodes = 0 if self._view is None else len(self._view.nodes)
            if self._view is not None:  # names of nodes are known, by which events are told apart
                with suppress(OSError, WeftError):  # `_follow_states` says so
                    await self._take(await self._source.events(self._last))
            await asyncio.sleep(_EVENTS_AGAIN + nodes * _EVENTS_NODE)

    async def _take(self, told: dict[str, EventsSince]) -> None:
        names = {} if self._view is None else self._view.names
        news = {node: self._followers.setdefault(node, Follower()).events(each) for node, each in told.items()}
        nodes = ([words.told(node, event, names) for event in events] for node, events in news.items())
        fresh = list(heapq.merge(*nodes, key=lambda event: event["time"]))  # a clock that jumps reorders no node's
        if fresh:
            self._events.extend(fresh)
            self._count += len(fresh)
            self._happened.set()
            await self._tell()

    async def _follow_states(self) -> None:
        while True:
            try:
                view = await self._look()
            except (OSError, WeftError) as error:
                self._away = (
                    str(error) if isinstance(error, WeftError) else f"it does not answer: {error.strerror or error}"
                )
                pause = _AWAY_AGAIN
            else:
                self._away = ""
                self._measured = {pair: self._measured[pair] for pair in view.pairs if pair in self._measured}
                pause = _STATES_AGAIN + _STATES_NODE * len(view.nodes)
                fresh = picture.picture(view, self._measured)
                if fresh != self._picture:
                    self._picture = fresh
            await self._tell()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._happened.wait()
            self._happened.clear()
            await asyncio.sleep(_AFTER_EVENT)

    async def _follow_pings(self) -> None:
        while True:
            view = self._view
            if view is None or self._away:
                await asyncio.sleep(_AWAY_AGAIN)
                continue
            try:
                found = await self._source.measure(view, self._measured)
            except (OSError, WeftError):  # the lab or a node of it has gone; `_follow_states` says so
                await asyncio.sleep(_AWAY_AGAIN)
                continue
            self._measured |= found
            view = self._view or view  # a look may have come meanwhile
            nodes = {node.name: node for node in view.nodes}
            edges = {
                picture.edge_name(pair): picture.edge(nodes[pair[0]], nodes[pair[1]], each, view.cuts.get(pair))
                for pair, each in found.items()
                if pair in view.pairs
            }
            if any(self._picture.get(name) != piece for name, piece in edges.items()):
                self._picture = {**self._picture, **edges}
                await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
