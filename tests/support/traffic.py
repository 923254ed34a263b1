"""Traffic that notices every loss: a ping each millisecond and a TCP stream, from threads; and captured frames."""

import hashlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from tests.support.netns import Netns
from weft.model.net import Ip, Mac

_ECHO: Final = struct.Struct("!BBHHHQ")  # type, code, checksum, identifier, sequence; our number
_TYPES: Final = {4: (8, 0), 6: (128, 129)}  # request, reply
_LINGER: Final = 1.5  # seconds that an answer may take, with a busy machine in mind
_BLOCK: Final = 1024
# Offsets in struct tcp_info (linux/tcp.h).
_TOTAL_RETRANS: Final = 100
_DSACK_DUPS: Final = 216
_SAID_SECONDS: Final = 20.0  # until the other end has said what it had twice


class Pings:
    """An echo request each millisecond while the block runs; afterwards `sent` and `lost` are known."""

    def __init__(self, source: Netns, target: Ip, *, every: float = 0.001) -> None:
        self.sent = 0
        self.lost: list[int] = []
        self._target = target
        self._every = every
        self._request, self._reply = _TYPES[target.version]
        self._socket = source.call(self._open)
        self._identifier = os.urandom(2)[0] << 8 | os.urandom(1)[0]
        self._unanswered: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pings", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
        self.lost = sorted(self._unanswered)

    def _open(self) -> socket.socket:
        if self._target.version == 4:
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        else:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sock.setblocking(False)
        return sock

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            self._send()
            due = max(due + self._every, time.monotonic())  # a busy machine has no bursts to catch up
            self._listen(due)
        end = time.monotonic() + _LINGER
        while self._unanswered and time.monotonic() < end:
            self._listen(time.monotonic() + 0.01)

    def _send(self) -> None:
        number, self.sent = self.sent, self.sent + 1
        self._unanswered.add(number)
        message = _ECHO.pack(self._request, 0, 0, self._identifier, number & 0xFFFF, number)
        if self._target.version == 4:
            total = sum(struct.unpack(f"!{len(message) // 2}H", message))
            total = (total & 0xFFFF) + (total >> 16)
            total = (total & 0xFFFF) + (total >> 16)
            message = message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]
        try:
            self._socket.sendto(message, (str(self._target), 0))
        except OSError:
            return  # no way there: as good as lost

    def _listen(self, until: float) -> None:
        """Take answers until then, and what is there in any case."""
        while True:
            left = until - time.monotonic()
            if not select.select([self._socket], [], [], max(left, 0))[0]:
                return
            while (data := self._receive()) is not None:
                kind, _, _, identifier, _, number = _ECHO.unpack_from(data)
                if kind == self._reply and identifier == self._identifier:
                    self._unanswered.discard(number)

    def _receive(self) -> bytes | None:
        try:
            data = self._socket.recv(2048)
        except OSError:
            return None
        data = data[(data[0] & 15) * 4 :] if self._target.version == 4 else data
        return data if len(data) >= _ECHO.size else bytes(_ECHO.size)


def reaches(source: Netns, target: Ip, *, seconds: float = 5.0) -> bool:
    """Tell whether a ping is answered within some seconds."""
    with Pings(source, target, every=0.02) as pings:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if pings.sent > len(pings._unanswered):
                return True
            time.sleep(0.005)
    return len(pings.lost) < pings.sent


