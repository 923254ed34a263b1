"""IPv4 packets of a relay in Python: segments out of one that the kernel left whole, and one out of segments. Pure.

The rules are those of `relay/split.c` and `relay/join.c`. A sum of 16-bit words in ones' complement is the number that
the bytes make, modulo 65535: for Python that is one division, three times as quick as adding words. A long number is
folded before: a multiple of 16 bits further up, a word means the same.
"""

from functools import cache
from struct import Struct
from typing import Final, NamedTuple

NEEDS_CSUM, DATA_VALID = 1, 2  # virtio_net_hdr.flags
VNET: Final = Struct("=BBHHHH")  # struct virtio_net_hdr of linux/virtio_net.h
MOST: Final = 65535  # bytes of a packet
_TCP4, _UDP4, _ECN = 1, 5, 0x80  # virtio_net_hdr.gso_type
_TCP, _UDP, _ICMP = 6, 17, 1
_FIN, _PUSH, _ACK, _CWR = 0x01, 0x08, 0x10, 0x80
_IP_HEADER: Final = 20
_ALL: Final = 0xFFFF
_MOST_JOINED: Final = 64
_MOST_QUOTED: Final = 576 - 20 - 8  # RFC 1812 section 4.3.2.3
_SILENT_ABOVE: Final = 224  # multicast
_LOOPBACK: Final = 127
_NO_ERRORS: Final = (0, 8, 13, 14)  # ICMP: echo, timestamp, and their replies
_ICMP_HEAD: Final = Struct(">BBHHH")
_SEQUENCE: Final = Struct(">I")
_LONG: Final = 256  # bytes
_LOW_5760, _LOW_2880, _LOW_1440 = ((1 << bits) - 1 for bits in (5760, 2880, 1440))


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
    number = int.from_bytes(data, "big")
    if len(data) > _LONG:
        number = (number >> 5760) + (number & _LOW_5760)
        number = (number >> 2880) + (number & _LOW_2880)
        number = (number >> 1440) + (number & _LOW_1440)
    return (number << 8 if len(data) & 1 else number) % _ALL


def _checksum(total: int, protocol: int = 0) -> bytes:
    """The complement of a sum, as it is written; 0 is as good as 0xFFFF, but in UDP would mean that there is none."""
    number = -total % _ALL
    return (number or _ALL if protocol == _UDP else number).to_bytes(2, "big")


def packet_size(ip: memoryview) -> int:
    """The packet's own length, which its header says; 0 if this is no whole IPv4 packet."""
    if len(ip) < _IP_HEADER or ip[0] >> 4 != 4:
        return 0
    own, header = ip[2] << 8 | ip[3], _header_size(ip)
    return own if _IP_HEADER <= header <= own <= len(ip) else 0


def _header_size(ip: memoryview | bytearray) -> int:
    return (ip[0] & 15) * 4


def header_is_right(ip: memoryview) -> bool:
    """Tell whether the checksum of the header is right."""
    return word_sum(ip[: _header_size(ip)]) == 0


def _is_fragment(ip: memoryview) -> bool:
    return bool((ip[6] << 8 | ip[7]) & 0x3FFF)


def spend_ttl(ip: memoryview) -> bool:
    """Take one from the time to live, and mend the checksum (RFC 1624); False if the packet may not go on."""
    if ip[8] <= 1:
        return False
    ip[8] -= 1
    total = (ip[10] << 8 | ip[11]) + 0x100
    ip[10:12] = (total + (total >= _ALL) & _ALL).to_bytes(2, "big")
    return True


def complete(ip: memoryview, how: Offload) -> bool:
    """Write the checksum that a packet's sender has left to a device; False if it does not say a place."""
    place = how.csum_start + how.csum_offset
    if how.csum_start < _IP_HEADER or place + 2 > len(ip):
        return False
    ip[place : place + 2] = _checksum(word_sum(ip[how.csum_start :]), ip[9])
    return True


