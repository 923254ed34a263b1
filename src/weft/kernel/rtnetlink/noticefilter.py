"""A filter on the monitor's socket: what is of no interest does not even wake the daemon (linux/filter.h).

That is what our own sockets caused: a start with 5,000 peers causes 20,000 notices, which would fill the monitor's
buffer. And what pods cause all the time: links as their bridge sees them, and the kernel's routes to its own addresses.
"""

import ctypes
import socket
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from weft.kernel.rtnetlink import link, netconf, route

_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = Struct("=HBBI")  # struct sock_filter: code, jump if true, jump if false, operand
_PROGRAM: Final = Struct("@HP")  # struct sock_fprog: length, pointer

# BPF_LD with BPF_W, BPF_H or BPF_B, absolute; BPF_JMP BPF_JEQ BPF_K; BPF_RET BPF_K
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
# nlmsg_type and nlmsg_pid in struct nlmsghdr; behind it ifi_family in struct ifinfomsg, rtm_table in struct rtmsg
_TYPE_AT, _PORT_AT, _FAMILY_AT, _TABLE_AT = 4, 12, 16, 20
_SETTING_OF_AT: Final = 24  # NETCONFA_IFINDEX, the first attribute behind struct netconfmsg
_LOCAL_TABLE: Final = 255  # RT_TABLE_LOCAL
_ALL: Final = 0xFFFFFFFF


class _Step(NamedTuple):
    """An instruction; labels say where a comparison goes, without one to the next."""

    code: int
    operand: int
    true: str = ""
    false: str = ""
    label: str = ""


def spare(sock: socket.socket, *, ports: Iterable[int], kinds: Iterable[int]) -> None:
    """Drop messages of these types (RTM_…) that were caused by the netlink sockets with these ports.

    Also drop links as a bridge's ports (family AF_BRIDGE), routes of the local table and settings of one link.
    """
    # The filter loads numbers as a network would send them; netlink's are in the host's order.
    own = [_Step(_IF_EQUAL, socket.htonl(port), true="own") for port in ports]
    spared = [_Step(_IF_EQUAL, socket.htons(kind), true="drop") for kind in kinds]
    program = [
        _Step(_LOAD_HALF, _TYPE_AT),
        *(_Step(_IF_EQUAL, socket.htons(kind), true="link") for kind in (link.RTM_NEWLINK, link.RTM_DELLINK)),
        _Step(_IF_EQUAL, socket.htons(netconf.RTM_NEWNETCONF), true="setting"),
        _Step(_IF_EQUAL, socket.htons(netconf.RTM_DELNETCONF), true="drop"),
        _Step(_IF_EQUAL, socket.htons(route.RTM_NEWROUTE), true="route"),
        _Step(_IF_EQUAL, socket.htons(route.RTM_DELROUTE), true="route", false="any"),
        _Step(_LOAD_BYTE, _FAMILY_AT, label="link"),
        _Step(_IF_EQUAL, socket.AF_UNSPEC, true="any", false="drop"),
        _Step(_LOAD_WORD, _SETTING_OF_AT, label="setting"),
        _Step(_IF_EQUAL, netconf.ALL_LINKS, true="any", false="drop"),
        _Step(_LOAD_BYTE, _TABLE_AT, label="route"),
        _Step(_IF_EQUAL, _LOCAL_TABLE, true="drop"),
        _Step(_LOAD_WORD, _PORT_AT, label="any"),
        *own,
        _Step(_RETURN, _ALL),
        _Step(_LOAD_HALF, _TYPE_AT, label="own"),
        *spared,
        _Step(_RETURN, _ALL),
        _Step(_RETURN, 0, label="drop"),
    ]
    code = ctypes.create_string_buffer(_assemble(program))
    # The kernel copies the program before the call returns.
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(code)))


def _assemble(program: list[_Step]) -> bytes:
    places = {step.label: place for place, step in enumerate(program)}

    def distance(place: int, label: str) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        _INSTRUCTION.pack(step.code, distance(place, step.true), distance(place, step.false), step.operand)
        for place, step in enumerate(program)
    )
