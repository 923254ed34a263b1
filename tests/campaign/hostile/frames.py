"""Clients by chance that break the rules of the daemon's socket: frames, descriptors, and answers for delegates.

Runs in the daemon's network namespace, with the root directory of the site's caller.
"""

import json
import os
import socket
import struct
from array import array
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.campaign.hostile.site import Site
from tests.support.cni.frames import SECONDS, decode_done, encode_call
from weft.cni.host.sysctls import is_outside, open_settings
from weft.cni.serve.server import MAX_DESCRIPTORS
from weft.model.value import replace
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Call, Frame, FrameError, Kind

_NETLINK_NETFILTER: Final = 12  # linux/netlink.h
_ANOTHER: Final = "another pod's namespace"
# It asks its client for a directory, and changes nothing in there: so it is anyhow.
_TUNING: Final = {"sysctl": {"net.core.somaxconn": "4096"}, "prevResult": {"cniVersion": "1.1.0"}}
# Codes for what is wrong with a client: its variables, its stdin, its namespace, its version, or anything else.
PLUGINS: Final = (
    *["bridge"] * 6,
    *["tuning"] * 3,
    "loopback",
    "host-local",
    "",
    "no-such",
    "../bridge",
    "\x1b[0m",
    "x" * 5000,
)
CODES: Final = frozenset({4, 5, 8, 11, 999})


@dataclass(slots=True, kw_only=True)
class Hostile:
    """One connection: what is sent, with which descriptors, and what may come back.

    `spoiled` are the names of descriptors that are missing, one too many, or not what they say.
    """

    call: Call
    data: bytes = b""
    named: list[tuple[str, int]]
    spoiled: set[str] = field(default_factory=set)
    fails: bool = False
    what: list[str] = field(default_factory=list)
    rans: tuple[bytes, ...] = ()
    opened: tuple[tuple[bytes, int], ...] = ()
    hangs_up: bool = False
    delegated: bool = False

    def spoil(self, what: str, *names: str) -> None:
        self.spoiled |= set(names)
        self.what.append(what)

    def must_fail(self) -> bool:
        """Tell whether a descriptor is spoiled that the daemon uses for this plugin."""
        names = " ".join(name for name, _ in self.named).split()
        if len(names) != len(self.named) or len(set(names)) < len(names) or len(names) > MAX_DESCRIPTORS:
            return True
        used = {"own", "root"}
        if "netns" in names:
            used |= {"netns"} if is_outside(self.call.plugin) else {"netns", "route"}
        return not used.isdisjoint(self.spoiled)


def attempt(chance: Random, site: Site, config: Any, env: Mapping[str, str]) -> tuple[Hostile, Ran | None]:
    """Be one such client; returns what it did and what it was answered."""

    def inside() -> tuple[Hostile, Ran | None]:
        with ExitStack() as opened, site.root() as root:
            plugin = chance.choice(PLUGINS)
            stdin = json.dumps({**config, **_TUNING} if plugin == "tuning" else config).encode()
            call = Call(plugin=plugin, stdin=stdin, env=dict(env))
            hostile = Hostile(call=call, named=list(_descriptors(site, root, opened).items()))
            _spoil(chance, site, hostile, opened)
            return hostile, _converse(site.socket, hostile)

    return site.host.call(inside)


def _descriptors(site: Site, root: int, opened: ExitStack) -> dict[str, int]:
    """What a good client sends."""

    def within() -> dict[str, int]:
        route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        return {"route": route.detach()}

    own, found = os.open("/proc/thread-self/ns/net", os.O_RDONLY), site.free.call(within)
    for fd in (own, *found.values()):
        opened.callback(os.close, fd)
    return {"own": own, "root": root, "netns": site.free.fd, **found}