def split(ip: memoryview, how: Offload) -> list[tuple[bytes, memoryview]]:
    """Cut a packet that the kernel has left whole: header and content of each; none if `how` does not fit."""
    below, is_tcp = _header_size(ip), how.gso_type & ~_ECN == _TCP4
    least = below + (_IP_HEADER if is_tcp else 8)
    if not (is_tcp or how.gso_type == _UDP4) or len(ip) < least or not how.gso_size or _is_fragment(ip):
        return []
    headers = below + (ip[below + 12] >> 4) * 4 if is_tcp else least
    if ip[9] != (_TCP if is_tcp else _UDP) or headers < least or headers >= len(ip):
        return []
    return _cut(ip, how.gso_size, headers, is_tcp=is_tcp)


@cache
def _headers(below: int, tcp: int) -> Struct:
    """Headers with so many bytes below the transport's, and in all if that is TCP: between what differs, what does not.

    Length, id, checksum; of TCP sequence number, flags, checksum; of UDP length and checksum.
    """
    return Struct(f">2sHH4sH{below - 8}s" + (f"I5sB2sH{tcp - below - 18}s" if tcp else "HH"))


def _cut(ip: memoryview, each: int, headers: int, *, is_tcp: bool) -> list[tuple[bytes, memoryview]]:
    below = _header_size(ip)
    # What is the same in all is summed once: each has another length, id, checksums, sequence number and flags.
    head = _headers(below, headers if is_tcp else 0)
    first, _, identity, third, _, addresses, *transport = head.unpack_from(ip)
    sequence, offset, flags, window, _, options = transport if is_tcp else (0, b"", 0, b"", 0, b"")
    outer_sum = word_sum(first + third + addresses[:-4])
    ports = addresses[-4:]
    inner_sum = _pseudo(ip, 0) + word_sum(ports + offset + b"\0" + window + options)
    found = []
    for number, start in enumerate(range(headers, len(ip), each)):
        content = ip[start : start + each]
        inner = headers - below + len(content)
        length, this = below + inner, identity + number & _ALL
        total = inner_sum + inner + word_sum(content)
        rest: tuple[int | bytes, ...] = (inner, -(total + inner) % _ALL or _ALL)
        if is_tcp:
            here = sequence + number * each & 0xFFFFFFFF
            now = flags if start + each >= len(ip) else flags & ~(_FIN | _PUSH)
            now = now & ~_CWR if number else now
            rest = (here, offset, now, window, -(total + here + now) % _ALL, options)
        outer = -(outer_sum + length + this) % _ALL
        found.append((head.pack(first, length, this, third, outer, addresses, *rest), content))
    return found


def _pseudo(ip: memoryview | bytearray, inner: int) -> int:
    """The sum of what stands for the IP header in TCP's and UDP's checksums (RFC 9293 section 3.1)."""
    return word_sum(ip[12:20]) + ip[9] + inner


