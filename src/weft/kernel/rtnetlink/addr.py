"""Messages about addresses: values to bytes and back (linux/if_addr.h). Readers raise `Malformed`."""

import socket
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import AF, Malformed, attribute, fixed, parse, u32
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from weft.model.kernel.reported import AddressInfo
from weft.model.net import Ip

RTM_NEWADDR: Final = 20
RTM_DELADDR: Final = 21
RTM_GETADDR: Final = 22

IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2
IFA_LABEL: Final = 3
IFA_BROADCAST: Final = 4
IFA_FLAGS: Final = 8
IFA_TARGET_NETNSID: Final = 10
IFA_PROTO: Final = 11

IFA_F_SECONDARY: Final = 0x01  # IPv4; for IPv6 the same bit means temporary
IFA_F_NODAD: Final = 0x02
IFA_F_DADFAILED: Final = 0x08
IFA_F_DEPRECATED: Final = 0x20
IFA_F_TENTATIVE: Final = 0x40
IFA_F_PERMANENT: Final = 0x80

_IFADDRMSG: Final = Struct("=BBBBI")  # family, prefix length, flags, scope, index


def parse_address(body: bytes) -> AddressInfo:
    family, prefixlen, short_flags, scope, index = fixed(_IFADDRMSG, body)
    attrs = parse(body, _IFADDRMSG.size)
    flags = attrs.number(IFA_FLAGS)
    flags = short_flags if flags is None else flags
    # IFA_ADDRESS is the other end's on a point-to-point link, and then IFA_LOCAL is ours.
    local, remote = attrs.ip(IFA_LOCAL), attrs.ip(IFA_ADDRESS)
    ip = local or remote
    if ip is None:
        raise Malformed("an address message without an address")
    secondary = bool(flags & IFA_F_SECONDARY)
    return AddressInfo(
        index=index,
        ip=ip,
        prefixlen=prefixlen,
        peer=remote if remote != ip else None,
        broadcast=attrs.ip(IFA_BROADCAST),
        scope=scope,
        label=attrs.text(IFA_LABEL),
        permanent=bool(flags & IFA_F_PERMANENT),
        secondary=secondary and family == socket.AF_INET,
        tentative=bool(flags & IFA_F_TENTATIVE),
        dad_failed=bool(flags & IFA_F_DADFAILED),
        deprecated=bool(flags & IFA_F_DEPRECATED),
        temporary=secondary and family == socket.AF_INET6,
        protocol=attrs.number(IFA_PROTO) or 0,
    )


def list_addresses(index: int, family: int, *, netns: int) -> tuple[int, bytes]:
    """`index` 0 lists those of all links.

    `netns` is the number of another namespace (IFLA_LINK_NETNSID of a link that leads there), -1 for our own. From
    Linux 6.10 on, with a family (AF_…), listing does not hold rtnetlink's lock: no other program has to wait.
    """
    there = b"" if netns < 0 else u32(IFA_TARGET_NETNSID, netns)
    return RTM_GETADDR, _IFADDRMSG.pack(family, 0, 0, 0, index) + there


def add_address(
    index: int, ip: Ip, prefixlen: int, *, replace: bool, nodad: bool = False, broadcast: Ip | None = None
) -> Message:
    """Scope global, without expiry. `nodad` skips IPv6's duplicate detection (1–2 s)."""
    body = _body(index, ip, prefixlen)
    if broadcast is not None:
        body += attribute(IFA_BROADCAST, broadcast.packed)
    if nodad and ip.version == 6:
        body += u32(IFA_FLAGS, IFA_F_NODAD)
    return Message(RTM_NEWADDR, NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL), body)


def delete_address(index: int, ip: Ip, prefixlen: int) -> Message:
    return Message(RTM_DELADDR, 0, _body(index, ip, prefixlen))


def _body(index: int, ip: Ip, prefixlen: int) -> bytes:
    head = _IFADDRMSG.pack(AF[ip.version], prefixlen, 0, 0, index)
    return head + attribute(IFA_LOCAL, ip.packed) + attribute(IFA_ADDRESS, ip.packed)