class Stream:
    """A TCP connection with a block each millisecond, or `every` so many seconds, while the block runs.

    Afterwards `whole` tells whether all arrived as it was sent, `resent` how many segments went missing.
    """

    def __init__(self, source: Netns, sink: Netns, target: Ip, *, every: float = 0.001) -> None:
        self.sent = 0
        self._every = every
        self.whole = False
        self.resent = 0
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        server = sink.call(lambda: socket.create_server((str(target), 0), family=family))
        address = server.getsockname()[:2]
        self._out = source.call(lambda: socket.create_connection(address, timeout=200))
        self._in = server.accept()[0]
        self._in.settimeout(200)
        server.close()
        self._over = threading.Event()
        self._digests: dict[str, bytes] = {}
        self.fault = ""
        self._threads = [threading.Thread(target=self._do, args=[work]) for work in (self._write, self._read)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.whole = self._digests.get("written") == self._digests.get("read") is not None
        self._out.close()
        self._in.close()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.fault += f"{work.__name__}: {error}; "

    def _write(self) -> None:
        digest = hashlib.sha256()
        while not self._over.is_set():
            block = os.urandom(_BLOCK)
            self._out.sendall(block)
            digest.update(block)
            self.sent += 1
            time.sleep(self._every)
        self._out.shutdown(socket.SHUT_WR)
        self._digests["written"] = digest.digest()

    def _read(self) -> None:
        digest = hashlib.sha256()
        while data := self._in.recv(65536):
            digest.update(data)
        self._digests["read"] = digest.digest()
        end = time.monotonic() + _SAID_SECONDS
        while (resent := self._resent()) and time.monotonic() < end:
            time.sleep(0.01)
        self.resent = resent

    def _resent(self) -> int:
        """How many segments were sent again, but for those that the other end says it had: that it says a bit later."""
        info = self._out.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        resent, needless = (struct.unpack_from("=I", info, at)[0] for at in (_TOTAL_RETRANS, _DSACK_DUPS))
        return int(resent - needless)


@contextmanager
def nothing_lost(source: Netns, sink: Netns, target: Ip, *, every: float = 0.001) -> Iterator[Pings]:
    """Ping each millisecond and stream while the block runs; fails if one packet goes missing."""
    with Stream(source, sink, target, every=every) as stream, Pings(source, target, every=every) as pings:
        yield pings
        deadline = time.monotonic() + 60
        while min(pings.sent, stream.sent) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)  # a block that was over at once shows nothing
    assert pings.sent > 50
    assert not pings.lost, f"{len(pings.lost)} of {pings.sent} pings lost: {pings.lost[:20]}"
    assert stream.sent > 50
    assert stream.whole, stream.fault
    assert stream.resent == 0, f"{stream.resent} segments sent again of {stream.sent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """An Ethernet frame with IP in it; `payload` is what IP carries."""

    source_mac: Mac
    target_mac: Mac
    source: Ip
    target: Ip
    ttl: int
    protocol: int
    payload: bytes

    @property
    def ports(self) -> tuple[int, int]:
        source, target = struct.unpack_from("!HH", self.payload)
        return source, target

    @property
    def vni(self) -> int:
        """The VNI of the VXLAN header behind UDP's, when its flags are right (RFC 7348 §5)."""
        flags, rest = struct.unpack_from("!II", self.payload, 8)
        assert flags == 0x08000000
        return int(rest >> 8)

    @property
    def inner(self) -> "Packet":
        """The packet in VXLAN."""
        found = decode(self.payload[16:])
        assert found is not None
        return found


class Capture:
    """Frames that pass a link of a namespace from now on."""

    def __init__(self, netns: Netns, link: str) -> None:
        def open_socket() -> socket.socket:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            sock.bind((link, 0))
            sock.setblocking(False)
            return sock

        self._socket = netns.call(open_socket)
        netns.closing.callback(self.close)  # where a test fails before it does

    def packets(self) -> list[Packet]:
        """What has passed since the last call, but for frames without IP."""
        found = []
        while True:
            try:
                packet = decode(self._socket.recv(65536))
            except BlockingIOError:
                return found
            if packet is not None:
                found.append(packet)

    def close(self) -> None:
        self._socket.close()


def decode(frame: bytes) -> Packet | None:
    """An Ethernet frame with IPv4 or IPv6 in it; None for any other."""
    kind = int.from_bytes(frame[12:14], "big")
    ip = frame[14:]
    if kind == 0x0800:
        head = (ip[0] & 15) * 4
        source, target = IPv4Address(ip[12:16]), IPv4Address(ip[16:20])
        ttl, protocol, payload = ip[8], ip[9], ip[head:]
    elif kind == 0x86DD:
        source, target = IPv6Address(ip[8:24]), IPv6Address(ip[24:40])  # type: ignore[assignment]
        ttl, protocol, payload = ip[7], ip[6], ip[40:]
    else:
        return None
    return Packet(
        source_mac=Mac(frame[6:12]),
        target_mac=Mac(frame[:6]),
        source=ip_address(source),
        target=ip_address(target),
        ttl=ttl,
        protocol=protocol,
        payload=payload,
    )
