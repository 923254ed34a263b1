"""Asks once whether an address is in use, when two nodes may be copies of one disk.

A host on our segment answers ARP or neighbour discovery whatever its firewall says; one behind a router may answer an
echo request. No state of other programs changes.
"""

import asyncio
import os
import socket
import struct
from contextlib import suppress
from typing import Final

from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.net import Ip

_NUD_REACHABLE: Final = 0x02  # linux/neighbour.h
_POLL_SECONDS: Final = 0.02
_ECHO: Final = {4: (socket.IPPROTO_ICMP, 8, 0), 6: (socket.IPPROTO_ICMPV6, 128, 129)}  # protocol, request, reply


async def answers(rtnl: Rtnl, ip: Ip, *, within: float) -> bool:
    """Wait at most `within` seconds; False means that no machine is known to be there."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    protocol, request, reply = _ECHO[ip.version]
    loop = asyncio.get_running_loop()
    with socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol) as echo:
        try:
            # Connected, so that only packets from that address come in.
            echo.connect((str(ip), 0))
            echo.send(_echo_request(request, ip.version))
        except OSError:
            return False  # no way there
        end = loop.time() + within
        while loop.time() < end:
            if _replied(echo, reply, ip.version) or _resolved(rtnl, ip):
                return True
            await asyncio.sleep(_POLL_SECONDS)
    return False


def _echo_request(kind: int, version: int) -> bytes:
    """Without data; the kernel fills in the checksum of ICMPv6 alone (RFC 792, RFC 4443)."""
    identifier = os.getpid() & 0xFFFF
    checksum = 0 if version == 6 else ~((kind << 8) + identifier + 1) % 0x10000
    if version == 4 and (kind << 8) + identifier + 1 > 0xFFFF:
        checksum = (checksum - 1) % 0x10000  # the carry, added back (RFC 1071)
    return struct.pack("!BBHHH", kind, 0, checksum, identifier, 1)


def _replied(echo: socket.socket, kind: int, version: int) -> bool:
    with suppress(OSError):
        while packet := echo.recv(256):
            start = 0 if version == 6 else (packet[0] & 0x0F) * 4  # an IPv4 raw socket shows the IP header
            if len(packet) > start and packet[start] == kind:
                return True
    return False


def _resolved(rtnl: Rtnl, ip: Ip) -> bool:
    return any(each.ip == ip and each.state & _NUD_REACHABLE for each in rtnl.neighbours())
