"""Entries of connection tracking that have outlived what they were made by (linux/netfilter/nfnetlink_conntrack.h).

A UDP flow never ends by itself: as long as packets come, its entry sends them where a rule sent the first one. TCP's
flows end when the other side is gone, so their entries are left alone.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final

from weft.kernel.attributes import NESTED, Attributes, Malformed, attribute, be16, nest, parse, u8, u32
from weft.kernel.netlink import Message
from weft.kernel.nfnetlink import NfSocket
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
_BY_PROTOCOL_AND_PORT: Final = 1 << 3 | 1 << 5
_CTA_TUPLE_IP: Final = 1
_CTA_TUPLE_PROTO: Final = 2
_CTA_IP_SOURCE: Final = {4: 1, 6: 3}
_CTA_PROTO_NUM: Final = 1
_CTA_PROTO_DST_PORT: Final = 3

_FAMILIES: Final = {4: 2, 6: 10}
_UDP: Final = 17
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg
_DELETED_AT_ONCE: Final = 64


def forget_udp(sock: NfSocket, family: int, port: int, *, leading_to: Ip | None = None) -> int:
    """Delete the UDP entries whose first packet went to this port. Returns how many there were.

    `leading_to`: only those that were translated to this address. One look through the kernel's table; from Linux
    5.8 on the kernel itself leaves out all others. Raises `NetlinkError`.
    """
    head = _HEAD.pack(_FAMILIES[family], 0, 0)
    unwanted = [
        Message(_DELETE, 0, head + entry)
        for entry in _entries(sock, head, port, lambda found: leading_to in (None, _source_of_replies(found, family)))
    ]
    for start in range(0, len(unwanted), _DELETED_AT_ONCE):
        for refusal in sock.batch(unwanted[start : start + _DELETED_AT_ONCE]).values():
            if refusal.errno != errno.ENOENT:  # it has just ended by itself
                raise refusal
    return len(unwanted)


def _entries(sock: NfSocket, head: bytes, port: int, wanted: Callable[[Attributes], bool]) -> Iterator[bytes]:
    """Give what names each entry that is wanted."""
    tuple_ = nest(_CTA_TUPLE_PROTO, u8(_CTA_PROTO_NUM, _UDP), be16(_CTA_PROTO_DST_PORT, port))
    flags = u32(_CTA_FILTER_ORIG_FLAGS, _BY_PROTOCOL_AND_PORT), u32(_CTA_FILTER_REPLY_FLAGS, 0)
    question = head + nest(_CTA_TUPLE_ORIG, tuple_) + nest(_CTA_FILTER, *flags)
    for body in sock.dump(_GET, question):
        with suppress(Malformed):
            found = parse(body, _HEAD.size)
            protocol = found.nest(_CTA_TUPLE_ORIG).nest(_CTA_TUPLE_PROTO)
            ours = protocol.number(_CTA_PROTO_NUM) == _UDP
            if ours and protocol.network_number(_CTA_PROTO_DST_PORT) == port and wanted(found):
                yield b"".join(
                    attribute(kind | NESTED if kind == _CTA_TUPLE_ORIG else kind, found[kind])
                    for kind in (_CTA_TUPLE_ORIG, _CTA_ID, _CTA_ZONE)
                    if kind in found
                )


def _source_of_replies(found: Attributes, family: int) -> Ip | None:
    return found.nest(_CTA_TUPLE_REPLY).nest(_CTA_TUPLE_IP).ip(_CTA_IP_SOURCE[family])
