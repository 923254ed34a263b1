"""Sockets whose packets are never fragmented, and what is said of one that is too large (ip(7), ipv6(7))."""

import errno
import socket
import struct
from ipaddress import ip_address
from typing import Final

from weft.model.value import Value

_MTU_DISCOVER: Final = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}  # IP_MTU_DISCOVER, IPV6_MTU_DISCOVER
_RECVERR: Final = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}  # IP_RECVERR, IPV6_RECVERR
_PROBE: Final = 3  # IP_PMTUDISC_PROBE: don't fragment, and believe no path MTU of before
_ERROR: Final = struct.Struct("=IBBBxII")  # linux/errqueue.h: errno, origin, type, code, info, data; then the offender
_LOCAL: Final = 1  # SO_EE_ORIGIN_LOCAL
_ADDRESS: Final = {4: slice(4, 8), 6: slice(8, 24)}  # of sockaddr_in and sockaddr_in6
_ROOM: Final = 512


class Refusal(Value):
    """A packet was too large for a link of `mtu` bytes. `by` is the router that said so, empty for this kernel."""

    mtu: int
    by: str = ""


def never_fragment(sock: socket.socket, version: int) -> None:
    """Send packets whole, as large as the link may carry, or not at all. `version` is 4 or 6."""
    sock.setsockopt(*_MTU_DISCOVER[version], _PROBE)


def keep_errors(sock: socket.socket, version: int) -> None:
    """Have the kernel keep the errors that come back to a socket, for `refusals`."""
    sock.setsockopt(*_RECVERR[version], 1)


def refusals(sock: socket.socket, version: int) -> list[Refusal]:
    """What was said of too large packets since the last call."""
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
