"""Entries of connection tracking: sources of UDP, stale ones, and all of some addresses.

Messages of linux/netfilter/nfnetlink_conntrack.h. A UDP entry lives as long as packets come and sends them where a rule
sent the first one. TCP's entries end when the other side is gone, so a change of rules leaves them alone.
"""

import errno
from collections.abc import Collection, Container, Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.attributes import AF, NESTED, Attributes, Malformed, attribute, be16, nest, parse, u8, u32
from weft.kernel.rtnetlink.netlink import Message
from weft.model.net import Ip

_SUBSYS: Final = 1  # NFNL_SUBSYS_CTNETLINK
_GET: Final = _SUBSYS << 8 | 1
_DELETE: Final = _SUBSYS << 8 | 2

_CTA_TUPLE_ORIG: Final = 1
_CTA_TUPLE_REPLY: Final = 2
_CTA_PROTOINFO: Final = 4
_CTA_PROTOINFO_TCP: Final = 1
_CTA_PROTOINFO_TCP_STATE: Final = 1
_TCP_OVER: Final = (7, 8)  # TCP_CONNTRACK_TIME_WAIT, TCP_CONNTRACK_CLOSE (linux/netfilter/nf_conntrack_tcp.h)
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
_CTA_PROTO_SRC_PORT: Final = 2
_CTA_PROTO_DST_PORT: Final = 3

_UDP: Final = 17
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg
_DELETED_AT_ONCE: Final = 64

_NLA: Final = Struct("=HH")
# An entry of a protocol with ports begins with two tuples, always in this order: four times as fast as attributes.
_TUPLES: Final = {
    4: Struct("!4x12s4s8x8sB3x4xH2x8x12s4s8x8xB3x4xH"),
    6: Struct("!4x12s16s20x8sB3x4xH2x8x12s16s20x8xB3x4xH"),
}


class Connection(NamedTuple):
    """Between the sender of its first packet and the target that was chosen for it, both packed.

    Ports are 0 for protocols without. `entry` is the kernel's.
    """

    source: bytes
    target: bytes
    protocol: int
    source_port: int
    target_port: int
    entry: bytes


def connections(sock: NfSocket, family: int, of: Container[bytes] | None = None) -> Iterator[Connection]:
    """Those that begin or end at these addresses, or all. Raises `NetlinkError`; `Torn` if the list was not whole."""
    size = 4 if family == 4 else 16
    unpack, length, heads = _TUPLES[family].unpack_from, _TUPLES[family].size, _heads(size)
    for entry in sock.each(_GET, _HEAD.pack(AF[family], 0, 0)):
        if len(entry) >= length:
            first, source, proto, protocol, source_port, second, target, same, target_port = unpack(entry)
            if (first, proto, second) == heads and protocol == same:
                if of is None or source in of or target in of:
                    yield Connection(source, target, protocol, source_port, target_port, entry)
                continue
        with suppress(Malformed):
            found = _other(entry, size)
            if found is not None and (of is None or found.source in of or found.target in of):
                yield found


def _heads(size: int) -> tuple[bytes, bytes, bytes]:
    """What stands before the first address of each tuple, and before the protocol."""

    def nest(kind: int, length: int) -> bytes:
        return _NLA.pack(4 + length, kind | NESTED)

    addresses, protocol = 2 * (4 + size), 3 * 8
    inside = nest(_CTA_TUPLE_IP, addresses) + _NLA.pack(4 + size, _CTA_IP_SOURCE[4 if size == 4 else 6])
    whole = 8 + addresses + protocol
    return (
        nest(_CTA_TUPLE_ORIG, whole) + inside,
        nest(_CTA_TUPLE_PROTO, protocol) + _NLA.pack(5, _CTA_PROTO_NUM),
        nest(_CTA_TUPLE_REPLY, whole) + inside,
    )


def _other(entry: bytes, size: int) -> Connection | None:
    """Of a protocol without ports, or as another kernel may say it. None without addresses."""
    found = parse(entry, _HEAD.size)
    kind = _CTA_IP_SOURCE[4 if size == 4 else 6]
    first, second = found.nest(_CTA_TUPLE_ORIG), found.nest(_CTA_TUPLE_REPLY)
    source, target = (each.nest(_CTA_TUPLE_IP).get(kind) for each in (first, second))
    if source is None or target is None:
        return None
    one, other = first.nest(_CTA_TUPLE_PROTO), second.nest(_CTA_TUPLE_PROTO)
    sender, receiver = (each.network_number(_CTA_PROTO_SRC_PORT) or 0 for each in (one, other))
    return Connection(source, target, one.number(_CTA_PROTO_NUM) or 0, sender, receiver, entry)


def is_over(connection: Connection) -> bool:
    """Tell whether both ends have closed it: TCP's entry stays for two minutes."""
    try:
        info = parse(connection.entry, _HEAD.size).nest(_CTA_PROTOINFO).nest(_CTA_PROTOINFO_TCP)
    except Malformed:
        return False
    return info.number(_CTA_PROTOINFO_TCP_STATE) in _TCP_OVER


def forget(sock: NfSocket, family: int, entries: Iterable[bytes]) -> int:
    """Delete them; returns how many were still there. Raises `NetlinkError`."""
    head = _HEAD.pack(AF[family], 0, 0)
    return _delete(sock, [Message(_DELETE, 0, head + _name_of(parse(entry, _HEAD.size))) for entry in entries])


def _delete(sock: NfSocket, unwanted: list[Message]) -> int:
    gone = 0
    for start in range(0, len(unwanted), _DELETED_AT_ONCE):
        part = unwanted[start : start + _DELETED_AT_ONCE]
        refused = sock.batch(part)
        for refusal in refused.values():
            if refusal.errno != errno.ENOENT:  # it has just ended by itself
                raise refusal
        gone += len(part) - len(refused)
    return gone


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
    _delete(sock, unwanted)
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
