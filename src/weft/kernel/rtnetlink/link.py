"""Messages about interfaces: values to bytes and back (linux/if_link.h). Readers raise `Malformed`."""

import sys
from struct import Struct
from typing import Final, TypedDict, Unpack

from weft.kernel.rtnetlink.attributes import (
    Attributes,
    attribute,
    c_string,
    find,
    fixed,
    nest,
    parse,
    text,
    u8,
    u32,
)
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, Message
from weft.model.kernel.reported import BridgeInfo, Counters, LinkCounts, LinkInfo, PortInfo
from weft.model.net import Mac

RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_GETLINK: Final = 18
RTM_SETLINK: Final = 19

IFLA_ADDRESS: Final = 1
IFLA_IFNAME: Final = 3
IFLA_MTU: Final = 4
IFLA_LINK: Final = 5
IFLA_MASTER: Final = 10
IFLA_PROTINFO: Final = 12
IFLA_TXQLEN: Final = 13
IFLA_OPERSTATE: Final = 16
IFLA_LINKINFO: Final = 18
IFLA_IFALIAS: Final = 20
IFLA_AF_SPEC: Final = 26
IFLA_NET_NS_FD: Final = 28
IFLA_EXT_MASK: Final = 29
IFLA_GROUP: Final = 27
IFLA_LINK_NETNSID: Final = 37
_IFLA_TARGET_NETNSID: Final = 46

IFLA_INFO_KIND: Final = 1
IFLA_INFO_DATA: Final = 2
IFLA_INFO_SLAVE_KIND: Final = 4
IFLA_INFO_SLAVE_DATA: Final = 5

_IFLA_BR_VLAN_FILTERING: Final = 7
_IFLA_BR_MCAST_SNOOPING: Final = 23
_IFLA_BRPORT_STATE: Final = 1
IFLA_BRPORT_MODE: Final = 4
IFLA_BRPORT_ISOLATED: Final = 33
_IFLA_BRPORT_LOCKED: Final = 39
_IFLA_XDP: Final = 43
_IFLA_XDP_PROG_ID: Final = 4
_VETH_INFO_PEER: Final = 1

IFF_UP: Final = 0x1
IFF_LOOPBACK: Final = 0x8
IFF_POINTOPOINT: Final = 0x10
IFF_PROMISC: Final = 0x100
IFF_ALLMULTI: Final = 0x200

_AF_INET: Final = 2
_IFLA_INET_CONF: Final = 1
_IPV4_DEVCONF_ARP_NOTIFY: Final = 22  # linux/ip.h
_AF_INET6: Final = 10
_IFLA_INET6_ADDR_GEN_MODE: Final = 8
_IN6_ADDR_GEN_MODE_NONE: Final = 1
_RTEXT_FILTER_SKIP_STATS: Final = 1 << 3
_IFLA_STATS64: Final = 23
# struct rtnl_link_stats64: packets, bytes, errors and drops, each received and sent; others behind them
_STATS64: Final = Struct("=8Q")
_NO_NAMESPACE: Final = 0xFFFFFFFF
IFINFOMSG: Final = Struct("=BxHiII")  # family, device type, index, flags, mask of flags to change


def header(index: int = 0, *, family: int = 0, flags: int = 0, mask: int = 0) -> bytes:
    return IFINFOMSG.pack(family, 0, index, flags, mask)


def parse_link(body: bytes) -> LinkInfo:
    _, _, index, flags, _ = fixed(IFINFOMSG, body)
    attrs = parse(body, IFINFOMSG.size)
    info = attrs.nest(IFLA_LINKINFO)
    kind = info.text(IFLA_INFO_KIND)
    peer_netns = attrs.number(IFLA_LINK_NETNSID)
    return LinkInfo(
        index=index,
        name=attrs.text(IFLA_IFNAME),
        kind=kind,
        mtu=attrs.number(IFLA_MTU) or 0,
        mac=attrs.mac(IFLA_ADDRESS),
        up=bool(flags & IFF_UP),
        loopback=bool(flags & IFF_LOOPBACK),
        point_to_point=bool(flags & IFF_POINTOPOINT),
        promisc=bool(flags & IFF_PROMISC),
        allmulti=bool(flags & IFF_ALLMULTI),
        master=attrs.number(IFLA_MASTER) or 0,
        link=attrs.number(IFLA_LINK) or 0,
        peer_netns=-1 if peer_netns in (None, _NO_NAMESPACE) else peer_netns or 0,
        operstate=attrs.number(IFLA_OPERSTATE) or 0,
        queue_length=attrs.number(IFLA_TXQLEN) or 0,
        alias=attrs.text(IFLA_IFALIAS),
        data=b"" if kind == "bridge" else info.get(IFLA_INFO_DATA, b""),
        bridge=BridgeInfo(vlan_filtering=_flag(info, IFLA_INFO_DATA, _IFLA_BR_VLAN_FILTERING))
        if kind == "bridge"
        else None,
        port=_port(info) if info.text(IFLA_INFO_SLAVE_KIND) == "bridge" else None,
        xdp=attrs.nest(_IFLA_XDP).number(_IFLA_XDP_PROG_ID) or 0,
    )


