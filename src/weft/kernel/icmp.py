"""Raw sockets for some kinds of ICMP or ICMPv6 messages (icmp(7); linux/icmp.h, linux/icmpv6.h)."""

import socket
import struct
from collections.abc import Iterable
from typing import Final

_SOL_RAW: Final = 255  # linux/socket.h
_ICMP_FILTER: Final = 1  # a bit for each type that is not wanted
_ICMP6_FILTER: Final = 1  # the same, 256 bits
_WORDS: Final = 8


def listen(version: int, kinds: Iterable[int]) -> socket.socket:
    """Open a non-blocking socket of a family (4 or 6) for messages of these types alone. Raises `OSError`."""
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
