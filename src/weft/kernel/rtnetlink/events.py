"""Reads rtnetlink's notices of what others changed (`kernel.rtnetlink.notices`).

When the socket overflows, or a datagram cannot be read, notices are lost: that is `Resync`, and the monitor goes on.
Nothing ends it but closing it.

Our own changes carry our sockets' port (nlmsg_pid) and are dropped. Links, IPv6 addresses, forwarding entries and
removed neighbours always have port 0; a comparison with what is wanted then finds nothing to do.
"""

import asyncio
import ctypes
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from struct import Struct
from typing import Final, NamedTuple

from weft.kernel.rtnetlink import link, neigh, notices, route
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.codec import Devices
from weft.kernel.rtnetlink.netlink import join, messages_in, widen
from weft.kernel.rtnetlink.notices import Notice, NoticeReader, Resync
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.marks import LOCAL_TABLE

log = logging.getLogger(__name__)

# Of these we know all when we caused them. Not of an address: with it go routes that were not deleted.
_SPARED: Final = (
    route.RTM_NEWROUTE,
    route.RTM_DELROUTE,
    neigh.RTM_NEWNEIGH,
    neigh.RTM_DELNEIGH,
)
# RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV4_NETCONF, _IPV6_NETCONF
_GROUPS: Final = (1, 3, 5, 7, 9, 11, 24, 25)
# Room for the notices of 10,000 changes made by others while the event loop is busy.
_RECEIVE_BYTES: Final = 8 << 20
_DATAGRAM: Final = 1 << 16
_TRUNCATED: Final = int(socket.MSG_TRUNC)  # have the kernel tell the whole length of a datagram
# Datagrams read before their notices are handed out, so that a flood does not hold up the event loop.
_BURST: Final = 128
_RETRY_SECONDS: Final = 1.0
_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = Struct("=HBBI")  # struct sock_filter: code, jump if true, jump if false, operand
_PROGRAM: Final = Struct("@HP")  # struct sock_fprog: length, pointer

# BPF_LD with BPF_W, BPF_H or BPF_B, absolute; BPF_JMP BPF_JEQ BPF_K; BPF_RET BPF_K
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
# nlmsg_type and nlmsg_pid in struct nlmsghdr; behind it ifi_family in struct ifinfomsg, rtm_table in struct rtmsg
_TYPE_AT, _PORT_AT, _FAMILY_AT, _TABLE_AT = 4, 12, 16, 20
_SETTING_OF_AT: Final = 24  # NETCONFA_IFINDEX, the first attribute behind struct netconfmsg
_ALL: Final = 0xFFFFFFFF


