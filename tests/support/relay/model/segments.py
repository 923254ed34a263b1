"""What the relay in C is compared with: segments out of a packet, and one packet out of segments. Pure.

The rules are those of `relay/split.c` and `relay/join.c`.
"""

from functools import cache
from struct import Struct
from typing import Final

from tests.support.relay.model.packets import (
    ALL,
    IP_HEADER,
    IPV6_HEADER,
    MOST,
    NEEDS_CSUM,
    PLAIN,
    TCP,
    UDP,
    VALID,
    VNET,
    Offload,
    checksum,
    content_of,
    header_size,
    is_fragment,
    is_v6,
    pseudo,
    word_sum,
)

_TCP4, _TCP6, _UDP, _ECN = 1, 4, 5, 0x80  # virtio_net_hdr.gso_type
_FIN, _PUSH, _ACK, _CWR = 0x01, 0x08, 0x10, 0x80
_TCP_HEADER, _UDP_HEADER = 20, 8
_MOST_HEADERS: Final = 160  # as in relay.h
_MOST_JOINED: Final = 64


def split(ip: memoryview, how: Offload) -> list[tuple[bytes, memoryview]]:
    """Cut a packet that the kernel has left whole: header and content of each; none if `how` does not fit."""
    if is_v6(ip):
        is_tcp = how.gso_type & ~_ECN == _TCP6
        protocol, below = content_of(ip, behind_all=False)
    else:
        is_tcp = how.gso_type & ~_ECN == _TCP4
        protocol, below = ip[9], header_size(ip)
        if is_fragment(ip):
            return []
    least = below + (_TCP_HEADER if is_tcp else _UDP_HEADER)
    if not (is_tcp or how.gso_type == _UDP) or len(ip) < least or not how.gso_size:
        return []
    headers = below + (ip[below + 12] >> 4) * 4 if is_tcp else least
    if protocol != (TCP if is_tcp else UDP) or not least <= headers < len(ip) or headers > _MOST_HEADERS:
        return []
    return _cut(ip, how.gso_size, below, headers, is_tcp=is_tcp)


@cache
def _form(below: int, tcp: int, v6: bool) -> Struct:
    """Headers with so many bytes below the transport's, and in all if that is TCP: between what differs, what does not.

    Length, and of IPv4 id and checksum; of TCP sequence number, flags, checksum; of UDP length and checksum.
    """
    lower = f">4sH{below - 2}s" if v6 else f">2sHH4sH{below - 8}s"
    return Struct(lower + (f"I5sB2sH{tcp - below - 18}s" if tcp else "HH"))


@cache
def _sequence(below: int, tcp: int) -> Struct:
    """The sequence number among headers of so many bytes below TCP, and in all."""
    return Struct(f">{below + 4}xI{tcp - below - 8}x")


@cache
def _alike(below: int, tcp: int, v6: bool, count: int) -> tuple[int, int]:
    """Numbers for `count` headers in a row: the bits that are the same in all of a flow, and the last bit of each."""
    one = bytearray(b"\xff" * tcp)
    differ = [(below + 4, 4), (below + 16, 2)] + ([] if v6 else [(4, 2), (10, 2)])
    for at, size in differ:
        one[at : at + size] = bytes(size)
    last = sum(1 << 8 * tcp * number for number in range(count))
    return int.from_bytes(one, "big") * last, last


