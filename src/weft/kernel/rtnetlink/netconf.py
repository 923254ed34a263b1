"""Notices about forwarding, for all links together (linux/netconf.h). Pure."""

import socket
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import fixed, parse
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.objects import Sysctl

RTM_NEWNETCONF: Final = 80
RTM_DELNETCONF: Final = 81
ALL_LINKS: Final = 0xFFFFFFFF  # NETCONFA_IFINDEX_ALL

_NETCONFMSG: Final = Struct("=B3x")  # family
_NETCONFA_IFINDEX: Final = 1
_NETCONFA_FORWARDING: Final = 2
_FAMILIES: Final = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}


def forwarding(body: bytes) -> Sysctl | None:
    """None if RTM_NEWNETCONF speaks of another setting. Raises `Malformed`."""
    (family,) = fixed(_NETCONFMSG, body)
    attributes = parse(body, _NETCONFMSG.size)
    value = attributes.number(_NETCONFA_FORWARDING)
    if family not in _FAMILIES or value is None or attributes.number(_NETCONFA_IFINDEX) != ALL_LINKS:
        return None
    return Sysctl(name=FORWARDING[_FAMILIES[family]], value="1" if value else "0")
