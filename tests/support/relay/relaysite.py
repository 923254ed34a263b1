"""A relay between two namespaces: ours on one end, on the other what a test puts there."""

import os
import signal
import socket
import struct
import tempfile
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any, Final

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from tests.support import oldkernel
from tests.support.namespaces import run_in
from tests.support.netns import Netns, wire
from tests.support.weftd import carrying, eventually, no_waiting, settled
from weft.forward import build, start
from weft.forward.control import SOCKET, Call, Change
from weft.forward.kernelpath import Forward, Job, Programs
from weft.kernel import ending, tun

DEVICE: Final = "flannel0"
PORT: Final = 8285
MTU: Final = 1472
LOCAL, PEER, STRANGER = "172.31.0.1", "172.31.0.2", "172.31.0.3"
OUTER6 = ("fd00::1", "fd00::2", "fd00::3")  # the same in a network without IPv4
POD, THERE = "10.5.1.2", "10.5.2.2"  # behind our relay, and behind the peer
POD6, THERE6 = "fd05:0:0:1::2", "fd05:0:0:2::2"
KNOWN: Final = {net: IPv4Address(PEER) for net in (IPv4Network("10.5.2.0/24"), IPv6Network("fd05:0:0:2::/64"))}
OWN6: Final = "fd05:0:0:1::"  # the device's


class Site:
    """A node with a relay, `here`, and its peer's namespace, `there`, on a wire; datagrams go `over` a family."""

    def __init__(self, here: Netns, there: Netns, *, in_kernel: bool = False, over: int = 4) -> None:
        self.here, self.there = here, there
        self.local, self.remote, self.stranger = OUTER6 if over == 6 else (LOCAL, PEER, STRANGER)
        self.overhead = 48 if over == 6 else 28
        self.mtu = MTU + 28 - self.overhead
        self.path: Programs | None = None
        for netns in (here, there):
            no_waiting(netns)
        wire(here, there)
        for netns, *addresses in ((here, self.local), (there, self.remote, self.stranger)):
            carrying(netns, "eth0")  # a neighbour that is asked for sooner is given up
            for address in addresses:
                netns.run(f"ip addr add {address}/{'64 nodad' if over == 6 else 24} dev eth0")
        if over == 6:
            # Permanent ones do not count in the table of neighbours that all namespaces of the machine share.
            for netns, other, *addresses in ((here, there, self.remote, self.stranger), (there, here, self.local)):
                link = other.rtnl.link("eth0")
                assert link is not None
                for address in addresses:
                    netns.run(f"ip neigh replace {address} lladdr {link.mac} dev eth0 nud permanent")
        here.call(lambda: tun.create(DEVICE))
        here.run(
            f"ip link set lo up; ip link set {DEVICE} mtu {self.mtu} up; ip addr add 10.5.1.0/32 dev {DEVICE}; "
            f"ip addr add {POD}/32 dev lo; ip route add 10.5.0.0/16 dev {DEVICE} src {POD}; "
            f"ip addr add {OWN6}/128 dev {DEVICE} nodad; ip addr add {POD6}/128 dev lo nodad; "
            f"ip route add fd05::/48 dev {DEVICE} src {POD6}"
        )
        job = start.Job(
            device=DEVICE, local=ip_address(self.local), port=PORT, joined=not in_kernel, own6=IPv6Address(OWN6)
        )
        self.socket = self.directory(here) / SOCKET
        self.pid = here.call(lambda: start.start(job, "a test", build.PROGRAM.path, self.socket))
        here.closing.callback(self.end)
        self.call = self.connect()
        here.closing.callback(self.call.close)
        # Until the kernel has seen that a queue is open, the device loses all.
        eventually(lambda: "qdisc noop" not in here.run(f"ip link show {DEVICE}"))
        settled(here, POD6, *([self.local] if over == 6 else []))
        settled(there, *([self.remote, self.stranger] if over == 6 else []))
        self.call.change(Change(net, ip_address(self.remote)) for net in KNOWN)
        if in_kernel:
            self.path = here.call(self.attach)
            here.closing.callback(self.path.close)
        self.peer = self.bound(there, socket.SOCK_DGRAM, self.remote, PORT)  # what its relay would send and receive by

    def directory(self, netns: Netns) -> Path:
        """A directory that lasts as long as a namespace."""
        return Path(netns.closing.enter_context(tempfile.TemporaryDirectory()))

    def attach(self) -> Programs:
        """Have the kernel carry packets, and complete them at the uplink as for a wire: the peer here is a program."""
        self.there.run("ethtool -K eth0 tx off")
        self.here.run(f"ethtool -K eth0 tx off; ping -c 1 {PEER}; echo 1 > /proc/sys/net/ipv4/ip_forward")
        job = Job(device=DEVICE, uplink="eth0", local=IPv4Address(LOCAL), port=PORT)
        return Programs.attach(job, {IPv4Network("10.5.2.0/24"): Forward(IPv4Address(PEER), kernel=True)})

    def connect(self) -> Call:
        while (call := Call.to(self.socket)) is None:
            assert os.waitpid(self.pid, os.WNOHANG) == (0, 0), "the relay has ended"
        return call

    def second(self) -> Call:
        """Start a relay of ours in the peer's namespace, in the place of its socket."""
        self.peer.close()
        there = self.there
        there.call(lambda: tun.create(DEVICE))
        there.run(
            f"ip link set lo up; ip link set {DEVICE} mtu {self.mtu} up; ip addr add {THERE6}/128 dev lo nodad; "
            f"ip route add fd05::/48 dev {DEVICE} src {THERE6}"
        )
        settled(there, THERE6)
        job = start.Job(device=DEVICE, local=ip_address(self.remote), port=PORT, own6=IPv6Address(THERE6))
        path = self.directory(there) / SOCKET
        pid = there.call(lambda: start.start(job, "another", build.PROGRAM.path, path))
        there.closing.callback(lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)))
        call = eventually(lambda: Call.to(path))
        there.closing.callback(call.close)
        call.change([Change(IPv6Network("fd05:0:0:1::/64"), ip_address(self.local))])
        return call

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.ended()

    def ended(self) -> int:
        """Wait for the relay's end; returns its status."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def bound(self, netns: Netns, kind: socket.SocketKind, address: str, port: int = 0) -> socket.socket:
        """A socket of a namespace that is bound, and does not wait for ever."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            made.bind((address, port))
            made.settimeout(60)
            return made

        made = run_in(netns.fd, make)
        netns.closing.callback(made.close)
        return made

    def dropped(self) -> dict[str, int]:
        """What the relay has dropped, by why, without what a kernel says of IPv6 on each device."""
        dropped = self.call.state().dropped
        return {why: number for why, number in dropped.items() if number and why != "local address"}


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, error: int) -> None:
    """Have the kernel answer a system call of relays with an error; 0 for one that only seems done."""
    spawn = ending.spawn

    def spawn_with_less(*args: Any) -> int:
        """Its thread is one of its own, and has no more to do."""
        oldkernel.refuse(call, error)
        return spawn(*args)

    monkeypatch.setattr(start, "spawn", spawn_with_less)