def list_counters() -> tuple[int, bytes]:
    return RTM_GETLINK, header()


def parse_counters(body: bytes) -> LinkCounts:
    attrs = parse(body, IFINFOMSG.size)
    stats = attrs.get(_IFLA_STATS64, bytes(_STATS64.size))
    received, sent, received_bytes, sent_bytes, *lost = fixed(_STATS64, stats)
    return LinkCounts(
        name=attrs.text(IFLA_IFNAME),
        alias=attrs.text(IFLA_IFALIAS),
        mtu=attrs.number(IFLA_MTU) or 0,
        counted=Counters(
            received_bytes=received_bytes,
            sent_bytes=sent_bytes,
            received_packets=received,
            sent_packets=sent,
            received_lost=lost[0] + lost[2],
            sent_lost=lost[1] + lost[3],
        ),
    )


def index_and_name(body: bytes) -> tuple[int, str]:
    _, _, index, _, _ = fixed(IFINFOMSG, body)
    return index, c_string(find(body, IFLA_IFNAME, IFINFOMSG.size) or b"")


def master(body: bytes) -> int:
    """0 if it has none."""
    return int.from_bytes(find(body, IFLA_MASTER, IFINFOMSG.size) or b"", sys.byteorder)


def list_links() -> tuple[int, bytes]:
    return RTM_GETLINK, header() + u32(IFLA_EXT_MASK, _RTEXT_FILTER_SKIP_STATS)


def get_link(which: str | int, *, netns: int = -1) -> Message:
    index, name = (0, text(IFLA_IFNAME, which)) if isinstance(which, str) else (which, b"")
    there = b"" if netns < 0 else u32(_IFLA_TARGET_NETNSID, netns)
    body = header(index) + name + there + u32(IFLA_EXT_MASK, _RTEXT_FILTER_SKIP_STATS)
    return Message(RTM_GETLINK, 0, body)


def create(
    kind: str, name: str, data: bytes = b"", *, mtu: int = 0, mac: Mac | None = None, up: bool = False
) -> Message:
    """`data` is what IFLA_INFO_DATA holds; `mtu` 0 and `mac` None leave the choice to the kernel.

    IFLA_TXQLEN is sent for an ifb alone, which has no queue but its qdisc's: a device made with queue length 0 later
    gets shapers that hold no packet.
    """
    flag = IFF_UP if up else 0
    body = header(flags=flag, mask=flag) + _common(name, mtu, mac)
    body += u32(IFLA_TXQLEN, 0) if kind == "ifb" else b""
    return Message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body + _linkinfo(kind, data))


def bridge_settings(*, vlan_filtering: bool, mcast_snooping: bool) -> bytes:
    filtering = u8(_IFLA_BR_VLAN_FILTERING, 1) if vlan_filtering else b""
    return filtering if mcast_snooping else filtering + u8(_IFLA_BR_MCAST_SNOOPING, 0)


def veth_peer(name: str, *, mtu: int, mac: Mac | None, netns_fd: int | None) -> bytes:
    """The peer is made directly in the namespace of `netns_fd`, if given."""
    inner = header() + _common(name, mtu, mac)
    return attribute(_VETH_INFO_PEER, inner if netns_fd is None else inner + u32(IFLA_NET_NS_FD, netns_fd))


def change_link(index: int, kind: str, data: bytes) -> Message:
    return Message(RTM_NEWLINK, 0, header(index) + _linkinfo(kind, data))


