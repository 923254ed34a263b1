"""Whose a Unix socket is: unix_diag shows holders without a connection, so none can keep us waiting.

It knows the sockets of the calling thread's network namespace.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Final, NamedTuple

from weft.kernel.rtnetlink.attributes import parse
from weft.kernel.rtnetlink.netlink import NetlinkSocket

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_UDIAG_SHOW_NAME: Final = 0x1
_UDIAG_SHOW_MEMINFO: Final = 0x20
_UDIAG_SHOW_UID: Final = 0x40  # Linux 5.3
_UNIX_DIAG_NAME: Final = 0
_UNIX_DIAG_MEMINFO: Final = 5
_UNIX_DIAG_UID: Final = 7
_ALL_STATES: Final = 0xFFFFFFFF
_REQUEST: Final = Struct("=BBHIIIII")  # struct unix_diag_req: family, protocol, states, inode, show, cookie
_ANSWER: Final = Struct("=BBBBIII")  # struct unix_diag_msg: family, type, state, inode, cookie

_MEMINFO: Final = Struct("=II")  # SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF (linux/sock_diag.h), and others behind them
_SHOWN: Final = _UDIAG_SHOW_NAME | _UDIAG_SHOW_UID | _UDIAG_SHOW_MEMINFO

_UCRED: Final = Struct("=iII")  # struct ucred: pid, uid, gid (unix(7))


_SO_RCVBUFFORCE: Final = 33  # asm-generic/socket.h
SEAL: Final = (1 << 30) - 1  # bytes, the most that there can be; the kernel doubles it, and nothing uses it


class Holder(NamedTuple):
    """The user who made a named socket (and may have passed it on), and its receive buffer in bytes."""

    uid: int
    room: int


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as they were when it connected or listened (SO_PEERCRED, unix(7))."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def is_root(connection: socket.socket) -> bool:
    _, uid = peer_of(connection)
    return uid == 0


def seal(made: socket.socket) -> bool:
    """Mark a socket as a daemon's; False where no process can, in a user namespace."""
    try:
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SEAL)
    except PermissionError:
        return False
    return True


def holders(name: str) -> list[Holder]:
    """The sockets with this abstract name (without its NUL). Raises `OSError` if the kernel does not tell."""
    return [holder for found, holder in _named() if found == name.encode()]


def holders_below(prefix: str) -> dict[str, list[Holder]]:
    """Holders by what follows `prefix` in their names. Names that are not printable text are left out."""
    found: dict[str, list[Holder]] = {}
    for name, holder in _named():
        rest = name.decode(errors="replace").removeprefix(prefix) if name.startswith(prefix.encode()) else ""
        if rest and rest.isprintable() and "\N{REPLACEMENT CHARACTER}" not in rest:
            found.setdefault(rest, []).append(holder)
    return found


def _named() -> Iterator[tuple[bytes, Holder]]:
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOWN, 0, 0)
    with closing(NetlinkSocket.open(_NETLINK_SOCK_DIAG)) as diag:
        for answer in diag.dump(_SOCK_DIAG_BY_FAMILY, request):
            told = parse(answer, _ANSWER.size)
            name = told.get(_UNIX_DIAG_NAME, b"")
            if not name.startswith(b"\0"):
                continue
            uid = told.number(_UNIX_DIAG_UID)
            if uid is None:
                raise OSError(errno.EOPNOTSUPP, "the kernel does not tell the users of Unix sockets")
            _, room = _MEMINFO.unpack_from(told[_UNIX_DIAG_MEMINFO])
            yield bytes(name[1:]), Holder(uid, room)
