"""The first packets of connections, as bytes: whole packets of IPv4 and IPv6, with a mark by which they are known."""

import socket
import struct
from ipaddress import ip_address

MARK = b"weft"
NUMBERS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
_ECHO = {4: (socket.IPPROTO_ICMP, 8), 6: (socket.IPPROTO_ICMPV6, 128)}
_SYN = 5 << 12 | 2  # the header's length in words, and the flag


def first_packet(source: str, target: str, protocol: str, port: int, number: int) -> bytes:
    """Of a connection to the port; `number` is in it, behind `MARK`, and gives its own port."""
    ends = tuple(ip_address(each).packed for each in (source, target))
    version = ip_address(source).version
    mark, own = MARK + number.to_bytes(4, "big"), 1024 + number % 60000
    kind, echo = _ECHO[version]
    kind = NUMBERS.get(protocol, kind)
    if protocol == "TCP":
        inside = _summed(ends, kind, struct.pack("!HHIIHHHH", own, port, 1, 0, _SYN, 1024, 0, 0) + mark, at=16)
    elif protocol == "UDP":
        inside = _summed(ends, kind, struct.pack("!HHHH", own, port, 8 + len(mark), 0) + mark, at=6)
    elif protocol == "SCTP":
        # INIT: its tag and its window are the mark; two streams each way.
        chunk = struct.pack("!BBH", 1, 0, 20) + mark + struct.pack("!HHI", 2, 2, 1)
        inside = struct.pack("!HHII", own, port, 0, 0) + chunk
        inside = inside[:8] + struct.pack("<I", _crc32c(inside)) + inside[12:]
    else:
        inside = _summed(ends if version == 6 else (), kind, struct.pack("!BBHHH", echo, 0, 0, own, 1) + mark, at=2)
    if version == 6:
        return struct.pack("!IHBB", 6 << 28, len(inside), kind, 64) + b"".join(ends) + inside
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(inside), number & 0xFFFF, 0, 64, kind, 0) + b"".join(ends)
    return _summed((), 0, head, at=10) + inside


def number_of(packet: bytes) -> int | None:
    """Of a packet of `first_packet` as it arrived; None of any other, of answers and of errors about one."""
    where, v6 = packet.find(MARK), packet[0] >> 4 == 6
    kind, echo = _ECHO[6 if v6 else 4]
    if where < 0 or (packet[6 if v6 else 9] == kind and packet[40 if v6 else 20] != echo):
        return None
    return int.from_bytes(packet[where + len(MARK) :][:4], "big")


def _summed(ends: tuple[bytes, ...], kind: int, data: bytes, *, at: int) -> bytes:
    """With the Internet's checksum at this offset (RFC 1071), over the pseudo-header of `ends` if there are any."""
    head = b"".join(ends) + struct.pack("!II", len(data), kind) if ends else b""
    words = struct.unpack(f"!{(len(head) + len(data)) // 2}H", head + data)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF or 0xFFFF) + data[at + 2 :]


def _crc32c(data: bytes) -> int:
    """RFC 9260, appendix A."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF
