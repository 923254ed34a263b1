"""Where the page's data comes from: a lab's supervisor, or the daemon of this node.

Failed questions raise `Unavailable` or `OSError`.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from weft.beside.threads import beside
from weft.diag.sight import peer_probes
from weft.diag.sight.interfaces import InterfaceState
from weft.diag.sight.look import interfaces
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.diag.trace.probe_report import TraceReport
from weft.kernel import daemons
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab import protocol
from weft.lab.commands.choose import ask
from weft.lab.commands.trace import follow
from weft.lab.links import ITSELF
from weft.lab.places import Place
from weft.lab.report import TrafficReport, rates
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import EventsSince
from weft.ui import measuring
from weft.ui.measuring import Measured, Pair
from weft.ui.picture import View, of_lab, of_node

Answer = TypeVar("Answer")

_BETWEEN_PINGS: Final = 0.2  # seconds
_SECONDS: Final = 10.0  # for an answer of the supervisor
_NODE_AGAIN: Final = 10.0  # seconds: there all peers are asked at once


class Source(Protocol):
    """What the page can show. One source serves all open pages."""

    async def look(self) -> View: ...

    async def events(self, after: Mapping[str, int]) -> dict[str, EventsSince]:
        """After an event of each node."""
        ...

    async def measure(self, view: View, measured: Mapping[Pair, Measured]) -> dict[Pair, Measured]:
        """Wait until a measurement is due, and make it."""
        ...

    async def interfaces(self, where: str) -> list[InterfaceState]: ...

    async def trace(self, source: str, target: str, size: int) -> TraceReport:
        """`size` is in bytes, 0 for the usual."""
        ...


class LabSource:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._carried: TrafficReport | None = None  # as of the latest look

    async def look(self) -> View:
        lab, said, now = await asyncio.gather(self._ask(protocol.Ps()), self._ask(protocol.States()), self._traffic())
        before, self._carried = self._carried, now
        carried = None if before is None or now is None else rates(before, now)
        return of_lab(lab, said, unix=time.time(), carried=carried)

    async def _traffic(self) -> TrafficReport | None:
        try:
            return await self._ask(protocol.Traffic())
        except ConfigError:  # nft is missing, or the lab is of an older weft
            return None

    async def events(self, after: Mapping[str, int]) -> dict[str, EventsSince]:
        news = await self._ask(protocol.AskNews(dict(after)))
        return {ITSELF: news.lab} | {node: each.told for node, each in news.nodes.items() if each is not None}

    async def measure(self, view: View, measured: Mapping[Pair, Measured]) -> dict[Pair, Measured]:
        """One ping from a pod of a node to a pod of another; a node without pods stands for itself."""
        await asyncio.sleep(_BETWEEN_PINGS)
        pair = measuring.due(view.pairs, measured, now=time.time())
        if pair is None:
            return {}
        ends = {node.name: next(iter(node.piece["pods"]), node.name) for node in view.nodes if node.name in pair}
        request = protocol.Ping(source=ends[pair[0]], target=ends[pair[1]], count=1)
        cells = (await self._ask(request)).cells
        probe = None if any(cell.fault == "lost" for cell in cells) else max(c.milliseconds or 0.0 for c in cells)
        words = ", ".join(sorted({f"a probe was {c.fault}" for c in cells if c.fault not in ("", "lost")}))
        return {pair: measuring.noted(measured.get(pair), probe, at=time.time(), words=words)}

    async def interfaces(self, where: str) -> list[InterfaceState]:
        return await self._ask(protocol.Interfaces(where))

    async def trace(self, source: str, target: str, size: int) -> TraceReport:
        return await beside(lambda: follow(self._place, source, target, size=size))

    async def _ask(self, request: protocol.Asked[Answer]) -> Answer:
        """A closed page, or Ctrl-C, does not wait for the answer."""
        async with asyncio.timeout(_SECONDS):
            return await beside(lambda: ask(self._place, request))


class NodeSource:
    """The daemon of this node, by its instance's name."""

    def __init__(self, instance: str, name: str) -> None:
        self._instance = instance
        self._name = name

    async def look(self) -> View:
        state = await beside(lambda: daemons.state(self._instance))
        return of_node(self._name, state, unix=time.time())

    async def events(self, after: Mapping[str, int]) -> dict[str, EventsSince]:
        last = after.get(self._name, 0)
        return {self._name: await beside(lambda: daemons.events(self._instance, last))}

    async def measure(self, view: View, measured: Mapping[Pair, Measured]) -> dict[Pair, Measured]:
        """An echo to each peer, as `weft doctor` sends; peers that are gone are forgotten."""
        if measured:
            await asyncio.sleep(_NODE_AGAIN)
        answers = await beside(self._probe)
        now = time.time()
        found = {}
        for pair in view.pairs:
            ways = {way: took for (peer, way), took in answers.items() if view.names.get(peer) == pair[1]}
            if ways:
                cut = ways.get("overlay", ways.get("underlay"))
                words = "its public IP answers, the overlay does not" if not cut and ways.get("underlay") else ""
                found[pair] = measuring.noted(measured.get(pair), 0.0 if cut else None, at=now, words=words)
        return found

    def _probe(self) -> dict[tuple[str, str], bool]:
        state = daemons.state(self._instance)
        with Rtnl.open() as rtnl:
            sight = Sight(links=tuple(rtnl.links()), daemon=state)
        probes, _ = peer_probes.probe(peers(sight), mtu=sight.mtu)
        return {(probe.peer, probe.way): probe.answered for probe in probes}

    async def interfaces(self, where: str) -> list[InterfaceState]:
        if where != self._name:
            raise _only_here(where, self._name)
        with Rtnl.open() as rtnl:
            return interfaces(rtnl)

    async def trace(self, source: str, target: str, size: int) -> TraceReport:
        raise _only_here(f"{source} to {target}{f' of {size} bytes' if size else ''}", self._name)


def _only_here(where: str, name: str) -> ConfigError:
    seen = f"a page of {name} sees no other node"
    return ConfigError(Problem("LAB-002", where, seen, hint="Run weft ui or weft trace there."))
