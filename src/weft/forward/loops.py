"""Both directions of a relay in Python: from the device to peers, and back. A process each: they share no interpreter.

What the C program does, as far as Python is quick enough for it: `relay/out.c`, `relay/in.c`.
"""

import errno
import os
import select
import socket
import time
from collections import Counter
from itertools import chain
from struct import pack, unpack_from
from typing import Final

from weft.forward.control import DROPS
from weft.forward.packets import (
    IPV6_HEADER,
    LEAST_MTU,
    MOST,
    NEEDS_CSUM,
    TIME_EXCEEDED,
    TOO_BIG,
    UNREACHABLE,
    VNET,
    Offload,
    complete,
    header_is_right,
    icmp_error,
    is_local,
    is_v6,
    packet_size,
    spend_ttl,
)
from weft.forward.routes import Routes
from weft.forward.segments import Joined, split
from weft.forward.sockopts import (
    IP_MTU,
    IP_MTU_DISCOVER,
    IPV6_MTU,
    IPV6_MTU_DISCOVER,
    PMTUDISC_DO,
    PMTUDISC_WANT,
    UDP_GRO,
    UDP_SEGMENT,
)

NO_ROUTE, UNKNOWN_PEER, MALFORMED, EXPIRED, TOO_LARGE, NOT_SENT, NOT_WRITTEN, LOCAL = DROPS
_MOST_DATAGRAM: Final = 65507
_MOST_SEGMENTS: Final = 64
_DONT_FRAGMENT: Final = 0x40
_OVERHEAD: Final = {socket.AF_INET: 28, socket.AF_INET6: 48}
_DISCOVER: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, IP_MTU_DISCOVER),
    socket.AF_INET6: (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER),
}
_MTU: Final = {socket.AF_INET: (socket.IPPROTO_IP, IP_MTU), socket.AF_INET6: (socket.IPPROTO_IPV6, IPV6_MTU)}
_ERRORS_A_SECOND: Final = 100
_PATIENCE: Final = 0.1  # seconds for a full socket
_FEW: Final = 2  # packets for which it is not worth while to look at all together
_CONTROL: Final = socket.CMSG_SPACE(4)
_GONE: Final = (errno.EBADFD, errno.ENODEV)

Train = list[tuple[bytes, memoryview] | tuple[memoryview]]


class DeviceGoneError(Exception):
    """The device is no more."""


class Errors:
    """What tells of errors, by the raw sockets of ICMP and ICMPv6: so many of each kind in a second."""

    def __init__(self, icmp: int, icmp6: int) -> None:
        self._icmp = socket.socket(fileno=icmp)
        self._icmp6 = socket.socket(fileno=icmp6)
        self._second = 0
        self._told = Counter[int]()

    def say(self, ip: memoryview, error: int, mtu: int = 0) -> None:
        """Send an error to where a packet came from, unless there were many such in this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._told.clear()
        message = icmp_error(ip, error, mtu) if self._told[error] < _ERRORS_A_SECOND else b""
        if message:
            self._told[error] += 1
            try:
                if is_v6(ip):
                    self._icmp6.sendto(message, socket.MSG_DONTWAIT, (socket.inet_ntop(socket.AF_INET6, ip[8:24]), 0))
                else:
                    self._icmp.sendto(message, socket.MSG_DONTWAIT, (socket.inet_ntoa(ip[12:16]), 0))
            except OSError:
                self._told[error] -= 1


class Direction:
    """What both have: routes, sockets, and counts of packets; those of peers by address, packets and bytes."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, errors: Errors) -> None:
        self.routes = routes
        self.dropped: Counter[str] = Counter()
        self.packets: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self._tun = tun
        self._udp = udp
        self._errors = errors

    def _may_pass(self, ip: memoryview) -> bool:
        if spend_ttl(ip):
            return True
        self._errors.say(ip, TIME_EXCEEDED)
        self.dropped[EXPIRED] += 1
        return False


