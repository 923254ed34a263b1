"""The paths to peers, for a store that wants to know of them: which answer an echo, and which of them pods use now.

Each node has an address for this alone, at which its kernel answers whether its daemon runs or not. A path is in use
if packets went by its forwarding entry that are no echoes, of ours or of the peer.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
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
    """`own` is the address at which this node is asked, `where` that of a lease's node; None while there is none."""

    def __init__(
        self,
        paths: Paths,
        *,
        own: Callable[[], Ip | None],
        where: Callable[[Lease], Ip | None],
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
        self._echoed: dict[str, float] = {}  # by id, when the last echo of either side went by
        self._used: dict[str, float] = {}  # by id, when a pod's packet was seen last
        self._answered = set[str]()

    async def run(self) -> None:
        """Begins again where the node's own block is another, and where its address is not there yet."""
        with Rtnl.open() as rtnl:
            while True:
                if own := self._own():
                    kinds = (REQUEST[own.version], REPLY[own.version])
                    with (
                        icmp.listen(own.version, kinds) as sock,
                        suppress(OSError),
                    ):  # the address comes with the device
                        sock.bind((str(own), 0))
                        await self._serve(sock, own, rtnl)
                await asyncio.sleep(_LOOK)

    async def _serve(self, sock: socket.socket, own: Ip, rtnl: Rtnl) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sock, self._hear, sock, own.version)
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(self._ask(sock, own.version))
                looked = -inf
                while self._own() == own:
                    if self._answered or self._now() >= looked + _LOOK:
                        self._paths.saw(self._answered, self._active(rtnl))
                        self._answered, looked = set(), self._now()
                    await asyncio.sleep(_TURN)
                asking.cancel()
        finally:
            loop.remove_reader(sock)

    async def _ask(self, sock: socket.socket, version: Family) -> None:
        while True:
            lease = await self._paths.next()
            address = self._where(lease)
            if address is None:
                continue
            self._leases[address] = lease
            self._echoed[lease.id] = self._now()
            self._number += 1
            with suppress(OSError):  # there is no route yet: it is missed, as one that is lost
                sock.sendto(marked_request(version, self._number), (str(address), 0))

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
                    self._answered.add(lease.id)

    def _active(self, rtnl: Rtnl) -> set[str]:
        now, sent = self._now(), rtnl.fdb_used()
        for lease in self._leases.values():
            echoed = self._echoed[lease.id] + _SAME
            if any(remote in sent and now - sent[remote] > echoed for remote in lease.remotes):
                self._used[lease.id] = now
        return {name for name, used in self._used.items() if now < used + _LATELY}
