"""Pods that send what is forbidden before they are attached, others that send to them, and ears in all of them."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Final

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from tests.node.policyworld import PORT
from tests.support.netns import Netns
from weft.model.net import Ip

ALL: Final = 3  # ETH_P_ALL (linux/if_ether.h)
MARK: Final = b"forbidden"
V6: Final = b"\x86\xdd"  # ETH_P_IPV6
EVERYBODY: Final = "ff:ff:ff:ff:ff:ff"
PATIENCE: Final = 10.0  # seconds
TOTAL_RETRANS: Final = 100  # in struct tcp_info (linux/tcp.h)
PAUSE: Final = 0.004  # seconds between two rounds of what is sent


class Ears:
    """Notes each frame with `MARK` that comes to a namespace over any link, the links that it gets later among them.

    Notes as well who claims an address: `claims` are pairs of an address and the MAC that is said to have it.
    """

    def __init__(self, netns: Netns) -> None:
        self.heard: list[bytes] = []
        self.claims: set[tuple[str, str]] = set()
        self._over = threading.Event()
        self._socket = netns.call(self._open)
        self._thread = threading.Thread(target=self._listen, name="ears", daemon=True)
        self._thread.start()

    def _open(self) -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        made.settimeout(0.05)
        return made

    def _listen(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError, OSError):
                frame, (link, _, kind, *_) = self._socket.recvfrom(2048)
                if kind != socket.PACKET_OUTGOING and link != "lo":
                    self._note(frame)

    def _note(self, frame: bytes) -> None:
        if MARK in frame:
            error = frame[20] == socket.IPPROTO_ICMPV6 if frame[12:14] == V6 else frame[23] == socket.IPPROTO_ICMP
            if not error:  # which has the packet in it that it complains of
                self.heard.append(frame)
        elif frame[12:14] == b"\x08\x06":  # ARP
            self.claims.add((socket.inet_ntoa(frame[28:32]), frame[22:28].hex(":")))
        elif frame[12:14] == V6 and frame[20] == socket.IPPROTO_ICMPV6 and frame[54] == 136:
            self.claims.add((socket.inet_ntop(socket.AF_INET6, frame[62:78]), frame[6:12].hex(":")))

    def close(self) -> None:
        time.sleep(0.05)  # what has been sent is on its way
        self._over.set()
        self._thread.join()
        self._socket.close()


class Mouth:
    """Sends from a namespace, again and again, whatever of it there is: packets by its routes, frames over its eth0."""

    def __init__(self, netns: Netns, say: Callable[[], Iterable[tuple[str, bytes]]]) -> None:
        """`say` gives pairs of a target and a packet to it, or of no target and a frame."""
        self.sent = 0
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: netns.call(self._send), name="mouth", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        v4, v6 = (
            socket.socket(each, socket.SOCK_RAW, socket.IPPROTO_RAW) for each in (socket.AF_INET, socket.AF_INET6)
        )
        frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        with v4, v6, frames:
            while not self._over.is_set():
                for target, packet in self._say():
                    with suppress(OSError):  # no link yet, no address or no neighbour
                        to, where = (v6 if ":" in target else v4, (target, 0)) if target else (frames, ("eth0", 0))
                        self.sent += bool(to.sendto(packet, where))
                time.sleep(PAUSE)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def first_arrives(source: Netns, target: str) -> bool:
    """Tell whether a connection's first packet is answered, however long that takes: none is sent again."""

    def attempt() -> bool:
        try:
            with socket.create_connection((target, PORT), PATIENCE) as made:
                info = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANS + 4)
                return not int.from_bytes(info[TOTAL_RETRANS:], sys.byteorder)
        except OSError:
            return False

    return source.call(attempt)


@cache
def datagrams(source: str, targets: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """The kernel may put in another source, of IPv4, so that has no checksum."""
    if ":" in source:
        return [(target, bytes(IPv6(src=source, dst=target) / UDP(sport=9, dport=PORT) / MARK)) for target in targets]
    return [
        (target, bytes(IP(src=source, dst=target) / UDP(sport=9, dport=PORT, chksum=0) / MARK)) for target in targets
    ]


@cache
def tagged(mac: str, source: str, targets: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Frames to everybody, which bridge netfilter does not look into."""
    head = Ether(src=mac, dst=EVERYBODY) / Dot1Q(vlan=0)
    return [
        ("", bytes(head / IP(src=source, dst=target) / UDP(sport=9, dport=PORT, chksum=0) / MARK)) for target in targets
    ]


@cache
def claiming(mac: str, ips: tuple[Ip, ...]) -> list[tuple[str, bytes]]:
    """That others' addresses are at this MAC, unasked for."""
    found = []
    for ip in ips:
        if ip.version == 4:
            said = Ether(src=mac, dst=EVERYBODY) / ARP(op=2, hwsrc=mac, psrc=str(ip), pdst=str(ip))
        else:
            head = Ether(src=mac, dst="33:33:00:00:00:01") / IPv6(src="fe80::bad", dst="ff02::1")
            said = head / ICMPv6ND_NA(tgt=str(ip), R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac)
        found.append(("", bytes(said)))
    return found
