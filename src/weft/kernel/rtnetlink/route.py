"""Messages about routes and policy rules: values to bytes and back (linux/rtnetlink.h, linux/fib_rules.h).

Readers raise `Malformed`.
"""

import socket
from ipaddress import IPv4Network, IPv6Network
from struct import Struct
from typing import Final, Literal

from weft.kernel.rtnetlink.attributes import (
    AF,
    Attributes,
    Malformed,
    address,
    attribute,
    fixed,
    nest,
    parse,
    parse_list,
    text,
    u8,
    u32,
)
from weft.kernel.rtnetlink.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from weft.model.kernel.marks import MAIN_TABLE, PROTOCOL
from weft.model.kernel.reported import NextHop, RouteInfo, RuleInfo
from weft.model.net import Ip, Net

RTM_NEWROUTE: Final = 24
RTM_DELROUTE: Final = 25
RTM_GETROUTE: Final = 26

RTA_DST: Final = 1
RTA_OIF: Final = 4
RTA_GATEWAY: Final = 5
RTA_PRIORITY: Final = 6
RTA_PREFSRC: Final = 7
RTA_METRICS: Final = 8
RTA_MULTIPATH: Final = 9
RTA_CACHEINFO: Final = 12
RTA_TABLE: Final = 15
RTA_VIA: Final = 18
RTA_PREF: Final = 20
RTA_NH_ID: Final = 30

RTAX_MTU: Final = 2
RTAX_ADVMSS: Final = 8

RTN_UNICAST: Final = 1
RTN_BLACKHOLE: Final = 6
RT_SCOPE_UNIVERSE: Final = 0
RT_SCOPE_SITE: Final = 200
RT_SCOPE_LINK: Final = 253
RT_SCOPE_NOWHERE: Final = 255
RTNH_F_ONLINK: Final = 4
RTM_F_CLONED: Final = 0x200

Mode = Literal["replace", "create", "append"]
_MODES: Final[dict[Mode, int]] = {
    "replace": NLM_F_CREATE | NLM_F_REPLACE,
    "create": NLM_F_CREATE | NLM_F_EXCL,
    "append": NLM_F_CREATE | NLM_F_APPEND,
}

# family, length of destination, of source, tos, table, protocol, scope, type, flags
RTMSG: Final = Struct("=BBBBBBBBI")
_RTNEXTHOP: Final = Struct("=HBBi")  # length, flags, weight - 1, interface index
_RTVIA: Final = Struct("=H")  # family; the address follows
_LARGEST_SHORT_TABLE: Final = 255
RTM_NEWRULE: Final = 32
RTM_DELRULE: Final = 33
RTM_GETRULE: Final = 34

FRA_DST: Final = 1
FRA_SRC: Final = 2
FRA_IIFNAME: Final = 3
FRA_PRIORITY: Final = 6
FRA_FWMARK: Final = 10
FRA_TABLE: Final = 15
FRA_FWMASK: Final = 16
FRA_OIFNAME: Final = 17
FRA_PROTOCOL: Final = 21
FIB_RULE_INVERT: Final = 2
# What a rule may ask besides; those in the second line are always there, and -1 if they mean nothing.
_MORE: Final = (4, 11, 12, 19, 20, 22, 23, 24)  # FRA_GOTO, FLOW, TUN_ID, L3MDEV, UID_RANGE, IP_PROTO, ports
_SUPPRESS: Final = (13, 14)  # FRA_SUPPRESS_IFGROUP, FRA_SUPPRESS_PREFIXLEN
_NOTHING: Final = 0xFFFFFFFF

_FIB_RULE_HDR: Final = Struct("=BBBBBxxBI")  # family, length of destination, of source, tos, table, action, flags


def parse_route(body: bytes) -> RouteInfo:
    family, prefixlen, _, tos, table, protocol, scope, kind, flags = fixed(RTMSG, body)
    attrs = parse(body, RTMSG.size)
    hops = _hops(attrs[RTA_MULTIPATH]) if RTA_MULTIPATH in attrs else ()
    metrics = attrs.nest(RTA_METRICS) if RTA_METRICS in attrs else None
    only = hops[0] if len(hops) == 1 else None
    return RouteInfo(
        dst=destination(family, prefixlen, attrs.get(RTA_DST)),
        via=only.via if only else gateway(attrs),
        index=only.index if only else attrs.number(RTA_OIF) or 0,
        onlink=only.onlink if only else bool(flags & RTNH_F_ONLINK),
        kind=kind,
        table=attrs.number(RTA_TABLE) or table,
        protocol=protocol,
        scope=scope,
        priority=attrs.number(RTA_PRIORITY) or 0,
        tos=tos,
        src=attrs.ip(RTA_PREFSRC),
        mtu=(metrics.number(RTAX_MTU) or 0) if metrics else 0,
        advmss=(metrics.number(RTAX_ADVMSS) or 0) if metrics else 0,
        hops=hops if len(hops) > 1 else (),
    )


