"""rtnetlink's notices, in the terms of the model: what someone else changed.

Notices do not announce everything. When a link goes down or loses an IPv4 address, the kernel takes the IPv4
routes on it along without one RTM_DELROUTE (IPv6 routes get theirs); when its carrier goes, the next-hop objects on
it and the routes that name them (nh_netdev_event): that is `Lost`. A new MAC drops all neighbours, with a notice
each. When the socket overflows, notices are gone for good: that is `Resync`, and the monitor goes on. It keeps no
picture of the network beyond the names of links.

Our own changes come back with our sockets' port (nlmsg_pid) and are dropped. Not all do: links, IPv6 addresses,
forwarding entries and removed neighbours come with port 0 whoever changed them. They say what we have just
made, so whoever compares them with what is wanted finds nothing to do.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Self

from weft.kernel import addr, codec, link, neigh, nexthop, route
from weft.kernel.attributes import Malformed, fixed
from weft.kernel.netlink import NLM_F_REPLACE, Reply, messages_in
from weft.kernel.observe import is_ours
from weft.kernel.ownfilter import drop_own
from weft.kernel.rtnl import Rtnl
from weft.model.objects import MAIN_TABLE, PROTOCOL, Key, Object
from weft.model.snapshot import LinkInfo

# Of these we know all when we caused them. Not of an address: with it go routes that nobody deleted.
_SPARED: Final = (
    route.RTM_NEWROUTE,
    route.RTM_DELROUTE,
    neigh.RTM_NEWNEIGH,
    neigh.RTM_DELNEIGH,
    nexthop.RTM_NEWNEXTHOP,
    nexthop.RTM_DELNEXTHOP,
)
_SOL_NETLINK: Final = 270
_NETLINK_ADD_MEMBERSHIP: Final = 1
_SO_RCVBUFFORCE: Final = 33
# RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE, _NEXTHOP
_GROUPS: Final = (1, 3, 5, 7, 9, 11, 32)
# Room for the notices of 10,000 changes made by others while the event loop is busy.
_RECEIVE_BYTES: Final = 8 << 20
_DATAGRAM: Final = 1 << 16
# Datagrams read before their notices are handed out, so that a flood does not hold up the event loop.
_BURST: Final = 128
_PROTOCOL_AT: Final = 5  # rtm_protocol in struct rtmsg


@dataclass(frozen=True, slots=True)
class Seen:
    """Someone changed the object of `key` to `thing`; None if it is gone or no longer ours."""

    key: Key
    thing: Object | None


@dataclass(frozen=True, slots=True)
class Lost:
    """All that sat on the link `dev` is unknown: it went down, went away (`index` tells which) or lost an address.

    Or its carrier went, or is back: then what could not be put back meanwhile can be.
    """

    dev: str
    index: int


@dataclass(frozen=True, slots=True)
class UplinkChanged:
    """The link `dev`, its addresses or the foreign routes on it changed: facts may have to be computed again."""

    dev: str


@dataclass(frozen=True, slots=True)
class Resync:
    """Notices were lost; everything has to be looked at again."""


Notice = Seen | Lost | UplinkChanged | Resync


class Monitor:
    """Iterate over it asynchronously: each item is a list of notices that came together.

    `devices` are the names of links that are ours whatever their alias, `uplinks` those that carry traffic
    between nodes, `ports` the netlink ports of our own sockets. The first two are read anew with each notice.
    """

    def __init__(
        self,
        rtnl: Rtnl,
        sock: socket.socket,
        *,
        devices: AbstractSet[str],
        uplinks: AbstractSet[str],
        ports: AbstractSet[int],
    ) -> None:
        """Take over `sock`, in the namespace of `rtnl`, through which links are listed."""
        self._rtnl = rtnl
        self._links: dict[int, LinkInfo] = {}
        self._names: dict[int, str] = {}
        self._socket = sock
        self._devices = devices
        self._uplinks = uplinks
        self._ports = ports
        self._buffer = bytearray(_DATAGRAM)
        self._readers: dict[int, Callable[[Reply], Iterator[Notice]]] = {
            link.RTM_NEWLINK: self._new_link,
            link.RTM_DELLINK: self._deleted_link,
            addr.RTM_NEWADDR: self._address,
            addr.RTM_DELADDR: self._address,
            route.RTM_NEWROUTE: self._route,
            route.RTM_DELROUTE: self._route,
            neigh.RTM_NEWNEIGH: self._neighbour,
            neigh.RTM_DELNEIGH: self._neighbour,
            nexthop.RTM_DELNEXTHOP: self._nexthop_gone,
        }
        sock.setblocking(False)  # noqa: FBT003  that is how socket has it
        if sock.getsockname()[0] == 0:
            # Without a port it would get nothing, and binding it later would take it out of the groups.
            sock.bind((0, 0))
        drop_own(sock, ports=ports, kinds=_SPARED)
        for group in _GROUPS:
            sock.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
        # From here on notices are kept for us, so that nothing falls between the list and the first of them.
        self._list_links()

    @classmethod
    def open(cls, rtnl: Rtnl, *, devices: AbstractSet[str], uplinks: AbstractSet[str], ports: AbstractSet[int]) -> Self:
        """Open a monitor in the calling thread's namespace, which must be that of `rtnl`."""
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        try:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
            except PermissionError:  # in a user namespace the machine's limit holds (net.core.rmem_max)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            return cls(rtnl, sock, devices=devices, uplinks=uplinks, ports=ports)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def __aiter__(self) -> AsyncIterator[list[Notice]]:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._socket, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                notices = self.read()
                if notices:
                    yield notices
        finally:
            loop.remove_reader(self._socket)

    def read(self) -> list[Notice]:
        """What is waiting, at most a burst of it; never blocks."""
        notices: list[Notice] = []
        for _ in range(_BURST):
            try:
                size, sender = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return self._overflown()
            if sender[0] == 0:
                for message in messages_in(bytes(memoryview(self._buffer)[:size])):
                    notices += self._notices(message)
        return notices

    def _overflown(self) -> list[Notice]:
        """Throw away what is waiting, older than the look that `Resync` asks for, and learn the links' names."""
        while True:
            try:
                self._socket.recv_into(self._buffer)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
        self._list_links()
        return [Resync()]

    def _notices(self, message: Reply) -> Iterator[Notice]:
        # A message that we cannot read is not one we asked for: better look at everything than miss something.
        reader = self._readers.get(message.kind)
        if reader is None:
            return
        try:
            yield from reader(message)
        except Malformed:
            yield Resync()

    def _new_link(self, message: Reply) -> Iterator[Notice]:
        if message.body[0] != socket.AF_UNSPEC:
            return  # a bridge speaking of its port
        now = link.parse_link(message.body)
        before = self._links.get(now.index)
        self._links[now.index] = now
        self._names[now.index] = now.name
        if before is not None and _is_shaken(before, now) and self._watched(before):
            yield Lost(before.name, now.index)
        if before is not None and before.name != now.name and is_ours(before, self._devices):
            yield Seen(("link", before.name), None)
        if is_ours(now, self._devices):
            yield Seen(("link", now.name), codec.decode_link(now, self._names))
        if now.name in self._uplinks and (before is None or _facts(before) != _facts(now)):
            yield UplinkChanged(now.name)

    def _deleted_link(self, message: Reply) -> Iterator[Notice]:
        if message.body[0] != socket.AF_UNSPEC:
            return
        gone = link.parse_link(message.body)
        self._links.pop(gone.index, None)
        self._names.pop(gone.index, None)
        if self._watched(gone):
            yield Lost(gone.name, gone.index)
        if is_ours(gone, self._devices):
            yield Seen(("link", gone.name), None)
        if gone.name in self._uplinks:
            yield UplinkChanged(gone.name)

    def _address(self, message: Reply) -> Iterator[Notice]:
        info = addr.parse_address(message.body)
        on = self._links.get(info.index)
        if on is None or not self._watched(on):
            return
        gone = message.kind == addr.RTM_DELADDR
        if gone and info.ip.version == 4:
            yield Lost(on.name, on.index)  # ours too: the kernel took routes that we did not delete
        if info.scope != 0:
            return
        if is_ours(on, self._devices) and message.port not in self._ports:
            key, thing = codec.decode_address(info, on.name)
            yield Seen(key, None if gone else thing)
        if on.name in self._uplinks:
            yield UplinkChanged(on.name)

    def _route(self, message: Reply) -> Iterator[Notice]:
        body = message.body
        gone = message.kind == route.RTM_DELROUTE
        _, prefixlen, _, _, _, protocol, _, _, flags = fixed(route.RTMSG, body)
        if flags & route.RTM_F_CLONED:
            return
        if protocol == PROTOCOL:
            key, thing = codec.decode_route(body, self._names)
            yield Seen(key, None if gone else thing)
            return
        if not gone and message.flags & NLM_F_REPLACE:
            # Someone's route took the place of another, perhaps of ours, which gets no notice of its own.
            yield Seen(codec.decode_route(body, {})[0], None)
        info = route.parse_route(body)
        on = self._links.get(info.index)
        if info.table == MAIN_TABLE and (prefixlen == 0 or (on is not None and on.name in self._uplinks)):
            yield UplinkChanged(on.name if on is not None else "")

    def _neighbour(self, message: Reply) -> Iterator[Notice]:
        family, index = neigh.family_and_index(message.body)
        on = self._links.get(index)
        if on is None or not is_ours(on, self._devices):
            return
        decode = codec.decode_fdb if family == socket.AF_BRIDGE else codec.decode_neighbour
        key, thing = decode(message.body, on.name)
        yield Seen(key, None if message.kind == neigh.RTM_DELNEIGH else thing)

    def _nexthop_gone(self, message: Reply) -> Iterator[Notice]:
        """A deleted next-hop object takes its routes along without a notice for them."""
        _, protocol, index = nexthop.parse_nexthop(message.body)
        if protocol == PROTOCOL:
            yield Lost(self._names.get(index, ""), index)

    def _watched(self, info: LinkInfo) -> bool:
        return info.name in self._uplinks or is_ours(info, self._devices)

    def _list_links(self) -> None:
        self._links = {info.index: info for info in self._rtnl.links()}
        self._names = {index: info.name for index, info in self._links.items()}


def _is_shaken(before: LinkInfo, now: LinkInfo) -> bool:
    """Tell whether what sat on a link may have gone without a notice; on one that just comes up nothing sat."""
    carrier = before.up and now.up and before.running != now.running
    return before.name != now.name or (before.up and not now.up) or carrier


def _facts(info: LinkInfo) -> tuple[object, ...]:
    """What of an uplink decides about anything of ours."""
    return info.index, info.mtu, info.up, info.running, info.mac
