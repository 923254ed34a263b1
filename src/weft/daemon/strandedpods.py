"""Pods that have lost their links while their containers live: heard of by the kernel's notices, told of by code."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from weft.daemon.planes import repairs
from weft.desired.leaks import Stranded
from weft.model.errors import Problem
from weft.model.text import counted

log = logging.getLogger(__name__)

# When a container's namespace ends before its DEL, its links go, and DEL comes a moment later.
_GRACE_SECONDS: Final = 5.0


class StrandedPods:
    """Attachments whose host end was deleted, or taken off its bridge.

    `problem` is the bridge that is gone while pods that were on it live; they are looked at until that has an end.
    """

    def __init__(self) -> None:
        # By the attachments' keys, the bridges that they were taken off.
        self._new: dict[str, str] = {}
        self._without_bridge: dict[str, str] = {}
        self._event = asyncio.Event()
        self._lost_rules = asyncio.Event()

    def look_at_all(self) -> None:
        """Have the rules of all pods searched for what they have lost."""
        self._lost_rules.set()

    async def pass_on(self, search: Callable[[], None]) -> None:
        """Begin a search, for ever, each time that one is asked for."""
        while True:
            await self._lost_rules.wait()
            self._lost_rules.clear()
            search()

    def add(self, key: str, bridge: str) -> None:
        """Have it looked at. `bridge` is empty if the host end was deleted."""
        self._new[key] = bridge
        self._event.set()

    @property
    def problem(self) -> Problem | None:
        """The bridge that was deleted while pods were on it that live."""
        for name, pods in sorted(Counter(self._without_bridge.values()).items()):
            return Problem(
                code="BRIDGE-006",
                where=f"link {name}",
                seen=f"another program deleted it with {counted(pods, 'pod')} on it, which reach nothing now",
                hint="Delete these pods: their successors get a network, and the first of them makes the bridge again",
            )
        return None

    async def tell(self, look: Callable[[Mapping[str, str]], Awaitable[list[Stranded]]]) -> None:
        """Log, for ever, what `look` finds of those that are stranded."""
        while True:
            await self._event.wait()
            await asyncio.sleep(_GRACE_SECONDS)
            new, self._new = self._new, {}
            self._event.clear()
            try:
                stranded = await look(self._without_bridge | new)
            except OSError as error:
                log.warning("weft cannot find out which pods have lost their links: %s", error)
                stranded = []
            before, self._without_bridge = self.problem, {each.key: each.bridge for each in stranded if each.bridge}
            if self.problem and not before:
                log.warning("%s", self.problem)
            repairs.say_some(log.warning, [str(each.problem) for each in stranded if each.key in new])
            if self._without_bridge:
                self._event.set()
