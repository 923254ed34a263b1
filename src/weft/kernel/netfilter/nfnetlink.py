"""nf_tables without a program: transactions of elements, and looks at what is there.

Messages of linux/netfilter/nf_tables.h in the framing of linux/netfilter/nfnetlink.h. Only what changes with every pod
is written here, not tables, chains and rules.
"""

import errno
import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, Self

from weft.kernel.rtnetlink.attributes import Attributes, attribute, nest, parse, parse_list, text
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, Message, NetlinkError, NetlinkSocket, widen
from weft.model.kernel.nftset import Change, Delete, Element, Table

NETLINK_NETFILTER: Final = 12
NFPROTO: Final = {"inet": 1, "ip": 2, "bridge": 7, "ip6": 10}

# A transaction is one send, and each of its refusals one answer: a pod may map a thousand ports.
_BUFFER_BYTES: Final = 4 << 20

_SUBSYS: Final = 10  # NFNL_SUBSYS_NFTABLES
_BATCH_BEGIN: Final = 16
_BATCH_END: Final = 17
_GETTABLE: Final = _SUBSYS << 8 | 1
_GETCHAIN: Final = _SUBSYS << 8 | 4
_GETRULE: Final = _SUBSYS << 8 | 7
_GETSET: Final = _SUBSYS << 8 | 10
_NEWSETELEM: Final = _SUBSYS << 8 | 12
_GETSETELEM: Final = _SUBSYS << 8 | 13
_DELSETELEM: Final = _SUBSYS << 8 | 14

_NFTA_TABLE_NAME: Final = 1
_NFTA_CHAIN_TABLE: Final = 1
_NFTA_CHAIN_NAME: Final = 3
_NFTA_RULE_TABLE: Final = 1
_NFTA_RULE_CHAIN: Final = 2
_NFTA_RULE_USERDATA: Final = 7
_NFTA_SET_TABLE: Final = 1
_NFTA_SET_NAME: Final = 2
_NFTA_LIST_TABLE: Final = 1
_NFTA_LIST_SET: Final = 2
_NFTA_LIST_ELEMENTS: Final = 3
_NFTA_LIST_ELEM: Final = 1
_NFTA_ELEM_KEY: Final = 1
_NFTA_ELEM_DATA: Final = 2
_NFTA_ELEM_USERDATA: Final = 6
_NFTA_ELEM_EXPR: Final = 7
_NFTA_EXPR_DATA: Final = 2
_NFTA_COUNTER_BYTES: Final = 1
_NFTA_COUNTER_PACKETS: Final = 2
_NFTA_DATA_VALUE: Final = 1
# libnftnl's udata.h: what nft itself writes and shows as a comment; the same number for rules and elements.
_UDATA_COMMENT: Final = 0

# What is asked for is not there, or nothing can be: EINVAL is nfnetlink's answer for a subsystem that is not there.
_ABSENT: Final = (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL)
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg: family, version, resource
_FRAME: Final = Struct("=BBxB").pack(0, 0, _SUBSYS)  # the resource is in network order
_BEGIN: Final = Message(_BATCH_BEGIN, 0, _FRAME)
_END: Final = Message(_BATCH_END, 0, _FRAME)