def _spoil(chance: Random, site: Site, hostile: Hostile, opened: ExitStack) -> None:
    for change in chance.sample((_missing, _surplus, _swapped, _other, _renamed, _nothing), k=chance.choice((1, 1, 2))):
        change(chance, site, hostile, opened)
    hostile.fails = hostile.must_fail()
    call = replace(
        hostile.call,
        descriptors=tuple(name for name, _ in hostile.named),
        netns_problem=chance.choice(("",) * 8 + ("statfs 2", "magic x", "open " + "9" * 50, "\n")),
        stdin_error=chance.choice(("",) * 8 + ("Is a directory", "x" * 5000)),
    )
    hostile.data = encode_call(call, version=chance.choice((frames.VERSION,) * 9 + (frames.VERSION - 1,)))
    if chance.random() < 0.4:
        hostile.data = _broken(chance, hostile.data)
        hostile.what.append("broken bytes")
        hostile.fails = False  # whatever it says now
    hostile.rans = tuple(_ran(chance) for _ in range(8))
    hostile.opened = tuple(_opened(chance, site, opened) for _ in range(8))
    hostile.hangs_up = chance.random() < 0.1


# --- Descriptors

Change = Callable[[Random, Site, Hostile, ExitStack], None]


def _nothing(_: Random, __: Site, hostile: Hostile, ___: ExitStack) -> None:
    hostile.what.append("good descriptors")


def _missing(chance: Random, _: Site, hostile: Hostile, __: ExitStack) -> None:
    name, _fd = hostile.named.pop(chance.randrange(len(hostile.named)))
    hostile.spoil(f"no {name}", name)


def _surplus(chance: Random, _: Site, hostile: Hostile, __: ExitStack) -> None:
    count = chance.choice((1, 1, 5, 40, 200))
    fd = hostile.named[0][1]
    names = ("extra", "x/net/ipv4", "..", "net", "é", "a/b", "netfilter2")
    more = [(f"{chance.choice(names)}{number}", fd) for number in range(count)]
    hostile.named += more
    hostile.spoil(f"{count} too many", *(name for name, _ in more))


def _swapped(chance: Random, _: Site, hostile: Hostile, __: ExitStack) -> None:
    a, b = chance.sample(range(len(hostile.named)), k=2)
    (one, first), (other, second) = hostile.named[a], hostile.named[b]
    hostile.named[a], hostile.named[b] = (one, second), (other, first)
    hostile.spoil(f"{one} and {other} swapped", *({one, other} - {"root"}))  # which any directory may be


def _renamed(chance: Random, _: Site, hostile: Hostile, __: ExitStack) -> None:
    at = chance.randrange(len(hostile.named))
    name = chance.choice(("", " ", "own", "netns", "..", "../ipv4", "/", "ipv4/conf", "\x1b", "é", "x" * 2000, "a b"))
    right, fd = hostile.named[at]
    if name != right:
        hostile.named[at] = name, fd
        hostile.spoil(f"{right} is called {name[:20]!r}", right, name)


def _other(chance: Random, site: Site, hostile: Hostile, opened: ExitStack) -> None:
    at = chance.randrange(len(hostile.named))
    name = hostile.named[at][0]
    kind, fd = chance.choice(tuple(_others(site).items()))
    if name == "root":
        return  # any directory may be somebody's root
    made = fd()
    opened.callback(os.close, made)
    hostile.named[at] = name, made
    # A namespace it is, but not the socket's.
    wrong = "route" if (name, kind) == ("netns", _ANOTHER) else name
    hostile.spoil(f"{name} is {kind}", wrong)


def _others(site: Site) -> dict[str, Callable[[], int]]:
    def netlink(kind: int) -> int:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, kind).detach()

    return {
        "a file": lambda: os.open("/dev/null", os.O_RDWR),
        "a directory": lambda: os.open("/etc", os.O_PATH | os.O_DIRECTORY),
        "all settings": lambda: os.open("/proc/sys/net", os.O_PATH | os.O_DIRECTORY),
        "settings below": lambda: os.open("/proc/sys/net/ipv4/conf", os.O_PATH | os.O_DIRECTORY),
        "a mount namespace": lambda: os.open("/proc/self/ns/mnt", os.O_RDONLY),
        _ANOTHER: lambda: site.held.call(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY)),
        "another pod's socket": lambda: site.held.call(lambda: netlink(socket.NETLINK_ROUTE)),
        "a socket of another kind": lambda: site.free.call(lambda: netlink(_NETLINK_NETFILTER)),
        "a socket of TCP": lambda: site.free.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()),
        "a process": lambda: os.pidfd_open(os.getpid()),
        "memory": lambda: os.memfd_create("x"),
    }


