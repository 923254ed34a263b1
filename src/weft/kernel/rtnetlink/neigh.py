"""Messages about neighbours and forwarding entries: values to bytes and back (linux/neighbour.h).

Both are RTM_NEWNEIGH; those of family AF_BRIDGE are forwarding entries (FDB) of a VXLAN device or a bridge port.
Readers raise `Malformed`.
"""

import socket
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import AF, Malformed, attribute, fixed, parse, u8, u32
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.reported import NUD_PERMANENT, NUD_REACHABLE, FdbInfo, NeighbourInfo
from weft.model.net import Ip, Mac

RTM_NEWNEIGH: Final = 28
RTM_DELNEIGH: Final = 29
RTM_GETNEIGH: Final = 30

NDA_DST: Final = 1
NDA_LLADDR: Final = 2
NDA_CACHEINFO: Final = 3
NDA_VLAN: Final = 5
NDA_PORT: Final = 6
NDA_VNI: Final = 7
NDA_IFINDEX: Final = 8
NDA_MASTER: Final = 9
NDA_PROTOCOL: Final = 12

NTF_SELF: Final = 0x02
NTF_MASTER: Final = 0x04

NDMSG: Final = Struct("=BxxxiHBB")  # family, index, state, flags, type
_CACHEINFO: Final = Struct("=IIII")  # struct nda_cacheinfo: since confirmed, used and updated; references
_TICKS: Final = 100  # a second, of all times that the kernel tells (USER_HZ)


def parse_neighbour(body: bytes) -> NeighbourInfo:
    _, index, state, flags, _ = fixed(NDMSG, body)
    attrs = parse(body, NDMSG.size)
    ip = attrs.ip(NDA_DST)
    if ip is None:
        raise Malformed("a neighbour without an address")
    protocol = attrs.number(NDA_PROTOCOL) or 0
    return NeighbourInfo(index=index, ip=ip, mac=attrs.mac(NDA_LLADDR), state=state, flags=flags, protocol=protocol)


def parse_fdb(body: bytes) -> FdbInfo:
    _, index, state, flags, _ = fixed(NDMSG, body)
    attrs = parse(body, NDMSG.size)
    mac = attrs.mac(NDA_LLADDR)
    if mac is None:
        raise Malformed("a forwarding entry without a MAC address")
    return FdbInfo(
        index=index,
        mac=mac,
        remote=attrs.ip(NDA_DST),
        state=state,
        flags=flags,
        master=attrs.number(NDA_MASTER) or 0,
        port=attrs.network_number(NDA_PORT) or 0,
        vni=attrs.number(NDA_VNI) or 0,
        via=attrs.number(NDA_IFINDEX) or 0,
        vlan=attrs.number(NDA_VLAN) or 0,
    )


def parse_used(body: bytes) -> tuple[Ip, float] | None:
    """Where a forwarding entry of a VXLAN device leads, and how many seconds ago a packet was sent by it last."""
    attrs = parse(body, NDMSG.size)
    remote = attrs.ip(NDA_DST)
    if remote is None:
        return None
    _, used, _, _ = fixed(_CACHEINFO, attrs.get(NDA_CACHEINFO, b""))
    return remote, used / _TICKS


def family_and_index(body: bytes) -> tuple[int, int]:
    """Reads little, so that others' notices are dropped cheaply."""
    family, index, *_ = fixed(NDMSG, body)
    return family, index


def list_neighbours(family: int, index: int) -> tuple[int, bytes]:
    """`family` 0 lists both, `index` 0 all links."""
    return RTM_GETNEIGH, NDMSG.pack(family, 0, 0, 0, 0) + (u32(NDA_IFINDEX, index) if index else b"")


def list_fdb(index: int) -> tuple[int, bytes]:
    """`index` 0 lists all links."""
    return list_neighbours(socket.AF_BRIDGE, index)


def get_neighbour(index: int, ip: Ip) -> Message:
    """ENOENT if there is none. Needs Linux 5.0, as `get_fdb`."""
    return Message(RTM_GETNEIGH, 0, NDMSG.pack(AF[ip.version], index, 0, 0, 0) + attribute(NDA_DST, ip.packed))


def get_fdb(bridge: int, mac: Mac) -> Message:
    """Ask a bridge at which of its ports a MAC is; ENOENT if it does not know."""
    body = NDMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0) + attribute(NDA_LLADDR, mac)
    return Message(RTM_GETNEIGH, 0, body + u32(NDA_MASTER, bridge))


def learn_fdb(port: int, mac: Mac) -> Message:
    """Teach a bridge that a MAC is at a port, as if it had heard it. EPERM while the port does not forward."""
    body = NDMSG.pack(socket.AF_BRIDGE, port, NUD_REACHABLE, NTF_MASTER, 0) + attribute(NDA_LLADDR, mac)
    return Message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body)


def add_neighbour(index: int, ip: Ip, mac: Mac, *, protocol: int = PROTOCOL, replace: bool = True) -> Message:
    """Permanent."""
    flags = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    body = NDMSG.pack(AF[ip.version], index, NUD_PERMANENT, 0, 0) + attribute(NDA_DST, ip.packed)
    return Message(RTM_NEWNEIGH, flags, body + attribute(NDA_LLADDR, mac) + u8(NDA_PROTOCOL, protocol))


def delete_neighbour(index: int, ip: Ip) -> Message:
    return Message(RTM_DELNEIGH, 0, NDMSG.pack(AF[ip.version], index, 0, 0, 0) + attribute(NDA_DST, ip.packed))


def add_fdb(index: int, mac: Mac, remote: Ip, *, replace: bool = True) -> Message:
    """Permanent, in the device's own table; without `replace`, EEXIST if `mac` has one."""
    flags = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    body = NDMSG.pack(socket.AF_BRIDGE, index, NUD_PERMANENT, NTF_SELF, 0) + attribute(NDA_LLADDR, mac)
    return Message(RTM_NEWNEIGH, flags, body + attribute(NDA_DST, remote.packed))


def delete_fdb(index: int, mac: Mac, remote: Ip | None = None) -> Message:
    """Delete one remote of an entry, or with None all of them."""
    body = NDMSG.pack(socket.AF_BRIDGE, index, 0, NTF_SELF, 0) + attribute(NDA_LLADDR, mac)
    return Message(RTM_DELNEIGH, 0, body + (b"" if remote is None else attribute(NDA_DST, remote.packed)))
