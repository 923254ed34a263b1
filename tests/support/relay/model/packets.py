"""What the relay in C is compared with: IPv4 and IPv6 packets, checksums, and errors about packets. Pure.

What `relay/packet.c` and `relay/icmp.c` do. A sum of 16-bit words in ones' complement is the number that the bytes
make, modulo 65535: for Python that is one division, three times as quick as adding words. A long number is folded
before: a multiple of 16 bits further up, a word means the same. For the same reason many bytes are added in pieces.
"""

from struct import Struct
from typing import Final, NamedTuple

NEEDS_CSUM, DATA_VALID = 1, 2  # virtio_net_hdr.flags
VNET: Final = Struct("=BBHHHH")  # struct virtio_net_hdr of linux/virtio_net.h
MOST: Final = 65535  # bytes of a packet
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
IP_HEADER, IPV6_HEADER = 20, 40
LEAST_MTU: Final = 1280  # of IPv6 (RFC 8200 section 5)
UNREACHABLE, TOO_BIG, TIME_EXCEEDED = range(3)  # errors
ALL: Final = 0xFFFF
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _OPTIONS = 0, 43, 44, 60
_KINDS: Final = ((3, 0), (3, 4), (11, 0))  # RFC 792: type and code by error
_KINDS_V6: Final = ((1, 0), (2, 0), (3, 0))  # RFC 4443 section 3
_MOST_QUOTED: Final = 576 - 20 - 8  # RFC 1812 section 4.3.2.3
_MOST_QUOTED_V6: Final = LEAST_MTU - 40 - 8  # RFC 4443 section 2.4 (c)
_SILENT_ABOVE: Final = 224  # multicast
_LOOPBACK: Final = 127
_NO_ERRORS: Final = (0, 8, 13, 14)  # ICMP: echo, timestamp, and their replies
_NO_ERRORS_ABOVE: Final = 128  # ICMPv6
_REDIRECT: Final = 137
_ICMP_HEAD: Final = Struct(">BBHI")
_LONG: Final = 256  # bytes
_PIECE: Final = 5760  # bytes
_FOLDS: Final = tuple((720 << times, (1 << (720 << times)) - 1) for times in range(5, -1, -1))
_FOLDS_OF_PACKET: Final = _FOLDS[2:]
_PACKET: Final = 2880  # bytes


class Offload(NamedTuple):
    """What stands before a packet of the device: struct virtio_net_hdr."""

    flags: int
    gso_type: int
    header_size: int
    gso_size: int
    csum_start: int
    csum_offset: int


PLAIN: Final = Offload(0, 0, 0, 0, 0, 0)
VALID: Final = Offload(DATA_VALID, 0, 0, 0, 0, 0)


def word_sum(data: bytes | bytearray | memoryview) -> int:
    """Return the sum of the 16-bit words, an odd byte last; only its rest modulo 65535 means anything."""
    size = len(data)
    if size > _PIECE:
        rest = size % _PIECE
        pieces = [int.from_bytes(data[at : at + _PIECE], "big") for at in range(rest, size, _PIECE)]
        number = sum(pieces, int.from_bytes(data[:rest], "big"))
    else:
        number = int.from_bytes(data, "big")
    if size > _LONG:
        for bits, low in _FOLDS_OF_PACKET if size <= _PACKET else _FOLDS:
            number = (number >> bits) + (number & low)
    return (number << 8 if size & 1 else number) % ALL


def checksum(total: int, *, is_udp: bool = False) -> bytes:
    """The complement of a sum, as it is written; 0 is as good as 0xFFFF, but in UDP would mean that there is none."""
    number = -total % ALL
    return (number or ALL if is_udp else number).to_bytes(2, "big")


def is_v6(ip: memoryview | bytearray) -> bool:
    """Tell which of both it is."""
    return ip[0] >> 4 == 6


def packet_size(ip: memoryview) -> int:
    """The packet's own length, which its header says; 0 if this is no whole packet."""
    if len(ip) >= IPV6_HEADER and is_v6(ip):
        own = IPV6_HEADER + (ip[4] << 8 | ip[5])
        return own if own <= len(ip) else 0
    if len(ip) < IP_HEADER or ip[0] >> 4 != 4:
        return 0
    own, header = ip[2] << 8 | ip[3], header_size(ip)
    return own if IP_HEADER <= header <= own <= len(ip) else 0


def header_size(ip: memoryview | bytearray) -> int:
    """Bytes of the IP header, without IPv6's extension headers."""
    return IPV6_HEADER if is_v6(ip) else (ip[0] & 15) * 4


def header_is_right(ip: memoryview) -> bool:
    """Tell whether the checksum of the header is right; IPv6 has none."""
    return is_v6(ip) or word_sum(ip[: header_size(ip)]) == 0


