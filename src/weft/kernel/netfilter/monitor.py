"""Hears of changes to our firewall rules: nf_tables notices (linux/netfilter/nfnetlink.h, nf_tables.h).

A change (one transaction, one generation) is a notice for each object, then NEWGEN, which names the process. Notices
are told apart by chain too: kube-proxy rewrites its chains in the tables that ours live in. Changes of legacy iptables
are not announced. Nothing ends the monitor but closing it.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from struct import Struct
from typing import Final

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.netfilter import iptables, nft
from weft.kernel.netfilter.nfnetlink import NETLINK_NETFILTER, NFPROTO, elements_in
from weft.kernel.portholders import shown
from weft.kernel.rtnetlink.attributes import Attributes, Malformed, parse
from weft.kernel.rtnetlink.netlink import Reply, join, messages_in, widen
from weft.kernel.tools import OwnProcesses
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.objects import Key
from weft.model.kernel.policytable import BRIDGE, INET
from weft.model.value import Value

_NFNLGRP_NFTABLES: Final = 7

_NFNL_SUBSYS_NFTABLES: Final = 10
_NFT_MSG_NEWTABLE: Final = 0
_NFT_MSG_DELTABLE: Final = 2
_NFT_MSG_NEWCHAIN: Final = 3
_NFT_MSG_DELCHAIN: Final = 5
_NFT_MSG_NEWRULE: Final = 6
_NFT_MSG_DELRULE: Final = 8
_NFT_MSG_NEWSET: Final = 9
_NFT_MSG_DELSET: Final = 11
_NFT_MSG_NEWSETELEM: Final = 12
_NFT_MSG_DELSETELEM: Final = 14
_NFT_MSG_NEWGEN: Final = 15
_NFTA_TABLE: Final = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE: all 1
_NFTA_SET_NAME: Final = 2
_NFTA_CHAIN_NAME: Final = 3
_NFTA_RULE_CHAIN: Final = 2
_NFTA_GEN_PROC_PID: Final = 2
_NFTA_GEN_PROC_NAME: Final = 3

_FAMILIES: Final = {2: 4, 10: 6}  # NFPROTO_IPV4, NFPROTO_IPV6
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg: family, version, resource

# Thousands of rules in one change are a few hundred kilobytes of notices.
_BUFFER_BYTES: Final = 4 << 20
_DATAGRAM: Final = 1 << 17
_RETRY_SECONDS: Final = 1.0
_NAMED: Final = 3  # of more programs that touched the same before it was looked at, none is named
# After a change that is not of our rules: each pod with a host port makes one, and while it comes its request waits.
_REST_SECONDS: Final = 0.02

# The chains of iptables tables that matter: ours, and those that jump there.
_CHAINS: Final = {
    "nat": frozenset({POSTRTG, FWD, "POSTROUTING"}),
    "filter": frozenset({POSTRTG, FWD, "FORWARD"}),
}
# The tables of host ports and masquerade of pods (cni/plugins/portmap, cni/attachment/masq): their deletion is noticed.
_PLUGINS_TABLES: Final = frozenset({"weft-hostport", "cni_plugins_masquerade", "nat"})
PLUGINS: Final[Key] = ("plugins",)
POLICIES: Final[Key] = ("policies",)
_POLICY_TABLES: Final = {
    (NFPROTO[family], name): table for table in (INET, BRIDGE) for family, name in [table.split(" ")]
}
_OUR_TABLES: Final = frozenset(table.name for table in nft.TABLES.values())


class Touched(Value):
    """Someone else changed chains or tables of ours; `by` names the process for each key.

    A key is `PLUGINS` when a table of the plugins was deleted, and `POLICIES` when one of policies was, or was changed.
    Numbers are those of the outermost pid namespace, and of a thread where a program has several.
    """

    keys: frozenset[Key]
    by: Mapping[Key, str]


class Resync(Value):
    reason: str


class Generations:
    """Collects notices into changes. Knows no socket."""

    def __init__(self, own: OwnProcesses) -> None:
        self._own = own
        self._open: list[tuple[int, bytes]] = []  # of our own changes, which may be large, nothing else is read
        self._by: dict[Key, dict[str, None]] = {}

    def feed(self, datagram: bytes) -> None:
        """Raises `Malformed`."""
        for message in messages_in(datagram):
            subsystem, kind = message.kind >> 8, message.kind & 0xFF
            if subsystem != _NFNL_SUBSYS_NFTABLES or len(message.body) < _HEAD.size:
                continue
            if kind == _NFT_MSG_NEWGEN:
                self._close(message)
            else:
                self._open.append((kind, message.body))

    def take(self) -> Touched | None:
        if not self._by:
            return None
        by = {key: " or ".join(names) for key, names in self._by.items() if len(names) <= _NAMED}
        touched = Touched(keys=frozenset(self._by), by=by)
        self._by.clear()
        return touched

    def forget(self) -> None:
        self._open.clear()
        self._by.clear()

    def _close(self, message: Reply) -> None:
        # The port is the sender's pid in its own pid namespace, which is ours for our children; NFTA_GEN_PROC_PID
        # counts from the outermost, so inside a container it would never be one that we know (both tried).
        touched, self._open = self._open, []
        if message.port not in self._own:
            keys = {key for kind, body in touched for key in _touched(kind, body)}
            attributes = parse(message.body, _HEAD.size)
            pid = attributes.network_number(_NFTA_GEN_PROC_PID)
            name = f"{shown(attributes.text(_NFTA_GEN_PROC_NAME))} (pid {pid})"
            for key in keys:
                self._by.setdefault(key, {})[name] = None


class Monitor:
    """The nf_tables notices of the namespace in which it was opened. A context manager."""

    def __init__(self, own: OwnProcesses) -> None:
        """`Unavailable` (KERN-001) where the kernel has no such notices, `PermissionError` without rights."""
        self._own = own
        self._generations = Generations(own)
        try:
            self._socket = _subscribe()
        except PermissionError:
            raise
        except OSError as error:
            hint = (
                "weft goes on, and looks at its rules every --iptables-resync seconds; with `modprobe nf_tables` and"
                " another start, changes are put back at once"
            )
            seen, expected = f"the kernel has none: {error.strerror}", "a kernel with nfnetlink and nf_tables"
            problem = Problem(code="KERN-001", where="nf_tables notices", seen=seen, expected=expected, hint=hint)
            raise Unavailable(problem) from error
        self._broken = False

    def close(self) -> None:
        """A waiting `wake` must have been cancelled."""
        self._socket.close()

    async def wakes(self) -> AsyncIterator[Touched | Resync]:
        while True:
            yield await self.wake()

    async def wake(self) -> Touched | Resync:
        """Wait for changes; all since the last call are one. May be cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if self._broken:
                    # A socket that fails at once, again and again, must not take the processor.
                    await asyncio.sleep(_RETRY_SECONDS)
                    replacement = _subscribe()
                    self._socket.close()
                    self._socket, self._broken = replacement, False
                self._generations.feed(await loop.sock_recv(self._socket, _DATAGRAM))
                self._drain()
            except (OSError, Malformed) as error:
                self._generations.forget()
                # ENOBUFS leaves the socket in order; after anything else a new one takes its place.
                self._broken = getattr(error, "errno", None) != errno.ENOBUFS
                full = "more nf_tables notices than the socket holds"
                return Resync(reason=f"nf_tables notices: {error}" if self._broken else full)
            touched = self._generations.take()
            if touched is not None:
                return touched
            await asyncio.sleep(_REST_SECONDS)

    def _drain(self) -> None:
        try:
            while True:
                self._generations.feed(self._socket.recv(_DATAGRAM))
        except BlockingIOError:
            self._own.caught_up()