class Sender(Direction):
    """From the device to peers."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, errors: Errors, port: int) -> None:
        super().__init__(routes, tun, udp, errors)
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
        else:
            self.dropped[MALFORMED] += bool(ip)
        return True

    def _take(self, ip: memoryview, how: Offload) -> None:
        if is_local(ip):  # of IPv6 the kernel says something on each device
            self.dropped[LOCAL] += 1
            return
        peer = self._peer_of(ip)
        if peer is None:
            self._errors.say(ip, UNREACHABLE)
            self.dropped[NO_ROUTE] += 1
        elif self._may_pass(ip):
            train: Train = list(split(ip, how)) if how.gso_type else [(ip,)]
            if not train or (how.flags & NEEDS_CSUM and not how.gso_type and not complete(ip, how)):
                self.dropped[MALFORMED] += 1
            else:
                self._send(train, peer)

    def _peer_of(self, ip: memoryview) -> int | None:
        if is_v6(ip):
            return self.routes.v6.find(int.from_bytes(ip[24:40], "big"))
        return self.routes.v4.find(unpack_from(">I", ip, 16)[0])

    def _send(self, train: Train, peer: int) -> None:
        """Send packets of one size, the last may be shorter, as many at once as can be."""
        each = sum(map(len, train[0]))
        most = max(1, min(_MOST_SEGMENTS, _MOST_DATAGRAM // each))
        for start in range(0, len(train), most):
            some = train[start : start + most]
            cut = [(socket.SOL_UDP, UDP_SEGMENT, pack("=H", each))] if len(some) > 1 else []
            if self._try(list(chain.from_iterable(some)), cut, peer) == 0:
                self.packets[peer] += len(some)
                self.bytes[peer] += each * (len(some) - 1) + sum(map(len, some[-1]))
            else:
                for packet in some:
                    self._send_one(list(packet), peer)

    def _send_one(self, parts: list[bytes | memoryview], peer: int) -> None:
        number = self._try(parts, [], peer)
        if number == errno.EMSGSIZE:
            ip = memoryview(parts[0])
            if _is_whole(ip):
                self._errors.say(ip, TOO_BIG, max(self._path_mtu(peer), LEAST_MTU if is_v6(ip) else 0))
                self.dropped[TOO_LARGE] += 1
                return
            self._udp.setsockopt(*_DISCOVER[self._udp.family], PMTUDISC_WANT)
            number = self._try(parts, [], peer)
            self._udp.setsockopt(*_DISCOVER[self._udp.family], PMTUDISC_DO)
        if number:
            self.dropped[NOT_SENT] += 1
        else:
            self.packets[peer] += 1
            self.bytes[peer] += sum(map(len, parts))

    def _try(self, parts: list[bytes | memoryview], cut: list[tuple[int, int, bytes]], peer: int) -> int:
        """Send one message; returns the errno of a refusal, else 0. A full socket is waited for, for a moment."""
        to = (_host(self._udp, peer), self._port)
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
        family = self._udp.family
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((_host(self._udp, peer), 9))
                return max(0, probe.getsockopt(*_MTU[family]) - _OVERHEAD[family])
            except OSError:
                return 0


class Receiver(Direction):
    """From peers to the device."""

    def __init__(self, routes: Routes, tun: int, udp: socket.socket, errors: Errors, *, joins_udp: bool) -> None:
        super().__init__(routes, tun, udp, errors)
        self._buffer = bytearray(MOST)
        self._joined: Joined | None = None
        self._joins_udp = joins_udp

    def once(self) -> bool:
        """Take what came as one message; False if there is none. `DeviceGoneError` without the device."""
        try:
            got, control, _, source = self._udp.recvmsg_into([self._buffer], _CONTROL, socket.MSG_DONTWAIT)
        except OSError:
            return False
        each = next((unpack_from("=i", data)[0] for _, kind, data in control if kind == UDP_GRO), 0) or got or 1
        peer = int.from_bytes(socket.inet_pton(self._udp.family, source[0]), "big")
        packets = -(-got // each)
        if peer not in self.routes.uses:
            self.dropped[UNKNOWN_PEER] += packets
            return True
        self.packets[peer] += packets
        self.bytes[peer] += got
        whole = memoryview(self._buffer)[:got]
        taken = 0
        if packets > _FEW:
            self._take(whole[:each])
            taken = 1 + (0 if self._joined is None else self._joined.add_all(whole[each:], each))
        for start in range(taken * each, got, each):
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
        if is_local(ip):
            self.dropped[LOCAL] += 1
            return
        self._flush()
        joined = Joined(ip[:size], udp=self._joins_udp)
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


def _host(udp: socket.socket, peer: int) -> str:
    """A peer's address as text; peers have the family of the socket."""
    return socket.inet_ntop(udp.family, peer.to_bytes(4 if udp.family == socket.AF_INET else 16, "big"))


def _is_whole(ip: memoryview) -> bool:
    """Tell whether a packet may not be cut.

    One of IPv6 that each link must take goes in a datagram that is cut (RFC 2473 section 7.1).
    """
    if is_v6(ip):
        return IPV6_HEADER + (ip[4] << 8 | ip[5]) > LEAST_MTU
    return bool(ip[6] & _DONT_FRAGMENT)