class Joined:
    """Packets of one flow that follow each other, as one that is left whole for the kernel."""

    def __init__(self, ip: memoryview) -> None:
        """Begin with a packet as it came; its time to live may be spent afterwards."""
        self._ip = ip
        self._headers = _joinable(ip)
        self._each = len(ip) - self._headers
        self._parts = [ip]
        self._total = len(ip)
        self._is_tcp = ip[9] == _TCP
        self._closed = not self._headers or (self._is_tcp and bool(ip[33] & _PUSH))
        if self._closed:
            return
        self._form = _headers(_IP_HEADER, self._headers if self._is_tcp else 0)
        first, length, identity, third, checksum, addresses, *rest = self._form.unpack_from(ip)
        self._ip_sum = -(length + identity + checksum)  # of all else in a header that is right
        self._same = (first, third, addresses, *(rest[each] for each in (1, 3, 5) if self._is_tcp))
        self._next = rest[0] + self._each
        self._pseudo = _pseudo(ip, 0)

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, ip: memoryview) -> bool:
        """Take one more in, as it came; False if it does not follow."""
        if self._closed:
            return False
        size = len(ip)
        content = size - self._headers
        full = len(self._parts) == _MOST_JOINED or self._total + content > MOST
        if full or not 0 < content <= self._each or not self._follows(ip, size):
            return False
        if (self._pseudo + size - _IP_HEADER + word_sum(ip[_IP_HEADER:])) % _ALL:
            return False
        self._parts.append(ip[self._headers :])
        self._total += content
        self._next += content
        self._closed = content < self._each
        if self._is_tcp and ip[33] & _PUSH:
            self._ip[33] |= _PUSH
            self._closed = True
        return True

    def _follows(self, ip: memoryview, size: int) -> bool:
        """Tell whether only that differs which differs from packet to packet of a flow."""
        first, length, identity, third, checksum, addresses, *rest = self._form.unpack_from(ip)
        if length != size or (self._ip_sum + length + identity + checksum) % _ALL:
            return False
        if not self._is_tcp:
            inner, checksum = rest
            return bool(inner == size - _IP_HEADER and checksum and (first, third, addresses) == self._same)
        sequence, offset, flags, window, _, options = rest
        return bool(
            sequence == self._next & 0xFFFFFFFF
            and flags & ~_PUSH == _ACK
            and (first, third, addresses, offset, window, options) == self._same
        )

    def parts(self) -> list[bytes | memoryview]:
        """What to write to the device. The first packet's headers become those of the whole."""
        if len(self._parts) == 1:
            return [VNET.pack(*(VALID if self._headers else PLAIN)), *self._parts]
        ip, inner = self._ip, self._total - _IP_HEADER
        place = 16 if self._is_tcp else 6
        ip[2:4] = self._total.to_bytes(2, "big")
        ip[10:12] = b"\0\0"
        ip[10:12] = _checksum(word_sum(ip[:_IP_HEADER]))
        if not self._is_tcp:
            ip[24:26] = inner.to_bytes(2, "big")
        ip[20 + place : 22 + place] = ((self._pseudo + inner) % _ALL).to_bytes(2, "big")
        kind = _TCP4 if self._is_tcp else _UDP4
        return [VNET.pack(NEEDS_CSUM, kind, self._headers, self._each, _IP_HEADER, place), *self._parts]


def _joinable(ip: memoryview) -> int:
    """Bytes of the headers of a packet that may be joined, and is right; 0 if it goes alone."""
    size = len(ip)
    if _header_size(ip) != _IP_HEADER or _is_fragment(ip):
        return 0
    if ip[9] == _TCP and size > 2 * _IP_HEADER:
        headers = _IP_HEADER + (ip[32] >> 4) * 4
        if not 2 * _IP_HEADER <= headers < size or ip[33] & ~_PUSH != _ACK:
            return 0
    elif ip[9] == _UDP and size > _IP_HEADER + 8 and ip[24] << 8 | ip[25] == size - _IP_HEADER and any(ip[26:28]):
        headers = _IP_HEADER + 8
    else:
        return 0
    return headers if (_pseudo(ip, size - _IP_HEADER) + word_sum(ip[_IP_HEADER:])) % _ALL == 0 else 0


def icmp_error(ip: memoryview, kind: int, code: int, mtu: int = 0) -> bytes:
    """The ICMP part of an error about a packet; nothing if there must be none (RFC 1122 section 3.2.2)."""
    below = _header_size(ip)
    if (ip[6] << 8 | ip[7]) & 0x1FFF or ip[16] >= _SILENT_ABOVE:
        return b""
    if ip[12] in (0, _LOOPBACK) or ip[12] >= _SILENT_ABOVE:
        return b""
    if ip[9] == _ICMP and (len(ip) <= below or ip[below] not in _NO_ERRORS):
        return b""
    quoted = bytes(ip[:_MOST_QUOTED])
    head = bytearray(_ICMP_HEAD.pack(kind, code, 0, 0, mtu))
    head[2:4] = _checksum(word_sum(head) + word_sum(quoted))
    return bytes(head) + quoted