# --- Bytes


def _broken(chance: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 6))):
        at = chance.randrange(min(len(changed), 60)) if changed else 0
        match chance.randrange(6):
            case 0:
                del changed[chance.randrange(len(changed) + 1) :]
            case 1:
                changed[at:at] = chance.randbytes(chance.choice((1, 4, 100)))
            case 2:
                changed[at : at + 4] = struct.pack(
                    ">I", chance.choice((0, 1, 0xFFFF, 1 << 20, (1 << 20) + 1, 0xFFFFFFFF))
                )
            case 3:
                del changed[at : at + chance.choice((1, 4))]
            case 4:
                changed[at : at + 1] = chance.randbytes(1)
            case _:
                changed += chance.randbytes(chance.choice((1, 8, 5000)))
    return bytes(changed)


def _ran(chance: Random) -> bytes:
    """What this client says a delegate did."""
    status = chance.choice((b"missing", b"0", b"1", b"7", b"256", b"-1", b"", b"x" * 99))
    out = chance.choice(
        (b"", b"{}", b"[]", b'{"ips": 7}', b'{"code": "x"}', b"\xff\0", b'{"ips": [{"address": "10.0.0.0/33"}]}')
    )
    data = frames.encode(
        Frame(kind=chance.choice((Kind.RAN,) * 5 + (Kind.CALL, Kind.DONE)), fields=(status, out, b"log"))
    )
    return _broken(chance, data) if chance.random() < 0.3 else data


def _opened(chance: Random, site: Site, opened: ExitStack) -> tuple[bytes, int]:
    """What this client says that it has opened, and what it sends."""
    kinds = {
        "the right one": lambda: site.free.call(lambda: open_settings("core")),
        "the host's": lambda: open_settings("core"),
        **_others(site),
    }
    fd = kinds[chance.choice((*["the right one"] * 9, *kinds))]()
    opened.callback(os.close, fd)
    number = chance.choice((b"0",) * 5 + (b"2", b"4095", b"4096", b"-1", b"", b"x" * 99))
    data = frames.encode(Frame(kind=chance.choice((Kind.OPENED,) * 5 + (Kind.RAN, Kind.OPEN)), fields=(number,)))
    return (_broken(chance, data) if chance.random() < 0.2 else data), fd


def _complete(data: bytes) -> bool:
    """Tell whether the daemon can judge it without more: a frame, or what can never become one."""
    try:
        return frames.FrameReader().feed(data) is not None
    except FrameError:
        return True


def _converse(path: Path, hostile: Hostile) -> Ran | None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd for _, fd in hostile.named]))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SECONDS)
        sock.connect(str(path))
        with suppress(OSError):  # it may have seen enough
            sent = sock.sendmsg([hostile.data[:100_000]], rights) if hostile.data else 0
            sock.sendall(hostile.data[sent:])
            if not _complete(hostile.data):
                sock.shutdown(socket.SHUT_WR)
        return None if hostile.hangs_up else _listen(sock, hostile)


def _listen(sock: socket.socket, hostile: Hostile) -> Ran | None:
    rans, directories = iter(hostile.rans), iter(hostile.opened)
    reader = frames.FrameReader()
    with suppress(ConnectionResetError, BrokenPipeError):
        while data := sock.recv(frames.HEADER_SIZE if reader.empty else 1 << 16):
            frame = reader.feed(data)
            if frame is not None and frame.kind == Kind.DONE:
                return decode_done(frame)
            if frame is not None and frame.kind != Kind.BEGUN:
                hostile.delegated = True
                answer, *fds = next(directories) if frame.kind == Kind.OPEN else (next(rans),)
                socket.send_fds(sock, [answer or b"\0"], fds)
                if not _complete(answer):  # a delegate may take as long as it likes
                    sock.shutdown(socket.SHUT_WR)
    return None
