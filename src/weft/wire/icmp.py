"""Echo requests of our own: as bytes, with a mark and a number, by which they and their answers are known."""

import struct
from collections.abc import Mapping
from typing import Final

from weft.model.net import Family

MARK: Final = b"weft lab"
REQUEST: Final[Mapping[Family, int]] = {4: 8, 6: 128}
REPLY: Final[Mapping[Family, int]] = {4: 0, 6: 129}
NO_NUMBER: Final = -1
# Type, code, checksum, identifier, sequence (RFC 792, RFC 4443 §4), then our mark and the probe's number.
_PROBE: Final = struct.Struct("!BBHHH8sQ")


def echo_request(family: Family, number: int, *, size: int = 0) -> bytes:
    """Return an echo request of at least `size` bytes, filled with zeros.

    The kernel adds ICMPv6's checksum, because that covers the addresses too.
    """
    blank = _PROBE.pack(REQUEST[family], 0, 0, number & 0xFFFF, 1, MARK, number)
    if family == 6:
        return blank.ljust(size, b"\0")
    total = sum(struct.unpack(f"!{len(blank) // 2}H", blank))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return _PROBE.pack(REQUEST[family], 0, checksum, number & 0xFFFF, 1, MARK, number).ljust(size, b"\0")


def read_echo(family: Family, data: bytes) -> tuple[int, int]:
    """Return type and number of what a raw socket has received; the number is NO_NUMBER if it is none of ours."""
    if family == 4:
        data = data[(data[0] & 0xF) * 4 :]  # raw IPv4 sockets show the IP header
    if len(data) < _PROBE.size:
        return 0, NO_NUMBER
    kind, _, _, _, _, mark, number = _PROBE.unpack_from(data)
    return kind, number if mark == MARK else NO_NUMBER
