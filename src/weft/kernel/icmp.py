"""Sockets for ICMP, for packets that are never fragmented, and a test whether an address is in use.

icmp(7), ip(7), ipv6(7); linux/icmp.h, linux/icmpv6.h.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.reported import NUD_REACHABLE
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire.icmp import REPLY, echo_request

_SOL_RAW: Final = 255  # linux/socket.h
_ICMP_FILTER: Final = 1  # a bit for each type that is not wanted
_ICMP6_FILTER: Final = 1  # the same, 256 bits
_WORDS: Final = 8
_MTU_DISCOVER: Final = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}  # IP_MTU_DISCOVER, IPV6_MTU_DISCOVER
_RECVERR: Final = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}  # IP_RECVERR, IPV6_RECVERR
_PROBE: Final = 3  # IP_PMTUDISC_PROBE: don't fragment, and believe no path MTU of before
_ERROR: Final = struct.Struct("=IBBBxII")  # linux/errqueue.h: errno, origin, type, code, info, data; then the offender
_LOCAL: Final = 1  # SO_EE_ORIGIN_LOCAL
_ADDRESS: Final = {4: slice(4, 8), 6: slice(8, 24)}  # of sockaddr_in and sockaddr_in6
_ROOM: Final = 512
_POLL_SECONDS: Final = 0.02


def listen(version: int, kinds: Iterable[int]) -> socket.socket:
    """Open a non-blocking socket of a family (4 or 6) for messages of these types. Raises `OSError`."""
    unwanted = [0xFFFFFFFF] * _WORDS
    for kind in kinds:
        unwanted[kind // 32] &= ~(1 << kind % 32)
    if version == 4:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        sock.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", unwanted[0]))
    else:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *unwanted))
    sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
    return sock


class Refusal(Value):
    """A packet was too large for a link of `mtu` bytes; `by` is the router that said so, empty for this kernel."""

    mtu: int
    by: str = ""


def never_fragment(sock: socket.socket, version: int) -> None:
    """Send packets whole, as large as the link may carry, or not at all."""
    sock.setsockopt(*_MTU_DISCOVER[version], _PROBE)


def keep_errors(sock: socket.socket, version: int) -> None:
    """Have the kernel keep the errors that come back, for `refusals`."""
    sock.setsockopt(*_RECVERR[version], 1)


def refusals(sock: socket.socket, version: int) -> list[Refusal]:
    """The refusals of too large packets since the last call."""
    found = list[Refusal]()
    while True:
        try:
            _, ancillary, _, _ = sock.recvmsg(1, _ROOM, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        found += [refusal for level, kind, data in ancillary if (refusal := _refusal(level, kind, data, version))]


def _refusal(level: int, kind: int, data: bytes, version: int) -> Refusal | None:
    if (level, kind) != _RECVERR[version]:
        return None
    number, origin, _, _, mtu, _ = _ERROR.unpack_from(data)
    if number != errno.EMSGSIZE:
        return None
    offender = data[_ERROR.size :][_ADDRESS[version]]
    return Refusal(mtu=mtu, by="" if origin == _LOCAL else str(ip_address(offender)))


async def answers(rtnl: Rtnl, ip: Ip, *, within: float) -> bool:
    """Ask once whether a machine has the address: two nodes may be copies of one disk.

    A host on our segment answers ARP or neighbour discovery whatever its firewall says; one behind a router may answer
    an echo request. No state of other programs changes.
    """
    loop = asyncio.get_running_loop()
    with listen(ip.version, (REPLY[ip.version],)) as echo:
        try:
            # Connected, so that only packets from that address come in.
            echo.connect((str(ip), 0))
            echo.send(echo_request(ip.version, os.getpid() & 0xFFFF, 1))
        except OSError:
            return False  # no way there
        end = loop.time() + within
        while loop.time() < end:
            resolved = any(each.ip == ip and each.state & NUD_REACHABLE for each in rtnl.neighbours())
            if resolved or _has_come(echo):
                return True
            await asyncio.sleep(_POLL_SECONDS)
    return False


def _has_come(echo: socket.socket) -> bool:
    with suppress(OSError):
        return bool(echo.recv(256))
    return False
