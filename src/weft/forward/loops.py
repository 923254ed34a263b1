"""Both directions of a relay in Python: from the device to peers, and back. A process each: they share no interpreter.

What the C program does, as far as Python is quick enough for it: `relay/out.c`, `relay/in.c`.
"""

import errno
import os
import select
import socket
import time
from collections import Counter
from struct import pack, unpack_from
from typing import Final

from weft.forward.control import DROPS
from weft.forward.packets import (
    MOST,
    NEEDS_CSUM,
    VNET,
    Joined,
    Offload,
    complete,
    header_is_right,
    icmp_error,
    packet_size,
    spend_ttl,
    split,
)
from weft.forward.routes import Routes
from weft.forward.sockopts import IP_MTU, IP_MTU_DISCOVER, PMTUDISC_DO, PMTUDISC_WANT, UDP_GRO, UDP_SEGMENT

NO_ROUTE, UNKNOWN_PEER, MALFORMED, EXPIRED, TOO_LARGE, NOT_SENT, NOT_WRITTEN = DROPS
_MOST_DATAGRAM: Final = 65507
_MOST_SEGMENTS: Final = 64
_UNREACHABLE, _NET, _TOO_BIG = 3, 0, 4
_TIME_EXCEEDED: Final = 11
_IPV4: Final = 4
_DONT_FRAGMENT: Final = 0x40
_OVERHEAD: Final = 28
_ERRORS_A_SECOND: Final = 100
_PATIENCE: Final = 0.1  # seconds for a full socket
_CONTROL: Final = socket.CMSG_SPACE(4)
_GONE: Final = (errno.EBADFD, errno.ENODEV)

Train = list[tuple[bytes, memoryview] | tuple[memoryview]]


class DeviceGoneError(Exception):
    """The device is no more."""


class Direction:
    """What both have: routes, sockets, and counts of packets; those of peers by address, packets and bytes."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, icmp: socket.socket) -> None:
        self.routes = routes
        self.dropped: Counter[str] = Counter()
        self.packets: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self._tun = tun
        self._udp = udp
        self._icmp = icmp
        self._second = 0
        self._errors = 0

    def _say_error(self, ip: memoryview, kind: int, code: int, mtu: int = 0) -> None:
        """Send an ICMP error to where a packet came from, unless there were many in this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._errors = second, 0
        error = icmp_error(ip, kind, code, mtu) if self._errors < _ERRORS_A_SECOND else b""
        if error:
            self._errors += 1
            try:
                self._icmp.sendto(error, socket.MSG_DONTWAIT, (socket.inet_ntoa(ip[12:16]), 0))
            except OSError:
                self._errors -= 1

    def _may_pass(self, ip: memoryview) -> bool:
        if spend_ttl(ip):
            return True
        self._say_error(ip, _TIME_EXCEEDED, 0)
        self.dropped[EXPIRED] += 1
        return False


