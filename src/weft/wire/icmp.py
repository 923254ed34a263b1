"""ICMP and ICMPv6 as bytes (RFC 792, RFC 4443): echo requests and replies, and what stands behind an IP header.

A marked request carries a mark and a number, by which it and its answer are known.
"""

import struct
from collections.abc import Mapping
from typing import Final

from weft.model.net import Family

MARK: Final = b"weft lab"
REQUEST: Final[Mapping[int, int]] = {4: 8, 6: 128}
REPLY: Final[Mapping[int, int]] = {4: 0, 6: 129}
UNREACHABLE: Final[Mapping[int, int]] = {4: 3, 6: 1}  # behind its header stands the packet that it is about
NO_NUMBER: Final = -1
IP_HEADER: Final[Mapping[int, int]] = {4: 20, 6: 40}  # bytes, without options
HEADER: Final = struct.Struct("!BBHHH")  # type, code, checksum; of echoes, identifier and sequence
_MARKED: Final = struct.Struct("!8sQ")


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def behind_ip(version: int, packet: bytes) -> bytes:
    """Return what an IP packet carries; of IPv6, all behind the fixed header."""
    return packet[(packet[0] & 0xF) * 4 if version == 4 and packet else IP_HEADER[6] :]


def echo_request(version: int, identifier: int, sequence: int, data: bytes = b"") -> bytes:
    """Return an echo request. The kernel adds ICMPv6's checksum, which covers the addresses too."""
    message = HEADER.pack(REQUEST[version], 0, 0, identifier, sequence) + data
    if version == 6:
        return message
    return message[:2] + checksum(message).to_bytes(2, "big") + message[4:]


def marked(number: int, *, size: int = 0) -> bytes:
    """Return the mark and a number, filled with zeros to at least `size` bytes."""
    return _MARKED.pack(MARK, number).ljust(size, b"\0")


def number_in(data: bytes) -> int:
    """Return the number of data that begins with the mark; else NO_NUMBER."""
    if len(data) < _MARKED.size:
        return NO_NUMBER
    mark, number = _MARKED.unpack_from(data)
    return number if mark == MARK else NO_NUMBER


def marked_request(family: Family, number: int, *, size: int = 0) -> bytes:
    """Return an echo request of at least `size` bytes, filled with zeros."""
    return echo_request(family, number & 0xFFFF, 1, marked(number)).ljust(size, b"\0")


def read_marked(family: Family, data: bytes) -> tuple[int, int]:
    """Return type and number of what a raw socket has received: NO_NUMBER if it has no mark, type 0 if it is empty."""
    if family == 4:
        data = behind_ip(4, data)  # raw IPv4 sockets show the IP header
    return int.from_bytes(data[:1], "big"), number_in(data[HEADER.size :])
