"""Netlink attributes: bytes to values and back (linux/netlink.h, struct nlattr).

Safe on any input: the only error is `Malformed`. Numbers are in the machine's byte order but for `be16`.
"""

import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from weft.model.net import Ip, Mac

AF: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
NESTED: Final = 0x8000  # NLA_F_NESTED
_TYPE_MASK: Final = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER

_HEADER: Final = Struct("=HH")
_U8: Final = Struct("=HHB3x")
_U16: Final = Struct("=HHH2x")
_BE16: Final = Struct("=HH2s2x")
_U32: Final = Struct("=HHI")
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_MAC_LENGTH: Final = 6


class Malformed(ValueError):
    """Bytes that are no netlink attribute, or an attribute of the wrong size."""


class Attributes(dict[int, bytes]):
    """The attributes of one message or nest by number; of a repeated one, the last. Absent ones are None."""

    __slots__ = ()

    def number(self, kind: int) -> int | None:
        """An unsigned number of 1, 2, 4 or 8 bytes."""
        value = self.get(kind)
        if value is None:
            return None
        if len(value) not in (1, 2, 4, 8):
            raise Malformed(f"attribute {kind}: {len(value)} bytes are no number")
        return int.from_bytes(value, sys.byteorder)

    def network_number(self, kind: int) -> int | None:
        value = self.get(kind)
        return None if value is None else int.from_bytes(value, "big")

    def text(self, kind: int) -> str:
        """Empty when absent; bytes that are not UTF-8 survive as surrogates."""
        return c_string(self.get(kind, b""))

    def ip(self, kind: int) -> Ip | None:
        """The length tells the family."""
        value = self.get(kind)
        return None if value is None else address(value)

    def mac(self, kind: int) -> Mac | None:
        """None also for hardware addresses of another length, as tunnels have."""
        value = self.get(kind)
        return Mac(value) if value is not None and len(value) == _MAC_LENGTH else None

    def nest(self, kind: int) -> "Attributes":
        """Empty when it is absent."""
        return parse(self.get(kind, b""))


def parse(data: bytes, offset: int = 0) -> Attributes:
    found = Attributes()
    unpack = _HEADER.unpack_from
    end = len(data)
    while end - offset >= 4:
        length, kind = unpack(data, offset)
        if length < 4 or offset + length > end:
            raise Malformed(f"attribute of {length} bytes where {end - offset} are left")
        found[kind & _TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def c_string(value: bytes) -> str:
    """Without the closing NUL; bytes that are not UTF-8 survive as surrogates."""
    return value.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def find(data: bytes, wanted: int, offset: int = 0) -> bytes | None:
    """The first attribute of this number: cheaper than `parse` where little is wanted."""
    unpack = _HEADER.unpack_from
    end = len(data)
    while end - offset >= 4:
        length, kind = unpack(data, offset)
        if length < 4 or offset + length > end:
            raise Malformed(f"attribute of {length} bytes where {end - offset} are left")
        if kind & _TYPE_MASK == wanted:
            return data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return None


def parse_list(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Like `parse`, one by one and in order, for nests that repeat an attribute."""
    end = len(data)
    while end - offset >= 4:
        length, kind = _HEADER.unpack_from(data, offset)
        if length < 4 or offset + length > end:
            raise Malformed(f"attribute of {length} bytes where {end - offset} are left")
        yield kind & _TYPE_MASK, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def fixed(layout: Struct, data: bytes) -> tuple[int, ...]:
    if len(data) < layout.size:
        raise Malformed(f"message of {len(data)} bytes, at least {layout.size} needed")
    return layout.unpack_from(data)


def address(value: bytes) -> Ip:
    if len(value) == 4:
        return IPv4Address(value)
    if len(value) == 16:
        return IPv6Address(value)
    raise Malformed(f"{len(value)} bytes are no IP address")


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute, padded to four bytes."""
    length = len(value)
    return _HEADER.pack(4 + length, kind) + value + _PADDING[length & 3]


def u8(kind: int, value: int) -> bytes:
    return _U8.pack(5, kind, value)


def u16(kind: int, value: int) -> bytes:
    return _U16.pack(6, kind, value)


def be16(kind: int, value: int) -> bytes:
    """Two bytes in network order (a port)."""
    return _BE16.pack(6, kind, value.to_bytes(2, "big"))


def u32(kind: int, value: int) -> bytes:
    return _U32.pack(8, kind, value)


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode("utf-8", "surrogateescape") + b"\0")


def nest(kind: int, *inner: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(inner))
