"""The holder of a UDP, TCP or netlink port in the calling thread's network namespace."""

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from weft.model.node.history import PERHAPS

_NET: Final = Path("/proc/thread-self/net")
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9  # columns of /proc/net/udp and /proc/net/tcp (proc(5))
_LISTENS: Final = {"tcp": "0A", "udp": "07"}
_PLAIN: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)  # names that cannot be taken for anything else in a sentence
_NETLINK: Final = Path("/proc/thread-self/net/netlink")
_PROTOCOL, _PORT, _NETLINK_INODE = 1, 2, 9  # columns of it
_ROUTE: Final = "0"  # NETLINK_ROUTE
_SAME_SECONDS: Final = 0.1  # so long a port is not looked for again: a port may be another's later
_MOST: Final = 20  # ports that are looked for in a second
_DESCRIPTORS: Final = 1024  # of a process that are looked at


def with_holder(message: str, number: int, port: int) -> str:
    """Add who holds the UDP port (0 for none) where `number` is EADDRINUSE."""
    found = holder(port, "udp") if number == errno.EADDRINUSE and port else ""
    return f"{message}: UDP port {port} is held by {found}" if found else message


def holder(port: int, protocol: Literal["tcp", "udp"]) -> str:
    """Empty if nobody seems to hold the port.

    The kernel does not show what a process of another user or with more rights has open.
    """
    for uid, inode in _sockets(port, protocol):
        if not inode:
            return "a device of the kernel, as of vxlan or WireGuard"
        return _process(inode) or (
            f"a process of user {uid}, which cannot be seen from here: `ss -{protocol[0]}lpn sport = :{port}` names it"
        )
    return ""


def _sockets(port: int, protocol: str) -> list[tuple[int, int]]:
    """User and inode of each socket that is bound to a port."""
    found = []
    for file in (protocol, f"{protocol}6"):
        with suppress(OSError):
            for line in (_NET / file).read_text().splitlines()[1:]:
                words = line.split()
                _, _, number = words[_LOCAL].rpartition(":")
                if int(number, 16) == port and words[_STATE] == _LISTENS[protocol]:
                    found.append((int(words[_UID]), int(words[_INODE])))
    return found


def _process(inode: int) -> str:
    wanted = f"socket:[{inode}]"
    for folder in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):  # it has ended, or we may not look
            for descriptor in (folder / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) == wanted:  # noqa: PTH115 - it is no path
                        comm = (folder / "comm").read_text(errors="replace").strip()
                        return f"process {folder.name} ({shown(comm)})"
    return ""


def shown(comm: str) -> str:
    """A process chooses its name, so it is quoted unless it is plainly a name."""
    return comm if _PLAIN.fullmatch(comm) else repr(comm)


class Askers:
    """Names the programs behind netlink ports in notices.

    A look-up takes a fraction of a millisecond, so there are a few a second at most; beyond that nobody is named.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._named: dict[int, tuple[float, str]] = {}
        self._since = 0.0
        self._count = 0

    def name(self, port: int) -> str:
        """Empty for port 0, and after too many look-ups."""
        if port == 0:
            return ""
        now = self._clock()
        when, name = self._named.get(port, (-_SAME_SECONDS, ""))
        if now - when < _SAME_SECONDS:
            return name
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
            self._named.clear()
        if self._count >= _MOST:
            return ""
        self._count += 1
        self._named[port] = now, asker(port)
        return self._named[port][1]


def asker(port: int) -> str:
    """Name the program behind a netlink port, after `PERHAPS` unless it provably has the socket.

    A process's first socket gets the process's number as its port, in its own pid namespace, others a meaningless one;
    a process may also choose any. A program that has ended, or whose files we may not read (without CAP_SYS_PTRACE it
    may have more rights than we), proves nothing.
    """
    folder = Path("/proc") / str(port)
    try:
        # The name first: who asked for one change may be gone in a moment.
        told = dict(line.split(":\t", 1) for line in (folder / "status").read_text(errors="replace").splitlines())
    except (OSError, ValueError):
        told = {}
    if told.get("NSpid", "").split()[-1:] != [str(port)]:
        return f"a program at netlink port {port}"
    name = f"{shown(told['Name'])} (pid {port})"
    try:
        inode = _netlink_inode(port)
        with os.scandir(folder / "fd") as descriptors:
            has = {os.readlink(each.path) for each in islice(descriptors, _DESCRIPTORS)}  # noqa: PTH115 - it is no path
    except OSError:
        return f"{PERHAPS}{name}"
    if f"socket:[{inode}]" in has:
        return name
    return f"a program at netlink port {port}" if inode and len(has) < _DESCRIPTORS else f"{PERHAPS}{name}"


def _netlink_inode(port: int) -> int:
    """The rtnetlink socket with this port, 0 for none."""
    for line in _NETLINK.read_text().splitlines()[1:]:
        words = line.split()
        if words[_PROTOCOL] == _ROUTE and words[_PORT] == str(port):
            return int(words[_NETLINK_INODE])
    return 0