def destination(family: int, prefixlen: int, packed: bytes | None) -> Net:
    """The default route comes without RTA_DST."""
    try:
        if family == socket.AF_INET:
            return IPv4Network((packed or bytes(4), prefixlen))
        if family == socket.AF_INET6:
            return IPv6Network((packed or bytes(16), prefixlen))
    except ValueError as error:
        raise Malformed(f"route to {packed!r}/{prefixlen}: {error}") from error
    raise Malformed(f"route of address family {family}")


def list_routes(family: int, *, table: int = 0, protocol: int = 0, index: int = 0) -> tuple[int, bytes]:
    """The routes of one family that match what is not 0."""
    body = RTMSG.pack(family, 0, 0, 0, 0, protocol, 0, 0, 0)
    if table:
        body += u32(RTA_TABLE, table)
    if index:
        body += u32(RTA_OIF, index)
    return RTM_GETROUTE, body


def get_route(ip: Ip) -> Message:
    family, length = (socket.AF_INET, 32) if ip.version == 4 else (socket.AF_INET6, 128)
    return Message(RTM_GETROUTE, 0, RTMSG.pack(family, length, 0, 0, 0, 0, 0, 0, 0) + attribute(RTA_DST, ip.packed))


def add_route(
    dst: Net,
    *,
    via: Ip | None = None,
    index: int = 0,
    onlink: bool = False,
    kind: int = RTN_UNICAST,
    table: int = MAIN_TABLE,
    scope: int | None = None,
    src: Ip | None = None,
    mtu: int = 0,
    advmss: int = 0,
    priority: int = 0,
    protocol: int = PROTOCOL,
    mode: Mode = "replace",
) -> Message:
    """`scope` None is what `ip route` would choose: link without a gateway, else global."""
    if scope is None:
        direct = via is None and kind == RTN_UNICAST and dst.version == 4
        scope = RT_SCOPE_LINK if direct else RT_SCOPE_UNIVERSE
    body = _head(dst, table, protocol, scope, kind, flags=RTNH_F_ONLINK if onlink else 0)
    body += _target(dst, table, via, index, priority)
    if src is not None:
        body += attribute(RTA_PREFSRC, src.packed)
    if mtu or advmss:
        metrics = (u32(RTAX_MTU, mtu) if mtu else b"", u32(RTAX_ADVMSS, advmss) if advmss else b"")
        body += nest(RTA_METRICS, *metrics)
    return Message(RTM_NEWROUTE, _MODES[mode], body)


def copy_route(body: bytes, table: int) -> Message:
    """Put a listed route (RTM_NEWROUTE) into another table, with all that it carries.

    A route by next-hop object also names its gateways, which the kernel does not take back.
    """
    family, *lengths, _, protocol, scope, kind, flags = fixed(RTMSG, body)
    attrs = dict(parse_list(body, RTMSG.size))
    unwanted = {RTA_TABLE, RTA_CACHEINFO}
    if RTA_NH_ID in attrs:
        unwanted |= {RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH}
    # Of the flags only this one is the administrator's; the others are the kernel's own remarks.
    head = RTMSG.pack(family, *lengths, 0, protocol, scope, kind, flags & RTNH_F_ONLINK)
    rest = b"".join(attribute(number, value) for number, value in attrs.items() if number not in unwanted)
    return Message(RTM_NEWROUTE, _MODES["replace"], head + rest + u32(RTA_TABLE, table))


def delete_route(
    dst: Net,
    *,
    via: Ip | None = None,
    index: int = 0,
    table: int = MAIN_TABLE,
    priority: int = 0,
    protocol: int = PROTOCOL,
) -> Message:
    """Delete the first route that matches; 0 and None match any."""
    head = _head(dst, table, protocol, RT_SCOPE_NOWHERE, 0)
    return Message(RTM_DELROUTE, 0, head + _target(dst, table, via, index, priority))


