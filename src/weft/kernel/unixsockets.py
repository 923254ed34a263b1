"""Asks the kernel which users hold a Unix socket (unix_diag): no connection is made, so no holder can keep us waiting.

Knows the sockets of the calling thread's network namespace.
"""

import socket
from contextlib import closing
from struct import Struct
from typing import Final

from weft.kernel.attributes import Attributes, parse
from weft.kernel.netlink import NetlinkSocket

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_UDIAG_SHOW_NAME: Final = 0x1
_UDIAG_SHOW_UID: Final = 0x40  # Linux 5.3
_UNIX_DIAG_NAME: Final = 0
_UNIX_DIAG_UID: Final = 7
_ALL_STATES: Final = 0xFFFFFFFF
_REQUEST: Final = Struct("=BBHIIIII")  # struct unix_diag_req: family, protocol, states, inode, show, cookie
_ANSWER: Final = Struct("=BBBBIII")  # struct unix_diag_msg: family, type, state, inode, cookie


def owners(name: str) -> frozenset[int]:
    """The users who have a socket with this abstract name (without its NUL), by number; `OSError` if not known.

    A socket belongs to the user of the process that made it, whoever was given it since.
    """
    wanted = b"\0" + name.encode()
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _UDIAG_SHOW_NAME | _UDIAG_SHOW_UID, 0, 0)
    with closing(NetlinkSocket.open(_NETLINK_SOCK_DIAG)) as diag:
        answers = diag.dump(_SOCK_DIAG_BY_FAMILY, request)
    uids = (_owner(parse(answer, _ANSWER.size), wanted) for answer in answers)
    return frozenset(uid for uid in uids if uid is not None)


def _owner(attributes: Attributes, wanted: bytes) -> int | None:
    return attributes.number(_UNIX_DIAG_UID) if attributes.get(_UNIX_DIAG_NAME) == wanted else None
