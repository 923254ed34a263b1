"""Generic netlink: the number of a family, which the kernel gives it when it comes (linux/genetlink.h)."""

import errno
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import Malformed, parse, text
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket

NETLINK_GENERIC: Final = 16
HEADER: Final = Struct("=BBxx")  # struct genlmsghdr: command, version

_GENL_ID_CTRL: Final = 16
_CTRL_CMD_GETFAMILY: Final = 3
_CTRL_ATTR_FAMILY_ID: Final = 1
_CTRL_ATTR_FAMILY_NAME: Final = 2


def family(opened: NetlinkSocket, name: str) -> int | None:
    """None where the kernel has none of this name, after trying to load its module. Raises `NetlinkError`."""
    try:
        body = opened.ask(Message(_GENL_ID_CTRL, 0, ask_family(name)))
    except NetlinkError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return family_in(body)


def ask_family(name: str) -> bytes:
    return HEADER.pack(_CTRL_CMD_GETFAMILY, 1) + text(_CTRL_ATTR_FAMILY_NAME, name)


def family_in(body: bytes) -> int:
    """Raises `Malformed`."""
    number = parse(body, HEADER.size).number(_CTRL_ATTR_FAMILY_ID)
    if number is None:
        raise Malformed("a family without a number")
    return number