class NfSocket:
    """nf_tables and conntrack of one namespace. One thread at a time.

    Closing it waits until the kernel has freed what was deleted through it, 10 ms and more, so keep it.
    """

    def __init__(self, sock: NetlinkSocket) -> None:
        self._socket = sock
        self.dump = sock.dump
        self.batch = sock.batch

    @classmethod
    def open(cls) -> Self:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        try:
            widen(sock, _BUFFER_BYTES, socket.SO_SNDBUF, socket.SO_RCVBUF)
            return cls(NetlinkSocket(sock))
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def transaction(self, table: Table, changes: Sequence[Change]) -> dict[int, NetlinkError]:
        """Change all elements or, if anything is refused, none. Returns the refusals by position.

        A refusal of the whole (no nf_tables, no permission) is raised.
        """
        if not changes:
            return {}
        refused = self._socket.transaction((_BEGIN, *(_message(table, change) for change in changes), _END))
        if 0 in refused:
            raise refused[0]
        return {position - 1: error for position, error in refused.items()}

    def element(self, table: Table, name: str, key: bytes) -> Element | None:
        """None without such an element, set or table, or without nf_tables."""
        answer = self._ask(_GETSETELEM, _of_set(table, name, _element(key=key)))
        return None if answer is None else next(_elements_in(answer, name), None)

    def elements(self, table: Table, name: str) -> list[Element]:
        """Empty if there is no such set."""
        bodies = self._list(_GETSETELEM, _of_set(table, name))
        return [element for body in bodies for element in _elements_in(body, name)]

    def sets(self, table: Table) -> set[str]:
        """The names of a table's sets and maps, without the anonymous ones of rules."""
        bodies = self._list(_GETSET, _head(table) + text(_NFTA_SET_TABLE, table.name))
        # Kernels differ in whether they look at the table's name in this request.
        found = [parse(body, _HEAD.size) for body in bodies]
        names = {each.text(_NFTA_SET_NAME) for each in found if each.text(_NFTA_SET_TABLE) == table.name}
        return {name for name in names if not name.startswith("__")}

    def has_table(self, table: Table) -> bool:
        return self._ask(_GETTABLE, _head(table) + text(_NFTA_TABLE_NAME, table.name)) is not None

    def has_chain(self, table: Table, chain: str) -> bool:
        """iptables-nft's tables have the same form (`ip nat`)."""
        names = text(_NFTA_CHAIN_TABLE, table.name) + text(_NFTA_CHAIN_NAME, chain)
        return self._ask(_GETCHAIN, _head(table) + names) is not None

    def comments(self, table: Table) -> list[tuple[str, str]]:
        """Each rule's chain and comment, in order; a comment may be empty."""
        bodies = self._list(_GETRULE, _head(table) + text(_NFTA_RULE_TABLE, table.name))
        found = []
        for body in bodies:
            rule = parse(body, _HEAD.size)
            found.append((rule.text(_NFTA_RULE_CHAIN), _comment(rule.get(_NFTA_RULE_USERDATA, b""))))
        return found

    def _ask(self, kind: int, body: bytes) -> bytes | None:
        try:
            return self._socket.ask(Message(kind, 0, body))
        except NetlinkError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def _list(self, kind: int, body: bytes) -> list[bytes]:
        try:
            return self._socket.dump(kind, body)
        except NetlinkError as error:
            if error.errno in _ABSENT:
                return []
            raise


def _message(table: Table, change: Change) -> Message:
    element = change.element
    if isinstance(change, Delete):
        return Message(_DELSETELEM, 0, _of_set(table, element.set, _element(key=element.key)))
    whole = _element(key=element.key, data=element.data, comment=element.comment)
    return Message(_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, _of_set(table, element.set, whole))


def _head(table: Table) -> bytes:
    return _HEAD.pack(NFPROTO[table.family], 0, 0)


def _of_set(table: Table, name: str, *elements: bytes) -> bytes:
    body = _head(table) + text(_NFTA_LIST_TABLE, table.name) + text(_NFTA_LIST_SET, name)
    return body + nest(_NFTA_LIST_ELEMENTS, *elements) if elements else body


def _element(*, key: bytes, data: bytes = b"", comment: str = "") -> bytes:
    parts = [nest(_NFTA_ELEM_KEY, attribute(_NFTA_DATA_VALUE, key))]
    if data:
        parts.append(nest(_NFTA_ELEM_DATA, attribute(_NFTA_DATA_VALUE, data)))
    if comment:
        value = comment.encode("utf-8", "surrogateescape") + b"\0"
        parts.append(attribute(_NFTA_ELEM_USERDATA, bytes((_UDATA_COMMENT, len(value))) + value))
    return nest(_NFTA_LIST_ELEM, *parts)


def _elements_in(body: bytes, name: str) -> Iterator[Element]:
    listed = parse(body, _HEAD.size).get(_NFTA_LIST_ELEMENTS, b"")
    for _, item in parse_list(listed):
        found = parse(item)
        counter = found.nest(_NFTA_ELEM_EXPR).nest(_NFTA_EXPR_DATA)
        yield Element(
            set=name,
            key=_value(found, _NFTA_ELEM_KEY),
            data=_value(found, _NFTA_ELEM_DATA),
            comment=_comment(found.get(_NFTA_ELEM_USERDATA, b"")),
            packets=counter.network_number(_NFTA_COUNTER_PACKETS) or 0,
            octets=counter.network_number(_NFTA_COUNTER_BYTES) or 0,
        )


def _value(found: Attributes, kind: int) -> bytes:
    return found.nest(kind).get(_NFTA_DATA_VALUE, b"")


def _comment(userdata: bytes) -> str:
    """User data is one byte of type, one of length, and the value."""
    offset = 0
    while offset + 2 <= len(userdata):
        kind, length = userdata[offset], userdata[offset + 1]
        if kind == _UDATA_COMMENT:
            return userdata[offset + 2 : offset + 2 + length].rstrip(b"\0").decode("utf-8", "surrogateescape")
        offset += 2 + length
    return ""
