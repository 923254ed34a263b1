"""Does A reach B, and does B see A's own address? ICMP echo on raw sockets in their namespaces tells.

A probe carries a number. The target's socket shows the source address with which it arrived, the source's socket the
kernel's answer: so a translation is seen, not guessed, and no program runs in the target. Times are the packets' own,
from just before the kernel gets a probe until it takes the answer in (SO_TIMESTAMPNS).
"""

import asyncio
import itertools
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final, Literal

from weft.kernel import icmp
from weft.lab.inside import underlay
from weft.lab.inside.cluster import World
from weft.lab.inside.node import RunningNode
from weft.lab.inside.pod import RunningPod
from weft.lab.report import Cell, PingReport
from weft.lab.system import ANCILLARY, SO_TIMESTAMPNS, arrival
from weft.model.errors import ConfigError, Problem
from weft.model.net import Family, Ip, family_of
from weft.model.text import counted
from weft.model.value import Value, field
from weft.wire.icmp import REPLY, REQUEST, marked_request, read_marked

_TRIES: Final = 3  # of pingall: a probe may be lost where two nodes have never met
_WAIT: Final = 0.7  # seconds for one try
_AT_ONCE: Final = 16  # of pingall: while one is lost, others go on
_INTRODUCTIONS: Final = 10.0  # seconds for all handshakes of a lab


class _End(Value):
    """`own` are all its addresses, `addresses` those that a probe may go to."""

    place: RunningNode | RunningPod
    own: frozenset[Ip]
    addresses: tuple[Ip, ...]

    @property
    def name(self) -> str:
        return self.place.spec.name


class _Probe(Value, frozen=False):
    """What the target saw, when it was sent and when the answer came, in ns since 1970."""

    source: str
    target: str
    seen: Ip | None = None
    sent: int = 0
    back: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)


async def between(world: World, source: str, target: str, *, count: int) -> PingReport:
    """To all its addresses, `count` times, one after the other, without a second try."""
    pairs = [(_end(world, source), _end(world, target))]
    return await _Exchange(world, tries=1, at_once=1).report(pairs * count)


async def everything(world: World) -> PingReport:
    """`ConfigError` with fewer than two pods."""
    if len(world.pods.running) < 2:  # one pod proves nothing
        problem = Problem(
            "LAB-002",
            "pingall",
            f"a lab with {counted(len(world.pods.running), 'pod')}",
            expected="two pods at least",
            hint=f"'weft lab run{world.lab.option} POD --node NODE' starts another.",
        )
        raise ConfigError(problem)
    pods = [_end(world, running.spec.name) for running in world.pods.in_order()]
    nodes = [_end(world, name) for name in world.nodes]
    pairs = [(source, target) for source in (*pods, *nodes) for target in pods if source is not target]
    return await _Exchange(world, tries=_TRIES, at_once=_AT_ONCE).report(pairs)


async def introduce(world: World) -> None:
    """Let each two nodes of WireGuard with pods exchange a first packet, one pair at a time.

    Two nodes that begin a handshake at once both drop the other's answer, and try again after five seconds: the first
    packets of a new lab would be lost.
    """
    if world.backend != "wireguard":
        return
    pods = {running.spec.node: _end(world, running.spec.name) for running in world.pods.in_order()}
    pairs = [(_end(world, one), pods[other]) for one, other in itertools.combinations(pods, 2)]
    with suppress(TimeoutError):  # some nodes may not reach each other: `pingall` says which
        async with asyncio.timeout(_INTRODUCTIONS):
            await _Exchange(world, tries=1, at_once=1).report(pairs)


def _end(world: World, name: str) -> _End:
    place = world.place(name)
    if isinstance(place, RunningPod):
        addresses = tuple(address.ip for address in place.addresses)
        return _End(place=place, own=frozenset(addresses), addresses=addresses)
    own = frozenset(address.ip for address in place.rtnl.addresses())
    addresses = tuple(underlay.address_of(place.spec, family) for family in world.lab.families)
    return _End(place=place, own=own, addresses=addresses)


class _Exchange:
    """One socket for each end and family."""

    def __init__(self, world: World, *, tries: int, at_once: int) -> None:
        self._inside = world.inside
        self._tries = tries
        self._gate = asyncio.Semaphore(at_once)
        self._sockets: dict[tuple[str, Family], socket.socket] = {}
        self._probes: dict[int, _Probe] = {}
        self._numbers = itertools.count(time.monotonic_ns())

    async def report(self, pairs: Sequence[tuple[_End, _End]]) -> PingReport:
        ways = [(source, target, address) for source, target in pairs for address in target.addresses]
        loop = asyncio.get_running_loop()
        try:
            await self._open(end for pair in pairs for end in pair)
            cells = await asyncio.gather(*(self._cell(*way) for way in ways))
        finally:
            for sock in self._sockets.values():
                loop.remove_reader(sock)
                sock.close()
        return PingReport(tried=len(cells), reached=sum(not cell.fault for cell in cells), cells=cells)

    async def _open(self, ends: Iterable[_End]) -> None:
        for end in {end.name: end for end in ends}.values():
            for family in sorted({address.version for address in end.addresses}):
                version: Family = 4 if family == 4 else 6
                kinds = REQUEST[version], REPLY[version]
                sock = await self._inside.run(end.place.room, partial(icmp.listen, version, kinds))
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self._sockets[end.name, version] = sock
                asyncio.get_running_loop().add_reader(sock, self._hear, sock, end.name, version)

    async def _cell(self, source: _End, target: _End, address: Ip) -> Cell:
        family = family_of(address)
        async with self._gate:
            sent = 1
            probe = await self._once(source, target, address, family)
            while sent < self._tries and not probe.complete.is_set():
                sent += 1
                probe = await self._once(source, target, address, family)
        fault = _fault(probe, source, target)
        return Cell(
            source=source.name,
            target=target.name,
            family=family,
            address=str(address),
            sent=sent,
            fault=fault,
            milliseconds=round((probe.back - probe.sent) / 1e6, 3) if probe.back else None,
            seen=str(probe.seen or ""),
        )

    async def _once(self, source: _End, target: _End, address: Ip, family: Family) -> _Probe:
        probe = _Probe(source=source.name, target=target.name)
        number = next(self._numbers)
        self._probes[number] = probe
        sock, request, to = self._sockets[source.name, family], marked_request(family, number), (str(address), 0)
        try:
            async with asyncio.timeout(_WAIT):
                probe.sent = time.time_ns()
                sock.sendto(request, to)
                await probe.complete.wait()
        except (OSError, TimeoutError):
            pass  # no route, no answer: the cell says so
        finally:
            del self._probes[number]
        return probe

    def _hear(self, sock: socket.socket, name: str, family: Family) -> None:
        while True:
            try:
                data, ancillary, _, sender = sock.recvmsg(256, ANCILLARY)
            except BlockingIOError:
                return
            kind, number = read_marked(family, data)
            probe = self._probes.get(number)
            if probe is None:
                continue
            if kind == REQUEST[family] and name == probe.target:
                probe.seen = ip_address(sender[0])
            elif kind == REPLY[family] and name == probe.source:
                probe.back = arrival(ancillary)
            if probe.seen and probe.back:
                probe.complete.set()


def _fault(probe: _Probe, source: _End, target: _End) -> Literal["", "lost", "unseen", "translated"]:
    if not probe.back:
        return "lost"
    if probe.seen is None:
        return "unseen"
    # What leaves the pod network is masqueraded, and a node's own address is outside of it.
    inside = isinstance(target.place, RunningPod)
    return "translated" if inside and probe.seen not in source.own else ""
