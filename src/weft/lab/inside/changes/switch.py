"""The lab's switch as it is set now: which links are down or bad, and which ways are cut."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.inside import underlay
from weft.lab.inside.changes import rules
from weft.lab.inside.changes.shaping import shape
from weft.lab.inside.processes import Processes
from weft.lab.links import STORE, Conditions, Cut, Link
from weft.lab.spec import Node
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError

_NFT: Final = ("nft", "-f", "-")


class Switch:
    """Sets conditions at the ports of a switch; `now` are those that are set."""

    def __init__(self, rtnl: Rtnl, processes: Processes) -> None:
        """`rtnl` is a socket of the lab's own namespace, where the switch is."""
        self.now = Conditions()
        self._rtnl = rtnl
        self._processes = processes

    async def set(self, wanted: Conditions, nodes: Iterable[Node]) -> None:
        """Set conditions between these nodes, the lab's. What is refused leaves all as it was.

        Raises `ConfigError` where this machine cannot do what is wanted, else `Unavailable` or `OSError`.
        """
        ports = {node.name: underlay.port(node.index) for node in nodes}
        try:
            await self._go(self.now, wanted, ports)
        except (WeftError, OSError):
            with suppress(WeftError, OSError):  # what cannot be put back either is told by the first refusal
                await self._go(wanted, self.now, ports)
            raise
        self.now = wanted

    async def _go(self, had: Conditions, wanted: Conditions, ports: dict[str, str]) -> None:
        for node, port in ports.items():
            old, new = had.link(node), wanted.link(node)
            if (old.delay, old.rate) != (new.delay, new.rate):
                shape(self._rtnl, port, new)
        if _rules(had, ports) != (script := _rules(wanted, ports)):
            await self._load(script)
        for node, port in ports.items():
            if had.link(node).up != wanted.link(node).up:
                self._turn(port, wanted.link(node))

    async def _load(self, script: str) -> None:
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


def _rules(conditions: Conditions, ports: dict[str, str]) -> str:
    places = ports | {STORE: rules.SWITCH}

    def way(cut: Cut) -> tuple[str, str]:
        return places[cut.source], places[cut.target]

    losses = {ports[node]: link.loss for node, link in conditions.links.items() if link.loss}
    return rules.transaction(losses, map(way, conditions.cuts))
