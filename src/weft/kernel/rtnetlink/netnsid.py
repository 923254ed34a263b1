"""Numbers of network namespaces, of which each has its own for the others (linux/net_namespace.h). Pure."""

from typing import Final

from weft.kernel.rtnetlink.attributes import parse, u32
from weft.kernel.rtnetlink.netlink import Message

RTM_GETNSID: Final = 90
NETNSA_NSID: Final = 1
NETNSA_FD: Final = 3

_RTGENMSG: Final = b"\0\0\0\0"  # family, padded
_NOT_ASSIGNED: Final = 0xFFFFFFFF


def get_number(descriptor: int) -> Message:
    return Message(RTM_GETNSID, 0, _RTGENMSG + u32(NETNSA_FD, descriptor))


def parse_number(body: bytes) -> int:
    """Read RTM_NEWNSID; -1 if the namespace has no number. Raises `Malformed`."""
    number = parse(body, len(_RTGENMSG)).number(NETNSA_NSID)
    return -1 if number in (None, _NOT_ASSIGNED) else number or 0
