"""nf_tables without a program: transactions of elements, and looks at what is there.

Messages of linux/netfilter/nf_tables.h in the framing of linux/netfilter/nfnetlink.h. Only what changes with every pod
is written here; tables, chains and rules are deleted, and made by nft.
"""

import errno
import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, Self

from weft.kernel.rtnetlink.attributes import Attributes, attribute, nest, parse, parse_list, text
from weft.kernel.rtnetlink.netlink import NLM_F_CREATE, NLM_F_EXCL, Message, NetlinkError, NetlinkSocket, widen
from weft.model.kernel.nftset import (
    Add,
    Change,
    Delete,
    DeleteChain,
    DeleteSet,
    DeleteTable,
    Element,
    Empty,
    RuleSeen,
    Table,
)

NETLINK_NETFILTER: Final = 12
NFPROTO: Final = {"inet": 1, "ip": 2, "bridge": 7, "ip6": 10}

# A transaction is one send, and each of its refusals one answer: a pod may map a thousand ports.
_BUFFER_BYTES: Final = 4 << 20

_SUBSYS: Final = 10  # NFNL_SUBSYS_NFTABLES
_BATCH_BEGIN: Final = 16
_BATCH_END: Final = 17
_GETTABLE: Final = _SUBSYS << 8 | 1
_DELTABLE: Final = _SUBSYS << 8 | 2
_GETCHAIN: Final = _SUBSYS << 8 | 4
_DELCHAIN: Final = _SUBSYS << 8 | 5
_GETRULE: Final = _SUBSYS << 8 | 7
_GETGEN: Final = _SUBSYS << 8 | 16
_DELRULE: Final = _SUBSYS << 8 | 8
_GETSET: Final = _SUBSYS << 8 | 10
_DELSET: Final = _SUBSYS << 8 | 11
_NEWSETELEM: Final = _SUBSYS << 8 | 12
_GETSETELEM: Final = _SUBSYS << 8 | 13
_DELSETELEM: Final = _SUBSYS << 8 | 14

_NFTA_TABLE_NAME: Final = 1
_NFTA_TABLE_FLAGS: Final = 2
_NFT_TABLE_DORMANT: Final = 1
_NFTA_CHAIN_TABLE: Final = 1
_NFTA_CHAIN_NAME: Final = 3
_GEN_ID: Final = 1  # NFTA_GEN_ID
_NFTA_RULE_TABLE: Final = 1
_NFTA_RULE_CHAIN: Final = 2
_NFTA_RULE_HANDLE: Final = 3
_NFTA_RULE_EXPRESSIONS: Final = 4
_NFTA_RULE_USERDATA: Final = 7
_NFTA_SET_TABLE: Final = 1
_NFTA_SET_NAME: Final = 2
_NFTA_SET_FLAGS: Final = 3
_NFT_SET_EVAL: Final = 0x20  # rules add elements to it
_NFTA_LIST_TABLE: Final = 1
_NFTA_LIST_SET: Final = 2
_NFTA_LIST_ELEMENTS: Final = 3
_NFTA_LIST_ELEM: Final = 1
_NFTA_ELEM_KEY: Final = 1
_NFTA_ELEM_DATA: Final = 2
_NFTA_ELEM_EXPIRATION: Final = 5
_NFTA_ELEM_USERDATA: Final = 6
_NFTA_ELEM_EXPR: Final = 7
_NFTA_EXPR_NAME: Final = 1
_NFTA_EXPR_DATA: Final = 2
_NFTA_IMMEDIATE_DATA: Final = 2
_NFTA_COUNTER_BYTES: Final = 1
_NFTA_COUNTER_PACKETS: Final = 2
_NFTA_DATA_VALUE: Final = 1
_NFTA_DATA_VERDICT: Final = 2
_NFTA_VERDICT_CODE: Final = 1
_NFTA_VERDICT_CHAIN: Final = 2
_RETURN: Final = (-5).to_bytes(4, "big", signed=True)  # NFT_RETURN
_GOTO: Final = (-4).to_bytes(4, "big", signed=True)  # NFT_GOTO
_VERDICTS: Final = {"drop": bytes(4), "accept": b"\0\0\0\1"}  # NF_DROP, NF_ACCEPT
_VERDICT_NAMES: Final = {code: name for name, code in _VERDICTS.items()}
# libnftnl's udata.h: what nft itself writes and shows as a comment; the same number for rules and elements.
_UDATA_COMMENT: Final = 0

# What is asked for is not there, or nothing can be: EINVAL is nfnetlink's answer for a subsystem that is not there.
ABSENT: Final = (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL)
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg: family, version, resource
_FRAME: Final = Struct("=BBxB").pack(0, 0, _SUBSYS)  # the resource is in network order
BATCH_BEGIN: Final = Message(_BATCH_BEGIN, 0, _FRAME)
BATCH_END: Final = Message(_BATCH_END, 0, _FRAME)