class Monitor:
    """Asynchronously iterable: each item is a list of notices that came together.

    A second iteration begins with `Resync` and the links of that moment. `known` is what there is to say before the
    first. When nothing of interest was waiting, the next look is `rest` seconds later: a pod's start causes a dozen
    notices while its request needs the processor.
    """

    def __init__(
        self,
        rtnl: Rtnl,
        sock: socket.socket | None = None,
        *,
        devices: Devices,
        uplinks: AbstractSet[str | int],
        ports: AbstractSet[int],
        rest: float = 0.0,
    ) -> None:
        """Take over `sock`, or open one in the calling thread's namespace, which must be that of `rtnl`."""
        self._rtnl = rtnl
        self._reader = NoticeReader(devices=devices, uplinks=uplinks, ports=ports)
        self._socket = sock or socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._buffer = bytearray(_DATAGRAM)
        self._rest = rest
        self._drained = True  # by the last read
        self._astray = False  # the links have changed, and could not be listed since
        self._begun = False
        with ExitStack() as undo:
            undo.callback(self.close)
            if sock is None:
                widen(self._socket, _RECEIVE_BYTES)
            self._socket.setblocking(False)  # noqa: FBT003  that is how socket has it
            if self._socket.getsockname()[0] == 0:
                # Without a port it would get nothing, and binding it later would take it out of the groups.
                self._socket.bind((0, 0))
            spare(self._socket, ports=ports, kinds=_SPARED)
            join(self._socket, *_GROUPS)
            # From here on notices are kept for us, so that nothing falls between the list and the first of them.
            self.known = self._reader.learn(rtnl.links())
            undo.pop_all()

    def close(self) -> None:
        self._socket.close()

    async def __aiter__(self) -> AsyncIterator[list[Notice]]:
        if self._begun:
            yield self._start_over("notices may have been lost")
        self._begun = True
        while True:
            if self._astray:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await self._readable()
            notices = self.read()
            if notices:
                yield notices
            elif self._drained and not self._astray:
                await asyncio.sleep(self._rest)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        number = self._socket.fileno()  # not the socket: to find that it is not registered, asyncio describes it
        readable = loop.create_future()
        loop.add_reader(number, _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(number)

    def read(self) -> list[Notice]:
        """What is waiting, at most a burst of it; never blocks."""
        if self._astray:
            return self._start_over("the links can be listed again")
        notices: list[Notice] = []
        self._drained = False
        for _ in range(_BURST):
            try:
                size, sender = self._socket.recvfrom_into(self._buffer, 0, _TRUNCATED)
                if sender[0] != 0:
                    continue
                if size > len(self._buffer):
                    self._buffer = bytearray(2 * size)
                    return [*notices, *self._start_over("a notice was larger than any before")]
                notices += self._notices(bytes(memoryview(self._buffer)[:size]))
            except BlockingIOError:
                self._drained = True
                break
            except (OSError, Malformed) as error:
                full = isinstance(error, OSError) and error.errno == errno.ENOBUFS
                reason = "the kernel dropped notices" if full else f"notices cannot be read: {error}"
                return [*notices, *self._start_over(reason)]
        return notices

    def _notices(self, datagram: bytes) -> list[Notice]:
        notices: list[Notice] = []
        for message in messages_in(datagram):
            try:
                notices += self._reader.read(message)
            except Malformed as error:
                # A message that we cannot read is not one we asked for: better look at everything than miss something.
                notices.append(Resync(f"a notice cannot be read: {error}"))
        return notices

    def _start_over(self, reason: str) -> list[Notice]:
        """Drop what is waiting, older than the look that `Resync` asks for, and learn the links again."""
        before = self._astray
        try:
            self._drain()
            changed = self._reader.learn(self._rtnl.links())
        except (OSError, Malformed) as error:
            self._astray = True
            if before:
                return []
            changed = []
            log.warning("changes of links, routes and addresses cannot be followed: %s; trying again", error)
        else:
            self._astray = False
        return [Resync(reason), *changed]

    def _drain(self) -> None:
        while True:
            try:
                self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise


def _settle(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


class _Step(NamedTuple):
    """An instruction; labels say where a comparison leads, without one to the next instruction."""

    code: int
    operand: int
    true: str = ""
    false: str = ""
    label: str = ""


def spare(sock: socket.socket, *, ports: Iterable[int], kinds: Iterable[int]) -> None:
    """Filter a socket (linux/filter.h), so that uninteresting messages do not even wake the daemon.

    Drops messages of these types (RTM_…) that our sockets with these `ports` caused: a start with 5,000 peers causes
    20,000, which would fill the buffer. Also drops what pods cause all the time: links as a bridge's ports (family
    AF_BRIDGE), routes of the local table, and settings of one link.
    """
    # The filter loads numbers as a network would send them; netlink's are in the host's order.
    own = [_Step(_IF_EQUAL, socket.htonl(port), true="own") for port in ports]
    spared = [_Step(_IF_EQUAL, socket.htons(kind), true="drop") for kind in kinds]
    program = [
        _Step(_LOAD_HALF, _TYPE_AT),
        *(_Step(_IF_EQUAL, socket.htons(kind), true="link") for kind in (link.RTM_NEWLINK, link.RTM_DELLINK)),
        _Step(_IF_EQUAL, socket.htons(notices.RTM_NEWNETCONF), true="setting"),
        _Step(_IF_EQUAL, socket.htons(notices.RTM_DELNETCONF), true="drop"),
        _Step(_IF_EQUAL, socket.htons(route.RTM_NEWROUTE), true="route"),
        _Step(_IF_EQUAL, socket.htons(route.RTM_DELROUTE), true="route", false="any"),
        _Step(_LOAD_BYTE, _FAMILY_AT, label="link"),
        _Step(_IF_EQUAL, socket.AF_UNSPEC, true="any", false="drop"),
        _Step(_LOAD_WORD, _SETTING_OF_AT, label="setting"),
        _Step(_IF_EQUAL, notices.ALL_LINKS, true="any", false="drop"),
        _Step(_LOAD_BYTE, _TABLE_AT, label="route"),
        _Step(_IF_EQUAL, LOCAL_TABLE, true="drop"),
        _Step(_LOAD_WORD, _PORT_AT, label="any"),
        *own,
        _Step(_RETURN, _ALL),
        _Step(_LOAD_HALF, _TYPE_AT, label="own"),
        *spared,
        _Step(_RETURN, _ALL),
        _Step(_RETURN, 0, label="drop"),
    ]
    code = ctypes.create_string_buffer(_assemble(program))
    # The kernel copies the program before the call returns.
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(code)))


def _assemble(program: list[_Step]) -> bytes:
    places = {step.label: place for place, step in enumerate(program)}

    def distance(place: int, label: str) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        _INSTRUCTION.pack(step.code, distance(place, step.true), distance(place, step.false), step.operand)
        for place, step in enumerate(program)
    )