def packet(
    content: bytes, *, ttl: int = 64, source: str = THERE, destination: str = POD, port: int = 9, **tcp
) -> bytes:
    """An inner packet as a peer sends it, with right checksums: UDP, or TCP with `tcp`."""
    layer = TCP(sport=7, dport=port, **tcp) if tcp else UDP(sport=7, dport=port)
    return bytes(IP(src=source, dst=destination, ttl=ttl, flags="DF") / layer / Raw(content))


def packet6(
    content: bytes,
    *,
    ttl: int = 64,
    source: str = THERE6,
    destination: str = POD6,
    port: int = 9,
    over: bytes = b"",
    **tcp,
) -> bytes:
    """The same of IPv6; `over` is an extension header with options, whose first byte is the protocol's place."""
    layer = TCP(sport=7, dport=port, **tcp) if tcp else UDP(sport=7, dport=port)
    made = bytes(IPv6(src=source, dst=destination, hlim=ttl, tc=4, fl=0x12345) / layer / Raw(content))
    if not over:
        return made
    length = (len(made) - 40 + len(over)).to_bytes(2, "big")
    return made[:4] + length + b"\x3c" + made[7:40] + made[6:7] + over[1:] + made[40:]


def words_are_right(data: bytes) -> bool:
    """Tell whether a checksum is right, by adding words (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def is_right(ip: bytes) -> bool:
    """Tell whether a packet's length and checksums are right."""
    if ip[0] >> 4 == 6:
        start = 40 if ip[6] != 60 else 40 + (ip[41] + 1) * 8
        inner, protocol = ip[start:], ip[6] if ip[6] != 60 else ip[40]
        pseudo = ip[8:40] + struct.pack(">II", len(inner), protocol)
        return struct.unpack_from(">H", ip, 4)[0] == len(ip) - 40 and words_are_right(pseudo + inner)
    inner = ip[20:]
    pseudo = ip[12:20] + bytes((0, ip[9])) + struct.pack(">H", len(inner))
    return (
        ip[0] == 0x45
        and struct.unpack_from(">H", ip, 2)[0] == len(ip)
        and words_are_right(ip[:20])
        and (words_are_right(pseudo + inner))
    )


@pytest.fixture(params=["the relay", "the kernel"])
def way(request: pytest.FixtureRequest, make_netns: Callable[[], Netns]) -> Site:
    """A node with a relay, or the kernel's own path with a relay behind it, and its peer."""
    return Site(make_netns(), make_netns(), in_kernel=request.param == "the kernel")


@pytest.fixture
def relay(make_netns: Callable[[], Netns]) -> Site:
    """A node with a relay, and its peer."""
    return Site(make_netns(), make_netns())
