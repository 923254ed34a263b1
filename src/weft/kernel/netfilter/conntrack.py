"""Entries of connection tracking: sources of UDP, and stale ones (linux/netfilter/nfnetlink_conntrack.h).

A UDP entry lives as long as packets come and sends them where a rule sent the first one. TCP's entries end when the
other side is gone, so they are left alone.
"""

import errno
from collections.abc import Collection, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final

from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.attributes import AF, NESTED, Attributes, Malformed, attribute, be16, nest, parse, u8, u32
from weft.kernel.rtnetlink.netlink import Message
from weft.model.net import Ip

_SUBSYS: Final = 1  # NFNL_SUBSYS_CTNETLINK
_GET: Final = _SUBSYS << 8 | 1
_DELETE: Final = _SUBSYS << 8 | 2

_CTA_TUPLE_ORIG: Final = 1
_CTA_TUPLE_REPLY: Final = 2
_CTA_ID: Final = 12
_CTA_ZONE: Final = 18
_CTA_FILTER: Final = 25
_CTA_FILTER_ORIG_FLAGS: Final = 1
_CTA_FILTER_REPLY_FLAGS: Final = 2
# net/netfilter/nf_internals.h: which fields of the tuple count.
_BY_PROTOCOL: Final = 1 << 3
_BY_PORT: Final = 1 << 5
_CTA_TUPLE_IP: Final = 1
_CTA_TUPLE_PROTO: Final = 2
_CTA_IP_SOURCE: Final = {4: 1, 6: 3}
_CTA_PROTO_NUM: Final = 1
_CTA_PROTO_DST_PORT: Final = 3

_UDP: Final = 17
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg
_DELETED_AT_ONCE: Final = 64


def forget_udp(sock: NfSocket, family: int, ports: Collection[int], *, leading_to: Ip | None = None) -> int:
    """Delete the UDP entries whose first packet went to one of these ports; returns their number.

    `leading_to`: only those that were translated to this address. One walk through the kernel's table takes 14 ms with
    the 262,144 buckets of a node of 4 GB; from Linux 5.8 on the kernel filters by protocol and, for a single port, by
    port. Raises `NetlinkError`.
    """
    head = _HEAD.pack(AF[family], 0, 0)
    unwanted = [
        Message(_DELETE, 0, head + _name_of(found))
        for found in _entries(sock, head, ports)
        if leading_to in (None, found.nest(_CTA_TUPLE_REPLY).nest(_CTA_TUPLE_IP).ip(_CTA_IP_SOURCE[family]))
    ]
    for start in range(0, len(unwanted), _DELETED_AT_ONCE):
        for refusal in sock.batch(unwanted[start : start + _DELETED_AT_ONCE]).values():
            if refusal.errno != errno.ENOENT:  # it has just ended by itself
                raise refusal
    return len(unwanted)


def sources_of_udp(sock: NfSocket, family: int, ports: Collection[int]) -> set[Ip]:
    """The sources of the first packets of the UDP flows to these ports. Raises `NetlinkError`."""
    head = _HEAD.pack(AF[family], 0, 0)
    flows = (found.nest(_CTA_TUPLE_ORIG).nest(_CTA_TUPLE_IP) for found in _entries(sock, head, ports))
    return {source for flow in flows if (source := flow.ip(_CTA_IP_SOURCE[family])) is not None}


def _entries(sock: NfSocket, head: bytes, ports: Collection[int]) -> Iterator[Attributes]:
    fields, flags = u8(_CTA_PROTO_NUM, _UDP), _BY_PROTOCOL
    if len(ports) == 1:
        fields, flags = fields + be16(_CTA_PROTO_DST_PORT, next(iter(ports))), _BY_PROTOCOL | _BY_PORT
    tuple_ = nest(_CTA_TUPLE_ORIG, nest(_CTA_TUPLE_PROTO, fields))
    filter_ = nest(_CTA_FILTER, u32(_CTA_FILTER_ORIG_FLAGS, flags), u32(_CTA_FILTER_REPLY_FLAGS, 0))
    for body in sock.dump(_GET, head + tuple_ + filter_):
        with suppress(Malformed):
            found = parse(body, _HEAD.size)
            protocol = found.nest(_CTA_TUPLE_ORIG).nest(_CTA_TUPLE_PROTO)
            if protocol.number(_CTA_PROTO_NUM) == _UDP and protocol.network_number(_CTA_PROTO_DST_PORT) in ports:
                yield found


def _name_of(found: Attributes) -> bytes:
    """The original tuple and the entry's number: a later entry may have the same tuple."""
    named = [attribute(_CTA_TUPLE_ORIG | NESTED, found[_CTA_TUPLE_ORIG])]
    return b"".join([*named, *(attribute(kind, found[kind]) for kind in (_CTA_ID, _CTA_ZONE) if kind in found)])