class NfSocket:
    """nf_tables and conntrack of one namespace. One thread at a time.

    Closing it waits until the kernel has freed what was deleted through it, 10 ms and more, so keep it.
    """

    def __init__(self, sock: NetlinkSocket) -> None:
        self._socket = sock
        self.port = sock.port
        self.dump = sock.dump
        self.each = sock.each
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
        """Make all changes or, if anything is refused, none. Returns the refusals by position.

        A refusal of the whole (no nf_tables, no permission) is raised.
        """
        if not changes:
            return {}
        refused = self._socket.transaction((BATCH_BEGIN, *(_message(table, change) for change in changes), BATCH_END))
        if 0 in refused:
            raise refused[0]
        return {position - 1: error for position, error in refused.items()}

    def element(self, table: Table, name: str, key: bytes) -> Element | None:
        """None without such an element, set or table, or without nf_tables."""
        answer = self._ask(_GETSETELEM, _of_set(table, name, _element(key=key)))
        return None if answer is None else next(elements_in(answer), None)

    def elements(self, table: Table, name: str) -> list[Element]:
        """Empty if there is no such set."""
        bodies = self._list(_GETSETELEM, _of_set(table, name))
        return [element for body in bodies for element in elements_in(body)]

    def sets(self, table: Table, *, filled_by_rules: bool = True) -> set[str]:
        """The names of a table's sets and maps, without the anonymous ones of rules."""
        found = self._in(table, _GETSET, _NFTA_SET_TABLE)
        if not filled_by_rules:
            found = [each for each in found if not (each.network_number(_NFTA_SET_FLAGS) or 0) & _NFT_SET_EVAL]
        names = {each.text(_NFTA_SET_NAME) for each in found}
        return {name for name in names if not name.startswith("__")}

    def chains(self, table: Table) -> set[str]:
        return {each.text(_NFTA_CHAIN_NAME) for each in self._in(table, _GETCHAIN, _NFTA_CHAIN_TABLE)}

    def has_table(self, table: Table) -> bool:
        return self._ask(_GETTABLE, _head(table) + text(_NFTA_TABLE_NAME, table.name)) is not None

    def is_dormant(self, table: Table) -> bool:
        """Tell whether its chains are asked nothing, as somebody has said (NFT_TABLE_F_DORMANT)."""
        found = self._ask(_GETTABLE, _head(table) + text(_NFTA_TABLE_NAME, table.name))
        flags = None if found is None else parse(found, _HEAD.size).network_number(_NFTA_TABLE_FLAGS)
        return bool((flags or 0) & _NFT_TABLE_DORMANT)

    def has_chain(self, table: Table, chain: str) -> bool:
        """iptables-nft's tables have the same form (`ip nat`)."""
        names = text(_NFTA_CHAIN_TABLE, table.name) + text(_NFTA_CHAIN_NAME, chain)
        return self._ask(_GETCHAIN, _head(table) + names) is not None

    def comments(self, table: Table) -> list[tuple[str, str]]:
        """Each rule's chain and comment, in order; a comment may be empty."""
        rules = self._in(table, _GETRULE, _NFTA_RULE_TABLE)
        return [(rule.text(_NFTA_RULE_CHAIN), _comment(rule.get(_NFTA_RULE_USERDATA, b""))) for rule in rules]

    def rules(self, table: Table, chain: str = "") -> list[RuleSeen]:
        """Those of a chain, or all, in order, as far as anybody asks: where they lead, and what they count."""
        of = text(_NFTA_RULE_CHAIN, chain) if chain else b""
        found = [_rule(rule) for rule in self._in(table, _GETRULE, _NFTA_RULE_TABLE, of)]
        return [each for each in found if chain in ("", each.chain)]

    def generation(self) -> int:
        """It changes with each transaction of anybody, in any table of this network namespace."""
        found = parse(self._socket.ask(Message(_GETGEN, 0, _HEAD.pack(0, 0, 0))), _HEAD.size)
        return found.network_number(_GEN_ID) or 0

    def _in(self, table: Table, kind: int, named: int, further: bytes = b"") -> list[Attributes]:
        """The objects of a table: kernels differ in whether they look at its name in the request."""
        bodies = self._list(kind, _head(table) + text(named, table.name) + further)
        return [found for body in bodies if (found := parse(body, _HEAD.size)).text(named) == table.name]

    def _ask(self, kind: int, body: bytes) -> bytes | None:
        try:
            return self._socket.ask(Message(kind, 0, body))
        except NetlinkError as error:
            if error.errno in ABSENT:
                return None
            raise

    def _list(self, kind: int, body: bytes) -> list[bytes]:
        try:
            return self._socket.dump(kind, body)
        except NetlinkError as error:
            if error.errno in ABSENT:
                return []
            raise


