"""IPv4 packets of a relay in Python: segments out of one that the kernel left whole, and one out of segments. Pure.

The rules are those of `relay/split.c` and `relay/join.c`. A sum of 16-bit words in ones' complement is the number that
the bytes make, modulo 65535: for Python that is one division, three times as quick as adding words.
"""

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
_WORD: Final = Struct(">H")
_TWO_WORDS: Final = Struct(">HH")
_SEQUENCE: Final = Struct(">I")


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


def _cut(ip: memoryview, each: int, headers: int, *, is_tcp: bool) -> list[tuple[bytes, memoryview]]:
    below, head = _header_size(ip), bytearray(ip[:headers])
    place = below + (16 if is_tcp else 6)
    identity = ip[4] << 8 | ip[5]
    sequence = _SEQUENCE.unpack_from(ip, below + 4)[0] if is_tcp else 0
    last = ip[below + 13] if is_tcp else 0
    first = last & ~(_FIN | _PUSH)
    # What is the same in all is summed once: each has another length, id, checksums, sequence number and flags.
    head[2:6] = bytes(4)
    head[10:12] = head[place : place + 2] = bytes(2)
    if is_tcp:
        head[below + 4 : below + 8] = bytes(4)
        head[below + 13] = 0
    else:
        head[below + 4 : below + 6] = bytes(2)
    outer_sum, inner_sum = word_sum(head[:below]), _pseudo(head, 0) + word_sum(head[below:])
    found = []
    for number, start in enumerate(range(headers, len(ip), each)):
        content = ip[start : start + each]
        inner = headers - below + len(content)
        length, this = below + inner, identity + number & _ALL
        _TWO_WORDS.pack_into(head, 2, length, this)
        _WORD.pack_into(head, 10, -(outer_sum + length + this) % _ALL)
        if is_tcp:
            here = sequence + number * each & 0xFFFFFFFF
            flags = last if start + each >= len(ip) else first
            flags = flags & ~_CWR if number else flags
            _SEQUENCE.pack_into(head, below + 4, here)
            head[below + 13] = flags
            total = -(inner_sum + inner + here + flags + word_sum(content)) % _ALL
        else:
            _WORD.pack_into(head, below + 4, inner)
            total = -(inner_sum + inner + inner + word_sum(content)) % _ALL or _ALL
        _WORD.pack_into(head, place, total)
        found.append((bytes(head), content))
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
        self._next = _SEQUENCE.unpack_from(ip, 24)[0] + self._each if self._is_tcp and self._headers else 0
        self._head = bytes(ip[: self._headers])
        self._pseudo = _pseudo(ip, 0)

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, ip: memoryview) -> bool:
        """Take one more in, as it came; False if it does not follow."""
        if self._closed:
            return False
        head, size = bytes(ip[: self._headers]), len(ip)
        content = size - self._headers
        full = len(self._parts) == _MOST_JOINED or self._total + content > MOST
        if full or not 0 < content <= self._each or not self._follows(head, size):
            return False
        if word_sum(head[:_IP_HEADER]) or (self._pseudo + size - _IP_HEADER + word_sum(ip[_IP_HEADER:])) % _ALL:
            return False
        self._parts.append(ip[self._headers :])
        self._total += content
        self._next += content
        self._closed = content < self._each
        if self._is_tcp and head[33] & _PUSH:
            self._ip[33] |= _PUSH
            self._closed = True
        return True

    def _follows(self, head: bytes, size: int) -> bool:
        """Tell whether only that differs which differs from packet to packet of a flow."""
        mine = self._head
        if mine[:2] != head[:2] or mine[6:10] != head[6:10] or mine[12:24] != head[12:24]:
            return False
        if head[2] << 8 | head[3] != size:
            return False
        if not self._is_tcp:
            return head[24] << 8 | head[25] == size - _IP_HEADER and head[26:28] != b"\0\0"
        return (
            _SEQUENCE.unpack_from(head, 24)[0] == self._next & 0xFFFFFFFF
            and mine[28:33] == head[28:33]
            and head[33] & ~_PUSH == _ACK
            and mine[34:36] == head[34:36]
            and mine[38:] == head[38:]
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