def _cut(ip: memoryview, each: int, below: int, headers: int, *, is_tcp: bool) -> list[tuple[bytes, memoryview]]:
    v6 = is_v6(ip)
    # What is the same in all is summed once: each has another length, id, checksums, sequence number and flags.
    head = _form(below, headers if is_tcp else 0, v6)
    identity, third, outer_sum = 0, b"", 0
    if v6:
        first, _, addresses, *transport = head.unpack_from(ip)
    else:
        first, _, identity, third, _, addresses, *transport = head.unpack_from(ip)
        outer_sum = word_sum(first + third + addresses[:-4])
    sequence, offset, flags, window, _, options = transport if is_tcp else (0, b"", 0, b"", 0, b"")
    inner_sum = pseudo(ip, TCP if is_tcp else UDP, 0) + word_sum(addresses[-4:] + offset + b"\0" + window + options)
    found = []
    for number, start in enumerate(range(headers, len(ip), each)):
        content = ip[start : start + each]
        inner = headers - below + len(content)
        total = inner_sum + inner + word_sum(content)
        rest: tuple[int | bytes, ...] = (inner, -(total + inner) % ALL or ALL)
        if is_tcp:
            here = sequence + number * each & 0xFFFFFFFF
            now = flags if start + each >= len(ip) else flags & ~(_FIN | _PUSH)
            now = now & ~_CWR if number else now
            rest = (here, offset, now, window, -(total + here + now) % ALL, options)
        length = below + inner
        if v6:
            made = head.pack(first, length - IPV6_HEADER, addresses, *rest)
        else:
            this = identity + number & ALL
            made = head.pack(first, length, this, third, -(outer_sum + length + this) % ALL, addresses, *rest)
        found.append((made, content))
    return found


