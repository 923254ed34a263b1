"""The paths to peers, for a store that wants to know of them: which answer an echo, and which of them pods use now.

Each node has an address for this alone, at which its kernel answers whether its daemon runs or not. A path is in use
if packets went by its forwarding entry that are no echoes, of ours or of the peer.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from math import inf
from typing import Final

from weft.cluster.store import Paths
from weft.kernel import icmp
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.lease import Lease
from weft.model.net import Family, Ip
from weft.wire.icmp import REPLY, REQUEST, marked_request, read_marked

_TURN: Final = 0.2  # seconds until the store hears of an answer
_LOOK: Final = 0.7  # … of which paths are in use, at the latest; not in step with echoes, which hide what was before
_LATELY: Final = 3.0  # … that a path counts as in use
_SAME: Final = 0.05  # seconds between an echo and the packet that it was
_ROOM: Final = 512


class Ways:
    """`own` gives the addresses at which this node is asked, `where` those of a lease's node: one a family.

    A path has answered when it has done so in each family that both have. `now` counts seconds and cannot be set.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        own: Callable[[], Sequence[Ip]],
        where: Callable[[Lease], Sequence[Ip]],
        now: Callable[[], float],
        random: Callable[[int], bytes],
    ) -> None:
        self._paths = paths
        self._own = own
        self._where = where
        self._now = now
        self._first = int.from_bytes(random(7))  # so that nobody knows the numbers of our echoes
        self._number = self._first
        self._leases: dict[Ip, Lease] = {}  # by the address at which the node was asked
        self._awaited: dict[str, set[int]] = {}  # by id, the families that have not answered yet
        self._echoed: dict[str, float] = {}  # by id, when the last echo of either side went by
        self._used: dict[str, float] = {}  # by id, when a pod's packet was seen last
        self._answered = set[str]()

    async def run(self) -> None:
        """Begins again where the node's own block is another, and where its addresses are not there yet."""
        with Rtnl.open() as rtnl:
            while True:
                own = self._own()
                socks: dict[Family, socket.socket] = {}
                with ExitStack() as held:
                    with suppress(OSError):  # addresses come with the devices
                        socks = {ip.version: held.enter_context(_bound(ip)) for ip in own}
                    if socks:
                        await self._serve(socks, own, rtnl)
                await asyncio.sleep(_LOOK)

    async def _serve(self, socks: Mapping[Family, socket.socket], own: Sequence[Ip], rtnl: Rtnl) -> None:
        loop = asyncio.get_running_loop()
        for version, sock in socks.items():
            loop.add_reader(sock, self._hear, sock, version)
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(self._ask(socks))
                looked = -inf
                while self._own() == own:
                    if self._answered or self._now() >= looked + _LOOK:
                        self._paths.saw(self._answered, self._active(socks, rtnl))
                        self._answered, looked = set(), self._now()
                    await asyncio.sleep(_TURN)
                asking.cancel()
        finally:
            for sock in socks.values():
                loop.remove_reader(sock)

    async def _ask(self, socks: Mapping[Family, socket.socket]) -> None:
        while True:
            lease = await self._paths.next()
            addresses = [ip for ip in self._where(lease) if ip.version in socks]
            self._awaited[lease.id] = {ip.version for ip in addresses}
            self._echoed[lease.id] = self._now()
            self._number += 1
            for ip in addresses:
                self._leases[ip] = lease
                with suppress(OSError):  # there is no route yet: it is missed, as one that is lost
                    socks[ip.version].sendto(marked_request(ip.version, self._number), (str(ip), 0))

    def _hear(self, sock: socket.socket, version: Family) -> None:
        with suppress(OSError):  # nothing more; or what came back of an echo, which is no answer
            while True:
                data, (host, *_) = sock.recvfrom(_ROOM)
                kind, number = read_marked(version, data)
                lease = self._leases.get(ip_address(host))
                if lease is None:
                    continue
                self._echoed[lease.id] = self._now()
                if kind == REPLY[version] and self._first < number <= self._number:
                    awaited = self._awaited[lease.id]
                    awaited.discard(version)
                    if not awaited:
                        self._answered.add(lease.id)

    def _active(self, socks: Mapping[Family, socket.socket], rtnl: Rtnl) -> set[str]:
        now = self._now()
        try:
            sent = rtnl.fdb_used()
        except OSError:  # the next look sees more
            sent = {}
        for version, sock in socks.items():  # a peer's echo that our kernel has answered, and nobody has read yet
            self._hear(sock, version)
        for lease in self._leases.values():
            echoed = self._echoed[lease.id] + _SAME
            if any(remote in sent and now - sent[remote] > echoed for remote in lease.remotes):
                self._used[lease.id] = now
        return {name for name, used in self._used.items() if now < used + _LATELY}


def _bound(ip: Ip) -> socket.socket:
    """Raises `OSError` while this node does not have the address."""
    sock = icmp.listen(ip.version, (REQUEST[ip.version], REPLY[ip.version]))
    try:
        sock.bind((str(ip), 0))
    except OSError:
        sock.close()
        raise
    return sock
