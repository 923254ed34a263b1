"""Has nf_tables tell what it does with chosen packets: each rule that they meet, and its verdict (nftrace).

Tables of our own mark the packets before all other chains see them: in family inet what comes in and what leaves, in
family bridge what a bridge passes on, in family netdev what comes to links that other chains ask first. The kernel
takes the tables away with the socket that made them, however its process ends (NFT_TABLE_F_OWNER). Kernels before
5.12 have no such flag: there `close` deletes them, and so does the next trace after a crash.

Messages of linux/netfilter/nf_tables.h.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, Literal

from weft.kernel.netfilter.nfnetlink import ABSENT, BATCH_BEGIN, BATCH_END, NETLINK_NETFILTER, NFPROTO
from weft.kernel.rtnetlink.attributes import Attributes, Malformed, attribute, c_string, nest, parse, parse_list, text
from weft.kernel.rtnetlink.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    Message,
    NetlinkError,
    NetlinkSocket,
    join,
    messages_in,
    widen,
)
from weft.model.kernel.nftrace import TABLE, Pattern, Step

_SUBSYS: Final = 10 << 8  # NFNL_SUBSYS_NFTABLES
_NEWTABLE: Final = _SUBSYS | 0
_DELTABLE: Final = _SUBSYS | 2
_NEWCHAIN: Final = _SUBSYS | 3
_GETCHAIN: Final = _SUBSYS | 4
_NEWRULE: Final = _SUBSYS | 6
_TRACE: Final = _SUBSYS | 17
_NFNLGRP_NFTRACE: Final = 9
_BUFFER: Final = 4 << 20  # bytes: a probe may meet hundreds of rules
_DATAGRAM: Final = 1 << 16
_AT_ONCE: Final = 1 << 15  # datagrams: a pod that sees a probe may send more of the kind than are read

_NFTA_TABLE_NAME: Final = 1
_NFTA_TABLE_FLAGS: Final = 2
_NFT_TABLE_F_OWNER: Final = 2
_NFTA_CHAIN_NAME: Final = 3
_NFTA_CHAIN_HOOK: Final = 4
_NFTA_CHAIN_TYPE: Final = 7
_NFTA_HOOK_HOOKNUM: Final = 1
_NFTA_HOOK_PRIORITY: Final = 2
_NFTA_HOOK_DEV: Final = 3
_NFTA_HOOK_DEVS: Final = 4
_NFTA_DEVICE_NAME: Final = 1
_FIRST: Final = -(1 << 31)  # the priority of a chain that is asked before all others
_NFTA_RULE_CHAIN: Final = 2
_NFTA_RULE_EXPRESSIONS: Final = 4
_NFTA_LIST_ELEM: Final = 1
_NFTA_EXPR_NAME: Final = 1
_NFTA_EXPR_DATA: Final = 2
_NFTA_DATA_VALUE: Final = 1
_REGISTER: Final = 1  # NFT_REG_1: 16 bytes
_TRANSPORT: Final = 2  # NFT_PAYLOAD_TRANSPORT_HEADER
_NFT_CMP_LTE: Final = 3
_NFT_CMP_GTE: Final = 5
_NFT_META_NFTRACE: Final = 12

_NFTA_TRACE_TABLE: Final = 1
_NFTA_TRACE_CHAIN: Final = 2
_NFTA_TRACE_RULE_HANDLE: Final = 3
_NFTA_TRACE_TYPE: Final = 4
_NFTA_TRACE_VERDICT: Final = 5
_NFTA_TRACE_ID: Final = 6
_NFTA_TRACE_NETWORK_HEADER: Final = 8
_NFTA_TRACE_IIF: Final = 10
_NFTA_TRACE_OIF: Final = 12
_NFTA_TRACE_POLICY: Final = 16
_NFTA_VERDICT_CODE: Final = 1
_NFTA_VERDICT_CHAIN: Final = 2
_NETDEV: Final = 5  # NFPROTO_NETDEV
_FAMILIES: Final = {**{number: name for name, number in NFPROTO.items()}, 3: "arp", _NETDEV: "netdev"}
_NF_ACCEPT: Final = 1
_VERDICTS: Final = {0: "drop", _NF_ACCEPT: "accept", 2: "stolen", 3: "queue", 4: "repeat"}
_MOVES: Final = {-1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return"}
_KINDS: Final[dict[int, Literal["policy", "return", "rule"]]] = {1: "policy", 2: "return", 3: "rule"}

_HEAD: Final = Struct("=BBH")  # struct nfgenmsg: family, version, resource
# Chains by family: name, and the number of the hook.
_CHAINS: Final = {
    NFPROTO["inet"]: (("incoming", 0), ("outgoing", 3)),  # NF_INET_PRE_ROUTING, NF_INET_LOCAL_OUT
    NFPROTO["bridge"]: (("bridged", 0),),  # NF_BR_PRE_ROUTING
    _NETDEV: (("received", 0),),  # NF_NETDEV_INGRESS
}


def listen(patterns: Sequence[Pattern]) -> socket.socket:
    """Have packets of the thread's namespace traced, and hear of it. `close` the socket; it does not block.

    A family that the kernel does not have is left out. `OSError` without rights or nf_tables.
    """
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    try:
        widen(sock, _BUFFER, socket.SO_RCVBUF, socket.SO_SNDBUF)
        netlink = NetlinkSocket(sock)
        join(sock, _NFNLGRP_NFTRACE)
        devices = sorted(_asked_first(netlink))
        for family in _CHAINS:
            if family != _NETDEV or devices:
                _make(netlink, family, tables(sock), _chains(family, patterns, devices))
        sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
    except BaseException:
        sock.close()
        raise
    return sock


def close(sock: socket.socket) -> None:
    """End the trace. Only tables without an owner are left for us to delete."""
    with suppress(OSError):
        sock.setblocking(True)  # noqa: FBT003 - that is how socket has it
        netlink = NetlinkSocket(sock)
        for family in _CHAINS:
            _delete(netlink, family)
    sock.close()


def tables(sock: socket.socket) -> tuple[str, str]:
    """The names that our tables may have: with an owner, or without."""
    return f"{TABLE}-{sock.getsockname()[0]}", TABLE


def take(sock: socket.socket) -> Iterator[Step]:
    """The steps that have come, up to some thousands. Raises `OSError` (ENOBUFS) once if more came than were kept."""
    for _ in range(_AT_ONCE):
        try:
            datagram = sock.recv(_DATAGRAM)
        except BlockingIOError:
            return
        yield from steps_in(datagram)


def steps_in(datagram: bytes) -> Iterator[Step]:
    """Raises `Malformed`."""
    for message in messages_in(datagram):
        if message.kind == _TRACE and len(message.body) >= _HEAD.size:
            yield _step(message.body[0], parse(message.body, _HEAD.size))


def _step(family: int, found: Attributes) -> Step:
    kind = _KINDS.get(found.network_number(_NFTA_TRACE_TYPE) or 0)
    if kind is None:
        raise Malformed("a trace of nf_tables that is of no known type")
    said = found.nest(_NFTA_TRACE_VERDICT)
    code = int.from_bytes(said.get(_NFTA_VERDICT_CODE, b"\0\0\0\1"), "big", signed=True)
    if kind == "policy":
        code = found.network_number(_NFTA_TRACE_POLICY) or 0
    # The lowest byte is the verdict; above it a queue has its number, and a drop its errno.
    verdict = _MOVES.get(code) or _VERDICTS.get(code & 0xFF, str(code))
    return Step(
        packet=found.network_number(_NFTA_TRACE_ID) or 0,
        family=_FAMILIES.get(family, str(family)),
        table=found.text(_NFTA_TRACE_TABLE),
        chain=found.text(_NFTA_TRACE_CHAIN),
        kind=kind,
        handle=found.network_number(_NFTA_TRACE_RULE_HANDLE) or 0,
        verdict=f"{verdict} {said.text(_NFTA_VERDICT_CHAIN)}".rstrip(),
        iif=found.network_number(_NFTA_TRACE_IIF) or 0,
        oif=found.network_number(_NFTA_TRACE_OIF) or 0,
        header=found.get(_NFTA_TRACE_NETWORK_HEADER, b""),
    )


def _asked_first(netlink: NetlinkSocket) -> set[str]:
    """The links that chains hang on."""
    found = set[str]()
    for body in netlink.dump(_GETCHAIN, _HEAD.pack(0, 0, 0)):
        hook = parse(body, _HEAD.size).nest(_NFTA_CHAIN_HOOK)
        found.update(c_string(name) for _, name in parse_list(hook.get(_NFTA_HOOK_DEVS, b"")))
        found.add(hook.text(_NFTA_HOOK_DEV))
    return found - {""}


def _make(
    netlink: NetlinkSocket, family: int, names: tuple[str, str], chains: Sequence[tuple[int, int, bytes]]
) -> None:
    owned, plain = names

    def made(table: str, flags: int) -> dict[int, NetlinkError]:
        head = _HEAD.pack(family, 0, 0)
        named = text(_NFTA_TABLE_NAME, table) + attribute(_NFTA_TABLE_FLAGS, flags.to_bytes(4, "big"))
        within = [Message(kind, how, head + text(_NFTA_TABLE_NAME, table) + body) for kind, how, body in chains]
        return _transaction(netlink, Message(_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, head + named), *within)

    refused = made(owned, _NFT_TABLE_F_OWNER)
    if refused:
        _delete(netlink, family)  # of a trace that ended without its `close`
        refused = made(plain, 0)
    for error in refused.values():
        if error.errno not in ABSENT:
            raise error


def _chains(family: int, patterns: Sequence[Pattern], devices: Sequence[str]) -> list[tuple[int, int, bytes]]:
    """The kinds, flags and bodies of the messages that make a family's chains; the table's name comes first in each."""
    found = list[tuple[int, int, bytes]]()
    for name, hook in _CHAINS[family]:
        where = [
            attribute(_NFTA_HOOK_HOOKNUM, hook.to_bytes(4, "big")),
            attribute(_NFTA_HOOK_PRIORITY, _FIRST.to_bytes(4, "big", signed=True)),
        ]
        if family == _NETDEV:
            where.append(nest(_NFTA_HOOK_DEVS, *(text(_NFTA_DEVICE_NAME, each) for each in devices)))
        chain = text(_NFTA_CHAIN_NAME, name) + nest(_NFTA_CHAIN_HOOK, *where) + text(_NFTA_CHAIN_TYPE, "filter")
        found.append((_NEWCHAIN, NLM_F_CREATE, chain))
        for pattern in patterns:
            rule = text(_NFTA_RULE_CHAIN, name) + nest(_NFTA_RULE_EXPRESSIONS, *_expressions(pattern))
            found.append((_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, rule))
    return found


def _expressions(pattern: Pattern) -> Iterator[bytes]:
    """`@th,OFFSET,LENGTH FIRST-LAST meta nftrace set 1`, as nft --debug=netlink shows it."""
    yield _expression("payload", _numbers(_REGISTER, _TRANSPORT, pattern.offset, len(pattern.first)))
    for operator, bound in ((_NFT_CMP_GTE, pattern.first), (_NFT_CMP_LTE, pattern.last)):
        data = nest(3, attribute(_NFTA_DATA_VALUE, bound))  # NFTA_CMP_DATA, behind register and operator
        yield _expression("cmp", _numbers(_REGISTER, operator) + data)
    one = nest(2, attribute(_NFTA_DATA_VALUE, (1).to_bytes(1, "little")))  # NFTA_IMMEDIATE_DATA, behind the register
    yield _expression("immediate", _numbers(_REGISTER) + one)
    key, register = (_NFT_META_NFTRACE).to_bytes(4, "big"), _REGISTER.to_bytes(4, "big")
    yield _expression("meta", attribute(2, key) + attribute(3, register))  # NFTA_META_KEY, NFTA_META_SREG


def _numbers(*values: int) -> bytes:
    """Attributes 1, 2 and so on."""
    return b"".join(attribute(kind, value.to_bytes(4, "big")) for kind, value in enumerate(values, 1))


def _expression(name: str, data: bytes) -> bytes:
    return nest(_NFTA_LIST_ELEM, text(_NFTA_EXPR_NAME, name), nest(_NFTA_EXPR_DATA, data))


def _delete(netlink: NetlinkSocket, family: int) -> None:
    """Without effect where there is no such table."""
    _transaction(netlink, Message(_DELTABLE, 0, _HEAD.pack(family, 0, 0) + text(_NFTA_TABLE_NAME, TABLE)))


def _transaction(netlink: NetlinkSocket, *messages: Message) -> dict[int, NetlinkError]:
    return netlink.transaction((BATCH_BEGIN, *messages, BATCH_END))
