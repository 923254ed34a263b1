"""Names who holds a port that is ours, in the calling thread's network namespace, as far as it can be seen."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

_NET: Final = Path("/proc/thread-self/net")
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9  # columns of /proc/net/udp and /proc/net/tcp (proc(5))
_LISTENS: Final = {"tcp": "0A", "udp": "07"}
_NAME: Final = 64


def with_holder(message: str, number: int, port: int) -> str:
    """Add to what the kernel says of a step that needs a UDP port, 0 for none, who has it, if that is what it says."""
    found = holder(port, "udp") if number == errno.EADDRINUSE and port else ""
    return f"{message}: UDP port {port} is held by {found}" if found else message


def holder(port: int, protocol: Literal["tcp", "udp"]) -> str:
    """Who holds a port: its process, or what is known of it; empty if nobody seems to.

    What a process of another user or with more rights has open, the kernel does not show us.
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
                        return f"process {folder.name} ({_name(folder)})"
    return ""


def _name(folder: Path) -> str:
    """A program's name; a process may choose it, so nothing in it reaches a terminal as it is."""
    name = (folder / "comm").read_text(errors="replace").strip()[:_NAME]
    return name if name.isprintable() else repr(name)
