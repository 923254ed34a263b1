"""A filter on the monitor's socket: what our own socket caused does not even wake us (linux/filter.h).

A start with 5,000 peers causes 20,000 notices; without the filter they fill the monitor's buffer.
"""

import ctypes
import socket
from collections.abc import Iterable
from struct import Struct
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = Struct("=HBBI")  # struct sock_filter: code, jump if true, jump if false, operand
_PROGRAM: Final = Struct("@HP")  # struct sock_fprog: length, pointer

# BPF_LD with BPF_W or BPF_H, absolute; BPF_JMP BPF_JEQ BPF_K; BPF_RET BPF_K
_LOAD_WORD, _LOAD_HALF, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_TYPE_AT, _PORT_AT = 4, 12  # nlmsg_type and nlmsg_pid in struct nlmsghdr
_ALL: Final = 0xFFFFFFFF


def drop_own(sock: socket.socket, *, ports: Iterable[int], kinds: Iterable[int]) -> None:
    """Drop messages of these types (RTM_…) that were caused by the netlink sockets with these ports."""
    # The filter loads numbers as a network would send them; netlink's are in the host's order.
    own = [socket.htonl(port) for port in ports]
    spared = [socket.htons(kind) for kind in kinds]
    program = [
        (_LOAD_WORD, 0, 0, _PORT_AT),
        *((_IF_EQUAL, len(own) - position, 0, port) for position, port in enumerate(own)),
        (_RETURN, 0, 0, _ALL),
        (_LOAD_HALF, 0, 0, _TYPE_AT),
        *((_IF_EQUAL, len(spared) - position, 0, kind) for position, kind in enumerate(spared)),
        (_RETURN, 0, 0, _ALL),
        (_RETURN, 0, 0, 0),
    ]
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*each) for each in program))
    # The kernel copies the program before the call returns.
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(code)))
