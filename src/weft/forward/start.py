"""Starts and ends relays. What a relay needs is opened here, so that it needs no rights of its own."""

import os
import signal
import socket
from contextlib import ExitStack, suppress
from ipaddress import IPv6Address
from pathlib import Path
from struct import pack
from typing import Final

from weft.forward import control
from weft.kernel import tun
from weft.kernel.ending import end, here, spawn
from weft.kernel.rtnetlink.netlink import widen
from weft.model.net import Ip
from weft.model.value import Value

_UDP_GRO: Final = 104  # linux/udp.h
_IP_MTU_DISCOVER: Final = 10  # linux/in.h
_IPV6_MTU_DISCOVER: Final = 23  # linux/in6.h
_IPV6_FREEBIND: Final = 78
_PMTUDISC_DO: Final = 2
_SO_NETNS_COOKIE: Final = 71  # Linux 5.14
_SOL_RAW: Final = 255
_ICMP_FILTER: Final = 1  # linux/icmp.h
_ICMPV6_FILTER: Final = 1  # linux/icmpv6.h
_RECEIVES: Final = 4 << 20  # bytes: some milliseconds of packets while the processor does something else
_SENDS: Final = 512 << 10  # bytes: while a slow link takes them, the relay takes nothing from peers
_MOST_QUEUES: Final = 4


class Job(Value):
    """Packets of `device` go to peers, from `local` and to `port`, and come back."""

    device: str
    local: Ip
    port: int
    joined: bool = True  # the kernel may join datagrams, unless something before the relay looks at each
    own6: IPv6Address | None = None  # the device's address, from which errors about IPv6 packets come


def start(job: Job, about: str, program: Path, socket_path: Path) -> int:
    """Start the relay of an existing device; returns its process id. Raises `OSError`."""
    # Half of the processors are for what sends and receives.
    queues = max(1, min((os.cpu_count() or 1) // 2, _MOST_QUEUES))
    with ExitStack() as held:
        udp = _udp(held, job)
        icmp = _icmp(held)
        icmp6 = icmp if job.own6 is None else _icmp6(held, job.own6)
        inherited = [held.enter_context(control.listen(socket_path)).fileno(), icmp, icmp6, udp]
        for _ in range(queues):
            inherited.append(tun.open_queue(job.device))
            held.callback(os.close, inherited[-1])
        return spawn([str(program), str(job.port), str(queues), about], inherited)


def namespace() -> str:
    """An identifier of this thread's network namespace, unique in this boot."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        return made.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8).hex()
    seen = Path("/proc/thread-self/ns/net").stat()  # whose number another one may have later
    return f"{seen.st_dev}:{seen.st_ino}"


def _udp(held: ExitStack, job: Job) -> int:
    """Open the socket of the port, exclusively: with SO_REUSEPORT a container's root would get a share."""
    family = socket.AF_INET if job.local.version == 4 else socket.AF_INET6
    opened = held.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
    widen(opened, _SENDS, socket.SO_SNDBUF)
    widen(opened, _RECEIVES)
    opened.setsockopt(socket.SOL_UDP, _UDP_GRO, job.joined)
    if family == socket.AF_INET:
        opened.setsockopt(socket.SOL_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
    else:
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
    opened.bind((str(job.local), job.port))
    return opened.fileno()


def _icmp(held: ExitStack) -> int:
    """Open a socket that sends errors about IPv4 packets and receives nothing."""
    opened = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    opened.setsockopt(_SOL_RAW, _ICMP_FILTER, pack("=I", 0xFFFFFFFF))
    return opened.fileno()


def _icmp6(held: ExitStack, own: IPv6Address) -> int:
    """The same for IPv6. The device may get its address a moment later."""
    opened = held.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))
    opened.setsockopt(socket.IPPROTO_ICMPV6, _ICMPV6_FILTER, b"\xff" * 32)
    opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    opened.bind((str(own), 0))
    return opened.fileno()


def end_all() -> None:
    """End all relays of this thread's network namespace, also those whose sockets the daemon does not know.

    Such a relay (`--state-dir` has changed, an older weft) would go on taking its share of the device's packets.
    """
    for pid in here(_is_relay):
        end(pid, _is_relay, signal.SIGKILL)


def _is_relay(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].endswith(b"/weft-relay")
    except OSError:  # it has ended
        return False