class Joined:
    """Packets of one flow that follow each other, as one that is left whole for the kernel."""

    def __init__(self, ip: memoryview, *, udp: bool = True) -> None:
        """Begin with a packet as it came; its time to live may be spent afterwards.

        Kernels before 6.2 take no `udp` that is joined.
        """
        self._ip = ip
        self._headers = _joinable(ip, udp=udp)
        self._each = len(ip) - self._headers
        self._parts = [ip]
        self._total = len(ip)
        self._v6 = is_v6(ip)
        self._below = header_size(ip)
        self._is_tcp = ip[6 if self._v6 else 9] == TCP
        self._flags = self._below + 13
        self._closed = not self._headers or (self._is_tcp and bool(ip[self._flags] & _PUSH))
        if self._closed:
            return
        self._form = _form(self._below, self._headers if self._is_tcp else 0, self._v6)
        self._head = bytes(ip[: self._headers])
        rest = self._begin_ip(ip)
        self._same += tuple(rest[each] for each in (1, 3, 5) if self._is_tcp)
        self._next = rest[0] + self._each
        self._pseudo = pseudo(ip, TCP if self._is_tcp else UDP, 0)

    def _begin_ip(self, ip: memoryview) -> list[int]:
        """Note what is the same in all IP headers; returns the fields behind."""
        self._same: tuple[int | bytes, ...]
        if self._v6:
            first, _, addresses, *rest = self._form.unpack_from(ip)
            self._same = (first, addresses)
        else:
            first, length, identity, third, check, addresses, *rest = self._form.unpack_from(ip)
            self._ip_sum = -(length + identity + check)  # of all else in a header that is right
            self._same = (first, third, addresses)
        return rest

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
        if (self._pseudo + size - self._below + word_sum(ip[self._below :])) % ALL:
            return False
        self._parts.append(ip[self._headers :])
        self._total += content
        self._next += content
        self._closed = content < self._each
        if self._is_tcp and ip[self._flags] & _PUSH:
            self._ip[self._flags] |= _PUSH
            self._closed = True
        return True

    def add_all(self, whole: memoryview, each: int) -> int:
        """Take in packets of `each` bytes of TCP that came as one, all but the last, which may differ.

        They are looked at together, four times as quick as one by one. Returns their number, or 0 if one does not fit:
        which, `add` tells. One sum of all is as good as theirs: a wrong one shows as often in either.
        """
        count = (len(whole) - 1) // each
        if self._closed or not self._is_tcp or each != len(self._ip) or each & 1 or count < 1:
            return 0
        ip, headers, below = self._head, self._headers, self._below
        if len(self._parts) + count > _MOST_JOINED or self._total + count * self._each > MOST:
            return 0
        starts = range(0, count * each, each)
        heads = b"".join([whole[start : start + headers] for start in starts])
        same, last = _alike(below, headers, self._v6, count)
        if int.from_bytes(heads, "big") & same != int.from_bytes(ip, "big") * last & same:
            return 0
        numbers = [number for (number,) in _sequence(below, headers).iter_unpack(heads)]
        if numbers != list(range(self._next, self._next + count * self._each, self._each)):
            return 0
        inner = self._pseudo + each - below + (word_sum(ip[:below]) if self._v6 else 0)
        if (word_sum(whole[: count * each]) + count * inner) % ALL:
            return 0
        self._parts += [whole[start + headers : start + each] for start in starts]
        self._total += count * self._each
        self._next += count * self._each
        return count

    def _follows(self, ip: memoryview, size: int) -> bool:
        """Tell whether only that differs which differs from packet to packet of a flow."""
        same: tuple[int | bytes, ...]
        if self._v6:
            first, length, addresses, *rest = self._form.unpack_from(ip)
            same = (first, addresses)
            if length + IPV6_HEADER != size:
                return False
        else:
            first, length, identity, third, check, addresses, *rest = self._form.unpack_from(ip)
            same = (first, third, addresses)
            if length != size or (self._ip_sum + length + identity + check) % ALL:
                return False
        if not self._is_tcp:
            inner, check = rest
            return bool(inner == size - self._below and check and same == self._same)
        sequence, offset, flags, window, _, options = rest
        return bool(
            sequence == self._next & 0xFFFFFFFF
            and flags & ~_PUSH == _ACK
            and (*same, offset, window, options) == self._same
        )

    def parts(self) -> list[bytes | memoryview]:
        """What to write to the device. The first packet's headers become those of the whole."""
        if len(self._parts) == 1:
            return [VNET.pack(*(VALID if self._headers else PLAIN)), *self._parts]
        ip, below = self._ip, self._below
        inner = self._total - below
        place = 16 if self._is_tcp else 6
        if self._v6:
            ip[4:6] = inner.to_bytes(2, "big")
        else:
            ip[2:4] = self._total.to_bytes(2, "big")
            ip[10:12] = b"\0\0"
            ip[10:12] = checksum(word_sum(ip[:IP_HEADER]))
        if not self._is_tcp:
            ip[below + 4 : below + 6] = inner.to_bytes(2, "big")
        ip[below + place : below + place + 2] = ((self._pseudo + inner) % ALL).to_bytes(2, "big")
        kind = (_TCP6 if self._v6 else _TCP4) if self._is_tcp else _UDP
        return [VNET.pack(NEEDS_CSUM, kind, self._headers, self._each, below, place), *self._parts]


def _joinable(ip: memoryview, *, udp: bool) -> int:
    """Bytes of the headers of a packet that may be joined, and is right; 0 if it goes alone."""
    size, below = len(ip), header_size(ip)
    protocol = ip[6] if is_v6(ip) else ip[9]
    if not is_v6(ip) and (below != IP_HEADER or is_fragment(ip)):
        return 0
    if protocol == TCP and size > below + _TCP_HEADER:
        headers = below + (ip[below + 12] >> 4) * 4
        if not below + _TCP_HEADER <= headers < size or ip[below + 13] & ~_PUSH != _ACK:
            return 0
    elif udp and protocol == UDP and size > below + _UDP_HEADER and _udp_says(ip, size - below):
        headers = below + _UDP_HEADER
    else:
        return 0
    return headers if (pseudo(ip, protocol, size - below) + word_sum(ip[below:])) % ALL == 0 else 0


def _udp_says(ip: memoryview, inner: int) -> bool:
    """Tell whether a UDP header says this length, and has a checksum."""
    at = len(ip) - inner
    return ip[at + 4] << 8 | ip[at + 5] == inner and any(ip[at + 6 : at + 8])