class Sender(Direction):
    """From the device to peers."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, icmp: socket.socket, port: int) -> None:
        super().__init__(routes, tun, udp, icmp)
        self._port = port
        self._buffer = bytearray(VNET.size + MOST)

    def once(self) -> bool:
        """Take one packet of the device; False if there is none. `DeviceGoneError` without the device."""
        try:
            got = os.readv(self._tun, [self._buffer])
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _GONE:
                raise DeviceGoneError from error
            return False
        how = Offload(*VNET.unpack_from(self._buffer))
        ip = memoryview(self._buffer)[VNET.size : got]
        size = packet_size(ip)
        if size:
            self._take(ip[:size], how)
        else:  # of IPv6 the kernel says something on each device
            self.dropped[MALFORMED] += bool(ip) and ip[0] >> 4 == _IPV4
        return True

    def _take(self, ip: memoryview, how: Offload) -> None:
        peer = self.routes.find(unpack_from(">I", ip, 16)[0])
        if peer is None:
            self._say_error(ip, _UNREACHABLE, _NET)
            self.dropped[NO_ROUTE] += 1
        elif self._may_pass(ip):
            train: Train = list(split(ip, how)) if how.gso_type else [(ip,)]
            if not train or (how.flags & NEEDS_CSUM and not how.gso_type and not complete(ip, how)):
                self.dropped[MALFORMED] += 1
            else:
                self._send(train, peer)

    def _send(self, train: Train, peer: int) -> None:
        """Send packets of one size, the last may be shorter, as many at once as can be."""
        each = sum(map(len, train[0]))
        most = max(1, min(_MOST_SEGMENTS, _MOST_DATAGRAM // each))
        for start in range(0, len(train), most):
            some = train[start : start + most]
            cut = [(socket.SOL_UDP, UDP_SEGMENT, pack("=H", each))] if len(some) > 1 else []
            if self._try([part for packet in some for part in packet], cut, peer) == 0:
                self.packets[peer] += len(some)
                self.bytes[peer] += sum(len(part) for packet in some for part in packet)
            else:
                for packet in some:
                    self._send_one(list(packet), peer)

    def _send_one(self, parts: list[bytes | memoryview], peer: int) -> None:
        number = self._try(parts, [], peer)
        if number == errno.EMSGSIZE:
            if parts[0][6] & _DONT_FRAGMENT:
                self._say_error(memoryview(parts[0]), _UNREACHABLE, _TOO_BIG, self._path_mtu(peer))
                self.dropped[TOO_LARGE] += 1
                return
            self._udp.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, PMTUDISC_WANT)
            number = self._try(parts, [], peer)
            self._udp.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, PMTUDISC_DO)
        if number:
            self.dropped[NOT_SENT] += 1
        else:
            self.packets[peer] += 1
            self.bytes[peer] += sum(map(len, parts))

    def _try(self, parts: list[bytes | memoryview], cut: list[tuple[int, int, bytes]], peer: int) -> int:
        """Send one message; returns the errno of a refusal, else 0. A full socket is waited for, for a moment."""
        to = (socket.inet_ntoa(peer.to_bytes(4, "big")), self._port)
        while True:
            try:
                self._udp.sendmsg(parts, cut, 0, to)
            except BlockingIOError:
                if not select.select([], [self._udp], [], _PATIENCE)[1]:
                    return errno.EAGAIN
            except OSError as error:
                return error.errno or errno.EIO
            else:
                return 0

    def _path_mtu(self, peer: int) -> int:
        """What a packet to a peer may have at most, without our headers; 0 if that is not known."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((socket.inet_ntoa(peer.to_bytes(4, "big")), 9))
                return max(0, probe.getsockopt(socket.SOL_IP, IP_MTU) - _OVERHEAD)
            except OSError:
                return 0


class Receiver(Direction):
    """From peers to the device."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, icmp: socket.socket) -> None:
        super().__init__(routes, tun, udp, icmp)
        self._buffer = bytearray(MOST)
        self._joined: Joined | None = None

    def once(self) -> bool:
        """Take what came as one message; False if there is none. `DeviceGoneError` without the device."""
        try:
            got, control, _, (host, _) = self._udp.recvmsg_into([self._buffer], _CONTROL, socket.MSG_DONTWAIT)
        except OSError:
            return False
        each = next((unpack_from("=i", data)[0] for _, kind, data in control if kind == UDP_GRO), 0) or got or 1
        peer = int.from_bytes(socket.inet_aton(host), "big")
        packets = -(-got // each)
        if peer not in self.routes.uses:
            self.dropped[UNKNOWN_PEER] += packets
            return True
        self.packets[peer] += packets
        self.bytes[peer] += got
        whole = memoryview(self._buffer)[:got]
        for start in range(0, got, each):
            self._take(whole[start : start + each])
        self._flush()
        return True

    def _take(self, ip: memoryview) -> None:
        if self._joined is not None and self._joined.add(ip):
            return
        size = packet_size(ip)
        if not size or not header_is_right(ip):
            self.dropped[MALFORMED] += 1
            return
        self._flush()
        joined = Joined(ip[:size])
        if self._may_pass(ip[:size]):
            self._joined = joined

    def _flush(self) -> None:
        """Write what was joined."""
        joined, self._joined = self._joined, None
        if joined is None:
            return
        try:
            os.writev(self._tun, joined.parts())
        except OSError as error:
            if error.errno in _GONE:
                raise DeviceGoneError from error
            self.dropped[NOT_WRITTEN] += len(joined)