def is_fragment(ip: memoryview) -> bool:
    """Tell whether an IPv4 packet is a part of one."""
    return bool((ip[6] << 8 | ip[7]) & 0x3FFF)


def content_of(ip: memoryview, *, behind_all: bool) -> tuple[int, int]:
    """What an IPv6 packet carries behind headers with options, and with `behind_all` those for routing and fragments.

    Its protocol, and where it begins, which may be behind the end. A later fragment carries none that is known.
    """
    following, at = ip[6], IPV6_HEADER
    skipped = (_HOP_BY_HOP, _OPTIONS, _ROUTING, _FRAGMENT) if behind_all else (_HOP_BY_HOP, _OPTIONS)
    while following in skipped:
        if at + 8 > len(ip) or (following == _FRAGMENT and (ip[at + 2] << 8 | ip[at + 3]) & 0xFFF8):
            break
        size = 8 if following == _FRAGMENT else (ip[at + 1] + 1) * 8
        following = ip[at]
        at += size
    return following, at


def is_local(ip: memoryview) -> bool:
    """Tell whether an IPv6 packet has an address that means nothing to another node: it goes to no peer."""
    return is_v6(ip) and (_means_nothing_there(ip[8:24]) or _means_nothing_there(ip[24:40]))


def _means_nothing_there(address: memoryview) -> bool:
    """Multicast, link-local, none, this machine (RFC 4291 sections 2.5 and 2.7), or IPv4's in a header that is not."""
    if address[0] == 0xFF or (address[0] == 0xFE and address[1] & 0xC0 == 0x80):
        return True
    number = int.from_bytes(address, "big")
    return number <= 1 or number >> 32 == ALL


def spend_ttl(ip: memoryview) -> bool:
    """Take one from the time to live, and mend the checksum (RFC 1624); False if the packet may not go on."""
    place = 7 if is_v6(ip) else 8
    if ip[place] <= 1:
        return False
    ip[place] -= 1
    if place == 8:
        total = (ip[10] << 8 | ip[11]) + 0x100
        ip[10:12] = (total + (total >= ALL) & ALL).to_bytes(2, "big")
    return True


def complete(ip: memoryview, how: Offload) -> bool:
    """Write the checksum that a packet's sender has left to a device; False if it does not say a place."""
    place = how.csum_start + how.csum_offset
    if how.csum_start < (IPV6_HEADER if is_v6(ip) else IP_HEADER) or place + 2 > len(ip):
        return False
    # Behind extension headers the place tells UDP from TCP and ICMPv6.
    is_udp = how.csum_offset == 6 if is_v6(ip) else ip[9] == UDP
    ip[place : place + 2] = checksum(word_sum(ip[how.csum_start :]), is_udp=is_udp)
    return True


def pseudo(ip: memoryview | bytearray, protocol: int, inner: int) -> int:
    """The sum of what stands for the IP header in the checksum of `inner` bytes (RFC 9293 3.1, RFC 8200 8.1)."""
    return word_sum(ip[8:40] if is_v6(ip) else ip[12:20]) + protocol + inner


def icmp_error(ip: memoryview, error: int, mtu: int = 0) -> bytes:
    """The ICMP or ICMPv6 part of an error about a packet; nothing if there must be none (RFC 1122 section 3.2.2).

    The kernel writes the checksum of ICMPv6.
    """
    if is_v6(ip):
        return b"" if _is_silent_v6(ip) else _ICMP_HEAD.pack(*_KINDS_V6[error], 0, mtu) + bytes(ip[:_MOST_QUOTED_V6])
    if _is_silent(ip):
        return b""
    quoted = bytes(ip[:_MOST_QUOTED])
    head = bytearray(_ICMP_HEAD.pack(*_KINDS[error], 0, mtu & ALL))
    head[2:4] = checksum(word_sum(head) + word_sum(quoted))
    return bytes(head) + quoted


def _is_silent(ip: memoryview) -> bool:
    """Tell whether nobody may be told of it: an error about an error, or to no single host."""
    below = header_size(ip)
    if (ip[6] << 8 | ip[7]) & 0x1FFF or ip[16] >= _SILENT_ABOVE:
        return True
    if ip[12] in (0, _LOOPBACK) or ip[12] >= _SILENT_ABOVE:
        return True
    return ip[9] == ICMP and (len(ip) <= below or ip[below] not in _NO_ERRORS)


def _is_silent_v6(ip: memoryview) -> bool:
    """The same of IPv6: no error about an error or a redirect (RFC 4443 section 2.4 (e))."""
    if is_local(ip):
        return True
    protocol, at = content_of(ip, behind_all=True)
    return protocol == ICMP6 and (at >= len(ip) or ip[at] < _NO_ERRORS_ABOVE or ip[at] == _REDIRECT)