class LinkChanges(TypedDict, total=False):
    """None changes nothing; `master` 0 takes the link off its bridge, an empty `alias` removes the alias."""

    up: bool | None
    mtu: int | None
    master: int | None
    name: str | None
    mac: Mac | None
    alias: str | None
    promisc: bool | None
    allmulti: bool | None
    queue_length: int | None
    netns_fd: int | None


def set_link(index: int, **changes: Unpack[LinkChanges]) -> Message:
    flags = mask = 0
    for bit, wanted in (
        (IFF_UP, changes.get("up")),
        (IFF_PROMISC, changes.get("promisc")),
        (IFF_ALLMULTI, changes.get("allmulti")),
    ):
        if wanted is not None:
            mask |= bit
            flags |= bit if wanted else 0
    body = header(index, flags=flags, mask=mask)
    for kind, number in (
        (IFLA_MTU, changes.get("mtu")),
        (IFLA_MASTER, changes.get("master")),
        (IFLA_TXQLEN, changes.get("queue_length")),
        (IFLA_NET_NS_FD, changes.get("netns_fd")),
    ):
        if number is not None:
            body += u32(kind, number)
    if (name := changes.get("name")) is not None:
        body += text(IFLA_IFNAME, name)
    if (mac := changes.get("mac")) is not None:
        body += attribute(IFLA_ADDRESS, mac)
    if (alias := changes.get("alias")) is not None:
        # Without its NUL: an attribute of length 0 is what removes the alias.
        body += attribute(IFLA_IFALIAS, alias.encode())
    return Message(RTM_SETLINK, 0, body)


def without_link_local(index: int) -> Message:
    """Have a link that is down get no link-local IPv6 address; others can be added.

    EAFNOSUPPORT where there is no IPv6, or none on this link.
    """
    return _set_of_family(index, _AF_INET6, u8(_IFLA_INET6_ADDR_GEN_MODE, _IN6_ADDR_GEN_MODE_NONE))


def announcing(index: int) -> Message:
    """Have a link announce its IPv4 addresses when it comes up or its MAC is set, even to the same (arp_notify)."""
    return _set_of_family(index, _AF_INET, nest(_IFLA_INET_CONF, u32(_IPV4_DEVCONF_ARP_NOTIFY, 1)))


def _set_of_family(index: int, family: int, setting: bytes) -> Message:
    spec = nest(IFLA_AF_SPEC, nest(family, setting))
    return Message(RTM_SETLINK, 0, header(index) + spec)


def delete_link(index: int) -> Message:
    """Takes the kernel 10 to 20 ms: never in the event loop for pods' links."""
    return Message(RTM_DELLINK, 0, header(index))


def set_group(index: int, group: int) -> Message:
    return Message(RTM_SETLINK, 0, header(index) + u32(IFLA_GROUP, group))


def delete_group(group: int) -> Message:
    """Delete all links of a group: one grace period for all, as long as that of one link."""
    return Message(RTM_DELLINK, 0, header() + u32(IFLA_GROUP, group))


def _common(name: str, mtu: int, mac: Mac | None) -> bytes:
    body = text(IFLA_IFNAME, name)
    if mtu:
        body += u32(IFLA_MTU, mtu)
    if mac is not None:
        body += attribute(IFLA_ADDRESS, mac)
    return body


def _linkinfo(kind: str, data: bytes) -> bytes:
    return nest(IFLA_LINKINFO, text(IFLA_INFO_KIND, kind), nest(IFLA_INFO_DATA, data) if data else b"")


def _port(info: Attributes) -> PortInfo:
    return PortInfo(
        hairpin=_flag(info, IFLA_INFO_SLAVE_DATA, IFLA_BRPORT_MODE),
        isolated=_flag(info, IFLA_INFO_SLAVE_DATA, IFLA_BRPORT_ISOLATED),
        locked=_flag(info, IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_LOCKED),
        state=int.from_bytes(find(info.get(IFLA_INFO_SLAVE_DATA, b""), _IFLA_BRPORT_STATE) or b"", "little"),
    )


def _flag(info: Attributes, nest: int, kind: int) -> bool:
    """A bridge or port has some forty attributes, of which we want one or two."""
    return any(find(info.get(nest, b""), kind) or b"")
