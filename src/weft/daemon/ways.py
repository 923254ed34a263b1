"""The paths to peers, for a store that wants to know of them: which answer an echo, and which of them pods use now.

Each node has an address for each of its paths, which nothing else uses, at which its kernel answers whether its daemon
runs or not.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from math import inf
from typing import Final

from weft.cluster.store import Echo, PathProbes
from weft.desired.tunnels.wireguard import LivePeer, key_bytes
from weft.kernel import icmp
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.lease import Lease, WayKind
from weft.model.mesh.effects import TunnelSeen
from weft.model.net import Family, Ip
from weft.wire.icmp import IP_HEADER, REPLY, REQUEST, marked_request, read_marked

_TURN: Final = 0.2  # seconds until the store hears of an answer
_LOOK: Final = 0.7  # … of which paths are in use, at the latest; not in step with echoes, which hide what was before
_TUNNELS: Final = 2.0  # … at WireGuard: its process takes 10 ms for 1,000 peers
_ROOM: Final = 65536
_AT_ONCE: Final = 64  # packets that are read before others have their turn: a pod can send more than can be read
_LATEST: Final = 4096  # echoes whose answers are taken
_SMALL: Final = len(marked_request(4, 0))
_LATELY: Final = 3.0  # seconds that a path counts as in use
_SAME: Final = 0.05  # seconds between an echo and the packet that it was
_HEADERS: Final = 32  # WireGuard's, and its tag
_PADDED: Final = 16  # bytes, to a multiple of which it fills a packet up
_LEAST: Final = 80  # bytes of the smallest packet of a pod in there; a keep-alive has fewer

Place = tuple[WayKind, Ip]


class Use:
    """Tells which paths carry packets of pods, apart from echoes. All times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._echoed: dict[str, float] = {}  # by id, when the last echo of either side went by vxlan
        self._sent: dict[str, int] = {}  # by id, bytes of echoes that have gone by WireGuard
        self._surplus: dict[str, tuple[int, int]] = {}  # … and what has gone there beside, at the last two looks
        self._used: dict[str, float] = {}  # by id, when a pod's packet was seen last

    def echoed(self, lease: Lease, kind: WayKind, now: float, *, sent: int = 0) -> None:
        """An echo of either side has passed, for which this node has sent a packet of `sent` bytes."""
        if kind == "vxlan":
            self._echoed[lease.id] = now
        elif sent:
            self._sent[lease.id] = self._sent.get(lease.id, 0) + _HEADERS + -(-sent // _PADDED) * _PADDED

    def look(
        self, leases: Iterable[Lease], used: Mapping[Ip, float], tunnels: Mapping[str, LivePeer], now: float
    ) -> set[str]:
        """The ids of leases whose paths are in use, by the ages of forwarding entries and by WireGuard's counters."""
        for lease in leases:
            echoed = self._echoed.get(lease.id, -inf) + _SAME
            if any(remote in used and now - used[remote] > echoed for remote in lease.remotes):
                self._used[lease.id] = now
            tunnel = None if lease.way is None else lease.way.tunnel
            live = None if tunnel is None else tunnels.get(tunnel.key)
            if live is not None and self._carries(lease.id, live):
                self._used[lease.id] = now
        return {name for name, when in self._used.items() if now < when + _LATELY}

    def _carries(self, name: str, live: LivePeer) -> bool:
        """Two looks in a row have to say so: WireGuard may count an echo sooner than we do, or later."""
        surplus = live.sent - self._sent.get(name, 0)
        before, last = self._surplus.get(name, (surplus, surplus))
        self._surplus[name] = (last, surplus)
        return surplus - max(before, last) >= _LEAST


class Ways:
    """`own` gives the addresses at which this node is asked, `where` those of a lease's node.

    A path has answered when it has done so in each family that both have. `most` is the size of the largest packet of a
    pod, `tunnels` asks for WireGuard's peers by their keys. `now` counts seconds and cannot be set, `unix` is the time.
    """

    def __init__(
        self,
        paths: PathProbes,
        *,
        own: Callable[[], Sequence[Place]],
        where: Callable[[Lease, WayKind], Sequence[Ip]],
        most: Callable[[], int],
        now: Callable[[], float],
        unix: Callable[[], float],
        random: Callable[[int], bytes],
        tunnels: Callable[[], Awaitable[Mapping[str, LivePeer]]],
    ) -> None:
        self._paths = paths
        self._own = own
        self._where = where
        self._most = most
        self._tunnels = tunnels
        self._now = now
        self._unix = unix
        self._first = int.from_bytes(random(7))  # so that nobody knows the numbers of our echoes
        self._number = self._first
        self._socks: dict[tuple[WayKind, Family], socket.socket] = {}
        self._leases: dict[Place, Lease] = {}  # by where their nodes were asked
        self._out: dict[int, tuple[Echo, set[Family]]] = {}  # by number, with the families that have not answered
        self._answered: list[Echo] = []
        self._active = set[str]()
        self._live: Mapping[str, LivePeer] = {}  # as WireGuard was at the last look, if that has not been told yet
        self._new: Mapping[str, LivePeer] = {}  # … if that has not been judged yet
        self._use = Use()

    async def run(self) -> None:
        """Begins again where the node's own block is another."""
        with Rtnl.open() as rtnl:
            while True:
                with ExitStack() as held:
                    held.callback(self._socks.clear)
                    await self._serve(self._own(), rtnl, held)

    async def _serve(self, own: Sequence[Place], rtnl: Rtnl, held: ExitStack) -> None:
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self._ask()), tasks.create_task(self._follow_tunnels())]
            looked = -inf
            while self._own() == own:
                if self._now() >= looked + _LOOK:
                    self._listen(own, held)
                    self._look(rtnl)
                    looked = self._now()
                    self._tell()
                elif self._answered:
                    self._tell()
                await asyncio.sleep(_TURN)
            for each in others:
                each.cancel()

    async def _follow_tunnels(self) -> None:
        """Apart from the rest, because a process may be slow to answer."""
        while True:
            with suppress(OSError):  # the next look sees more
                self._live = self._new = await self._tunnels()
            await asyncio.sleep(_TUNNELS)

    def _listen(self, own: Sequence[Place], held: ExitStack) -> None:
        """Where nobody listens yet: addresses come with their devices, which may come at any time."""
        loop = asyncio.get_running_loop()
        for kind, ip in own:
            if (kind, ip.version) not in self._socks:
                with suppress(OSError):
                    sock = self._socks[kind, ip.version] = held.enter_context(_bound(ip))
                    loop.add_reader(sock, self._hear, sock, kind, ip.version)
                    held.callback(loop.remove_reader, sock)

    def _look(self, rtnl: Rtnl) -> None:
        """Which paths are in use."""
        used: Mapping[Ip, float] = {}
        with suppress(OSError):  # the next look sees more
            used = rtnl.fdb_used()
        for (kind, version), sock in self._socks.items():  # what our kernel has answered, and nobody has read yet
            self._hear(sock, kind, version)
        leases = {lease.id: lease for lease in self._leases.values()}
        self._active = self._use.look(leases.values(), used, self._new, self._now())
        self._new = {}

    def _tell(self) -> None:
        if self._socks:
            answered, self._answered = self._answered, []
            live, self._live = self._live, {}
            self._paths.saw(answered, self._active, [self._seen(each) for each in live.values()])

    def _seen(self, live: LivePeer) -> TunnelSeen:
        endpoint = "" if live.peer.endpoint is None else str(live.peer.endpoint)
        ago = max(0.0, self._unix() - live.handshake) if live.handshake else None
        return TunnelSeen(key=key_bytes(live.peer.key), endpoint=endpoint, handshake=ago)

    async def _ask(self) -> None:
        while True:
            echo = await self._paths.next()
            lease, kind = echo.lease, echo.kind
            places = [ip for ip in self._where(lease, kind) if (kind, ip.version) in self._socks]
            self._number += 1
            self._out[self._number] = echo, {ip.version for ip in places}
            self._out.pop(self._number - _LATEST, None)
            for ip in places:
                self._leases[kind, ip] = lease
                size = min(echo.size, self._most()) or IP_HEADER[ip.version] + _SMALL
                self._use.echoed(lease, kind, self._now(), sent=size)
                request = marked_request(ip.version, self._number, size=size - IP_HEADER[ip.version])
                with suppress(OSError):  # there is no route yet, or the device takes less: as one that is lost
                    self._socks[kind, ip.version].sendto(request, (str(ip), 0))

    def _hear(self, sock: socket.socket, kind: WayKind, version: Family) -> None:
        with suppress(OSError):  # nothing more; or what came back of an echo, which is no answer
            for _ in range(_AT_ONCE):
                data, (host, *_) = sock.recvfrom(_ROOM)
                what, number = read_marked(version, data)
                lease = self._leases.get((kind, ip_address(host)))
                if lease is not None:
                    size = len(data) + (IP_HEADER[6] if version == 6 else 0)  # raw IPv4 sockets show the header
                    self._use.echoed(lease, kind, self._now(), sent=size if what == REQUEST[version] else 0)
                    if what == REPLY[version]:
                        self._came(number, lease, kind, version)

    def _came(self, number: int, lease: Lease, kind: WayKind, version: Family) -> None:
        """An answer by another path than the one that was asked is none."""
        echo, awaited = self._out.get(number, (None, set[Family]()))
        if echo is not None and (echo.lease.id, echo.kind) == (lease.id, kind) and version in awaited:
            awaited.remove(version)
            if not awaited:
                self._answered.append(echo)
                del self._out[number]


def _bound(ip: Ip) -> socket.socket:
    """Raises `OSError` while this node does not have the address."""
    sock = icmp.listen(ip.version, (REQUEST[ip.version], REPLY[ip.version]))
    try:
        icmp.never_fragment(sock, ip.version)
        sock.bind((str(ip), 0))
    except OSError:
        sock.close()
        raise
    return sock