def _target(dst: Net, table: int, via: Ip | None, index: int, priority: int) -> bytes:
    body = attribute(RTA_DST, dst.network_address.packed)
    if table > _LARGEST_SHORT_TABLE:
        body += u32(RTA_TABLE, table)
    if via is not None and via.version == dst.version:
        body += attribute(RTA_GATEWAY, via.packed)
    elif via is not None:
        body += attribute(RTA_VIA, _RTVIA.pack(AF[via.version]) + via.packed)
    if index:
        body += u32(RTA_OIF, index)
    if priority:
        body += u32(RTA_PRIORITY, priority)
    return body


def _head(dst: Net, table: int, protocol: int, scope: int, kind: int, *, flags: int = 0) -> bytes:
    short = table if table <= _LARGEST_SHORT_TABLE else 0
    return RTMSG.pack(AF[dst.version], dst.prefixlen, 0, 0, short, protocol, scope, kind, flags)


def gateway(attrs: Attributes) -> Ip | None:
    """RTA_VIA names a gateway of the other family."""
    if RTA_VIA in attrs:
        return address(attrs[RTA_VIA][_RTVIA.size :])
    return attrs.ip(RTA_GATEWAY)


def _hops(data: bytes) -> tuple[NextHop, ...]:
    """RTA_MULTIPATH: struct rtnexthop, each with attributes."""
    hops = []
    offset = 0
    while len(data) - offset >= _RTNEXTHOP.size:
        length, flags, weight, index = _RTNEXTHOP.unpack_from(data, offset)
        if length < _RTNEXTHOP.size or offset + length > len(data):
            raise Malformed(f"next hop of {length} bytes where {len(data) - offset} are left")
        attrs = parse(data[offset : offset + length], _RTNEXTHOP.size)
        hop = NextHop(index=index, via=gateway(attrs), onlink=bool(flags & RTNH_F_ONLINK), weight=weight + 1)
        hops.append(hop)
        offset += (length + 3) & ~3
    return tuple(hops)


def parse_rule(body: bytes) -> RuleInfo:
    family, dst_length, src_length, tos, table, action, flags = fixed(_FIB_RULE_HDR, body)
    attrs = parse(body, _FIB_RULE_HDR.size)
    return RuleInfo(
        family=4 if family == socket.AF_INET else 6,
        priority=attrs.number(FRA_PRIORITY) or 0,
        action=action,
        table=attrs.number(FRA_TABLE) or table,
        src=destination(family, src_length, attrs[FRA_SRC]) if FRA_SRC in attrs else None,
        dst=destination(family, dst_length, attrs[FRA_DST]) if FRA_DST in attrs else None,
        mark=attrs.number(FRA_FWMARK) or 0,
        mask=attrs.number(FRA_FWMASK) or 0,
        iif=attrs.text(FRA_IIFNAME),
        oif=attrs.text(FRA_OIFNAME),
        invert=bool(flags & FIB_RULE_INVERT),
        protocol=attrs.number(FRA_PROTOCOL) or 0,
        more=bool(tos)
        or any(kind in attrs for kind in _MORE)
        or any(kind in attrs and attrs.number(kind) != _NOTHING for kind in _SUPPRESS),
    )


def list_rules(family: int) -> tuple[int, bytes]:
    return RTM_GETRULE, _FIB_RULE_HDR.pack(family, 0, 0, 0, 0, 0, 0)


def add_rule(rule: RuleInfo) -> Message:
    """EEXIST if the same one is there."""
    return Message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, _body(rule))


def delete_rule(rule: RuleInfo) -> Message:
    """Delete the first rule that looks like this one."""
    return Message(RTM_DELRULE, 0, _body(rule))


def _body(rule: RuleInfo) -> bytes:
    flags = FIB_RULE_INVERT if rule.invert else 0
    dst_length, dst = _prefix(FRA_DST, rule.dst)
    src_length, src = _prefix(FRA_SRC, rule.src)
    body = _FIB_RULE_HDR.pack(AF[rule.family], dst_length, src_length, 0, 0, rule.action, flags) + dst + src
    body += u32(FRA_PRIORITY, rule.priority) + u32(FRA_TABLE, rule.table) + u8(FRA_PROTOCOL, rule.protocol)
    if rule.mark or rule.mask:
        body += u32(FRA_FWMARK, rule.mark) + u32(FRA_FWMASK, rule.mask or 0xFFFFFFFF)
    if rule.iif:
        body += text(FRA_IIFNAME, rule.iif)
    if rule.oif:
        body += text(FRA_OIFNAME, rule.oif)
    return body


def _prefix(kind: int, net: Net | None) -> tuple[int, bytes]:
    return (0, b"") if net is None else (net.prefixlen, attribute(kind, net.network_address.packed))