def _message(table: Table, change: Change) -> Message:
    match change:
        case Add(element):
            whole = _element(key=element.key, data=element.data, verdict=element.verdict, comment=element.comment)
            return Message(_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, _of_set(table, element.set, whole))
        case Delete(element):
            return Message(_DELSETELEM, 0, _of_set(table, element.set, _element(key=element.key)))
        case Empty(chain):
            names = text(_NFTA_RULE_TABLE, table.name) + text(_NFTA_RULE_CHAIN, chain)
            return Message(_DELRULE, 0, _head(table) + names)
        case DeleteChain(chain):
            names = text(_NFTA_CHAIN_TABLE, table.name) + text(_NFTA_CHAIN_NAME, chain)
            return Message(_DELCHAIN, 0, _head(table) + names)
        case DeleteSet(name):
            return Message(_DELSET, 0, _head(table) + text(_NFTA_SET_TABLE, table.name) + text(_NFTA_SET_NAME, name))
        case DeleteTable():
            return Message(_DELTABLE, 0, _head(table) + text(_NFTA_TABLE_NAME, table.name))


def _head(table: Table) -> bytes:
    return _HEAD.pack(NFPROTO[table.family], 0, 0)


def _of_set(table: Table, name: str, *elements: bytes) -> bytes:
    body = _head(table) + text(_NFTA_LIST_TABLE, table.name) + text(_NFTA_LIST_SET, name)
    return body + nest(_NFTA_LIST_ELEMENTS, *elements) if elements else body


def _element(*, key: bytes, data: bytes = b"", verdict: str = "", comment: str = "") -> bytes:
    parts = [nest(_NFTA_ELEM_KEY, attribute(_NFTA_DATA_VALUE, key))]
    if data:
        parts.append(nest(_NFTA_ELEM_DATA, attribute(_NFTA_DATA_VALUE, data)))
    if verdict:
        words = [attribute(_NFTA_VERDICT_CODE, _VERDICTS.get(verdict, _GOTO))]
        if verdict not in _VERDICTS:
            words.append(text(_NFTA_VERDICT_CHAIN, verdict))
        parts.append(nest(_NFTA_ELEM_DATA, nest(_NFTA_DATA_VERDICT, *words)))
    if comment:
        value = comment.encode("utf-8", "surrogateescape") + b"\0"
        parts.append(attribute(_NFTA_ELEM_USERDATA, bytes((_UDATA_COMMENT, len(value))) + value))
    return nest(_NFTA_LIST_ELEM, *parts)


def elements_in(body: bytes) -> Iterator[Element]:
    """The elements of a set that an answer or a notice is about. Raises `Malformed`."""
    message = parse(body, _HEAD.size)
    name = message.text(_NFTA_LIST_SET)
    for _, item in parse_list(message.get(_NFTA_LIST_ELEMENTS, b"")):
        found = parse(item)
        counter = found.nest(_NFTA_ELEM_EXPR).nest(_NFTA_EXPR_DATA)
        yield Element(
            set=name,
            key=_value(found, _NFTA_ELEM_KEY),
            data=_value(found, _NFTA_ELEM_DATA),
            verdict=_verdict(found.nest(_NFTA_ELEM_DATA).nest(_NFTA_DATA_VERDICT)),
            comment=_comment(found.get(_NFTA_ELEM_USERDATA, b"")),
            packets=counter.network_number(_NFTA_COUNTER_PACKETS) or 0,
            octets=counter.network_number(_NFTA_COUNTER_BYTES) or 0,
            left=found.network_number(_NFTA_ELEM_EXPIRATION) or 0,
        )


def _rule(found: Attributes) -> RuleSeen:
    leads, packets = "", None
    for _, item in parse_list(found.get(_NFTA_RULE_EXPRESSIONS, b"")):
        expression = parse(item)
        name, data = expression.text(_NFTA_EXPR_NAME), expression.nest(_NFTA_EXPR_DATA)
        if name == "counter" and packets is None:
            packets = data.network_number(_NFTA_COUNTER_PACKETS)
        elif name == "immediate":
            verdict = data.nest(_NFTA_IMMEDIATE_DATA).nest(_NFTA_DATA_VERDICT)
            code = verdict.get(_NFTA_VERDICT_CODE, b"")
            leads = verdict.text(_NFTA_VERDICT_CHAIN) or _VERDICT_NAMES.get(code, "return" if code == _RETURN else "")
    return RuleSeen(
        chain=found.text(_NFTA_RULE_CHAIN),
        comment=_comment(found.get(_NFTA_RULE_USERDATA, b"")),
        leads=leads,
        packets=packets or 0,
        handle=found.network_number(_NFTA_RULE_HANDLE) or 0,
    )


def _verdict(found: Attributes) -> str:
    code = found.get(_NFTA_VERDICT_CODE, b"")
    name = _VERDICT_NAMES.get(code) or found.text(_NFTA_VERDICT_CHAIN)
    return name if code in (b"", _GOTO, *_VERDICT_NAMES) else f"another verdict {name}".rstrip()


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