def _subscribe() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    try:
        sock.setblocking(False)  # noqa: FBT003 (its only argument)
        widen(sock, _BUFFER_BYTES)
        sock.bind((0, 0))
        join(sock, _NFNLGRP_NFTABLES)
    except BaseException:
        sock.close()
        raise
    return sock


def _touched(kind: int, body: bytes) -> set[Key]:
    """The rule set that a notice is about, if it is ours, and `PLUGINS` for a deleted table."""
    attributes = parse(body, _HEAD.size)
    table = attributes.text(_NFTA_TABLE)
    lost: set[Key] = {PLUGINS} if kind == _NFT_MSG_DELTABLE and table in _PLUGINS_TABLES else set()
    if (body[0], table) in _POLICY_TABLES:
        return _touched_policies(kind, body, attributes, _POLICY_TABLES[body[0], table])
    family = _FAMILIES.get(body[0])
    if family is None:
        return lost
    if table in _OUR_TABLES:
        return {("ruleset", nft.KIND, family)}
    if table in _CHAINS and _chain(kind, attributes) in (None, *_CHAINS[table]):
        return {*lost, ("ruleset", iptables.KIND, family)}
    return lost


def _touched_policies(kind: int, body: bytes, attributes: Attributes, table: str) -> set[Key]:
    if kind in (_NFT_MSG_NEWSETELEM, _NFT_MSG_DELSETELEM):
        return {("polelement", table, each.set, each.key) for each in elements_in(body)}
    if kind in (_NFT_MSG_NEWSET, _NFT_MSG_DELSET):
        name = attributes.text(_NFTA_SET_NAME)
        return set() if name.startswith("__") else {("polset", table, name)}
    chain = _chain(kind, attributes)
    if chain is None:
        return {POLICIES}  # it was deleted, or may sleep now
    return {("polchain", table, chain)} if chain else set()


def _chain(kind: int, attributes: Attributes) -> str | None:
    """The chain that a notice names, None for a whole table, "" for a set."""
    if kind in (_NFT_MSG_NEWTABLE, _NFT_MSG_DELTABLE):
        return None
    if kind in (_NFT_MSG_NEWCHAIN, _NFT_MSG_DELCHAIN):
        return attributes.text(_NFTA_CHAIN_NAME)
    if kind in (_NFT_MSG_NEWRULE, _NFT_MSG_DELRULE):
        return attributes.text(_NFTA_RULE_CHAIN)
    return ""
