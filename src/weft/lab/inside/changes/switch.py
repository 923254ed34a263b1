"""The lab's switch as it is set now: which links are down or bad, and which ways are cut."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import Final

from weft.beside.tasks import watched
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.inside import underlay
from weft.lab.inside.changes import rules
from weft.lab.inside.changes.rules import Place
from weft.lab.inside.changes.shaping import shape
from weft.lab.inside.processes import Processes
from weft.lab.links import STORE, Conditions, Link
from weft.lab.spec import Node
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.kernel.nftset import Element
from weft.model.net import Family

_NFT: Final = ("nft", "-f", "-")
_COUNT_SECONDS: Final = 30.0


class Switch:
    """Sets conditions at the ports of a switch; `now` are those that are set."""

    def __init__(self, rtnl: Rtnl, processes: Processes, families: Sequence[Family]) -> None:
        """`rtnl` is a socket of the lab's own namespace, where the switch is; `families` are the lab's."""
        self.now = Conditions()
        self._families = families
        self._rtnl = rtnl
        self._processes = processes
        self._end: asyncio.TimerHandle | None = None  # of counting, while that goes on

    async def set(self, wanted: Conditions, nodes: Iterable[Node]) -> None:
        """Set conditions between these nodes, the lab's. What is refused leaves all as it was.

        Raises `ConfigError` where this machine cannot do what is wanted, else `Unavailable` or `OSError`.
        """
        places = {node.name: self._place(node) for node in nodes}
        try:
            await self._go(self.now, wanted, places)
        except (WeftError, OSError):
            with suppress(WeftError, OSError):  # the first refusal says what cannot be put back either
                await self._go(wanted, self.now, places)
            raise
        self.now = wanted

    async def _go(self, had: Conditions, wanted: Conditions, places: dict[str, Place]) -> None:
        for node, place in places.items():
            old, new = had.link(node), wanted.link(node)
            if (old.delay, old.rate) != (new.delay, new.rate):
                shape(self._rtnl, place.port, new)
        if self._rules(had, places) != (script := self._rules(wanted, places)):
            await self.load(script)
        for node, place in places.items():
            if had.link(node).up != wanted.link(node).up:
                self._turn(place.port, wanted.link(node))

    async def carried(self) -> tuple[list[Element], list[Element]]:
        """Return what was sent and what was lost, by the MACs from and to which it went.

        Counting begins with the first question, and ends some time after the last: each packet pays for it.
        """
        loop = asyncio.get_running_loop()
        if self._end is None:
            await self.load(rules.counting(wanted=True))
        else:
            self._end.cancel()
        self._end = loop.call_later(_COUNT_SECONDS, lambda: watched(self._count_no_more()))
        with closing(NfSocket.open()) as asking:
            return asking.elements(rules.COUNTING, rules.SENT), asking.elements(rules.TABLE, rules.LOST)

    async def _count_no_more(self) -> None:
        self._end = None
        with suppress(WeftError, OSError):
            await self.load(rules.counting(wanted=False))

    def _place(self, node: Node) -> Place:
        addresses = tuple(underlay.address_of(node, family) for family in self._families)
        return Place(port=underlay.port(node.index), segment=node.segment, addresses=addresses)

    def _rules(self, conditions: Conditions, nodes: dict[str, Place]) -> str:
        places = nodes | {STORE: Place(addresses=tuple(underlay.address(family).ip for family in self._families))}
        losses = {nodes[name].port: link.loss for name, link in conditions.links.items() if link.loss}
        cuts = [(places[cut.source], places[cut.target]) for cut in conditions.in_order()]
        return rules.transaction(losses, cuts)

    async def load(self, script: str) -> None:
        """Have nft load a script in the lab's own namespace. `ConfigError` without nft, `Unavailable` if it refuses."""
        try:
            ran = await self._processes.answer(None, _NFT, {}, script.encode())
        except FileNotFoundError:
            hint = "'apt-get install nftables'."
            raise ConfigError(
                Problem(code="HOST-002", where="nft", seen="no such program on PATH", hint=hint)
            ) from None
        if ran.exit:
            words = " ".join(ran.stderr.decode(errors="replace").split())
            raise Unavailable(Problem(code="LAB-002", where="nft, for the lab's switch", seen=words))

    def _turn(self, port: str, link: Link) -> None:
        index = self._rtnl.index_of(port)
        assert index is not None, port  # noqa: S101 - the node was plugged in
        self._rtnl.set_link(index, up=link.up)
