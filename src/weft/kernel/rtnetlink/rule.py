"""Messages about policy rules: values to bytes and back (linux/fib_rules.h). Pure."""

import socket
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink.attributes import attribute, fixed, parse, text, u8, u32
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, Message
from weft.kernel.rtnetlink.route import destination
from weft.model.kernel.reported import RuleInfo
from weft.model.net import Net

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


def parse_rule(body: bytes) -> RuleInfo:
    """Raises `Malformed`."""
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
    family = socket.AF_INET if rule.family == 4 else socket.AF_INET6
    flags = FIB_RULE_INVERT if rule.invert else 0
    dst_length, dst = _prefix(FRA_DST, rule.dst)
    src_length, src = _prefix(FRA_SRC, rule.src)
    body = _FIB_RULE_HDR.pack(family, dst_length, src_length, 0, 0, rule.action, flags) + dst + src
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
