"""The plane of links, routes and settings: looks and steps over one rtnetlink socket."""

import asyncio
import errno
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from weft.beside.threads import beside
from weft.desired.inputs import Inputs
from weft.desired.node import devices_of, shared
from weft.kernel import sysctl
from weft.kernel.cooperative import in_turns
from weft.kernel.icmp import answers
from weft.kernel.portholders import with_holder
from weft.kernel.rtnetlink.apply import CHUNK, apply, applying
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.codec import Devices
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.observe import looking
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Failure
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.objects import Key, Object, Objects, Snapshot, Sysctl
from weft.model.kernel.reported import RouteInfo
from weft.model.net import Ip
from weft.model.value import replace
from weft.plan.diff import Put, Step

_MANY: Final = 4 * CHUNK


class NodeKernel:
    """One task at a time uses the socket: its answers are for who asked."""

    kinds = frozenset({"link", "nodelink", "sysctl", "address", "neighbour", "fdb", "route"})
    sweep = 60.0
    announces = True
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self, rtnl: Rtnl) -> None:
        self.rtnl = rtnl
        self._devices: Devices = {}
        self._sysctls: tuple[str, ...] = ()
        self._turn = asyncio.Lock()

    def follow(self, inputs: Inputs) -> None:
        """Look from now on at what this node needs once."""
        self._devices = devices_of(inputs)
        self._sysctls = tuple(thing.name for thing in shared(inputs) if isinstance(thing, Sysctl))

    async def snapshot(self) -> Snapshot:
        """Look at everything but what serves peers."""
        async with self._its_turn():
            return await in_turns(looking(self.rtnl, devices=self._devices, sysctls=self._sysctls, peers=False))

    def forwards(self) -> frozenset[int]:
        """The families (4, 6) in which this machine is a router now."""
        return frozenset(family for family, name in FORWARDING.items() if sysctl.read(name) not in (None, "0"))

    async def addresses(self) -> frozenset[Ip]:
        async with self._its_turn():
            return frozenset(address.ip for address in self.rtnl.addresses())

    async def route_to(self, ip: Ip) -> RouteInfo | None:
        """None if the kernel has no route."""
        async with self._its_turn():
            try:
                return self.rtnl.route_to(ip)
            except NetlinkError:
                return None

    async def answers(self, ip: Ip, *, within: float) -> bool:
        return await answers(self.rtnl, ip, within=within)

    async def look(self, known: Objects, _only: Collection[Key] | None = None, /) -> dict[Key, Object]:
        """See everything that is ours, whatever `_only` names: rtnetlink lists all anyway."""
        async with self._its_turn():
            look = looking(self.rtnl, devices=self._devices, sysctls=self._sysctls, known=known)
            return (await in_turns(look)).ours

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Few steps go in turns with the event loop, many in a thread."""
        async with self._its_turn():
            if len(steps) <= _MANY:
                failures = await in_turns(applying(self.rtnl, steps))
            else:
                failures = await beside(partial(apply, self.rtnl, steps))
        return [await _explained(failure) for failure in failures]

    @asynccontextmanager
    async def _its_turn(self) -> AsyncIterator[None]:
        """What cannot be read is an `OSError`, like any other answer that was lost."""
        async with self._turn:
            try:
                yield
            except Malformed as error:
                raise NetlinkError(errno.EBADMSG, str(error)) from error


async def _explained(failure: Failure) -> Failure:
    """Name who has the port of a device that listens: in a thread, since all processes are looked at."""
    port = failure.step.object.port if isinstance(failure.step, Put) else 0
    if failure.errno == errno.EADDRINUSE and port:
        with suppress(OSError):  # there can be no more threads
            message = await beside(partial(with_holder, failure.message, failure.errno, port))
            return replace(failure, message=message)
    return failure
