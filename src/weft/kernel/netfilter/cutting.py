"""Ends connections that policies allow no more, by deleting their entries of connection tracking.

The next packet is judged as a first one then. An answer that comes first would be taken for the beginning of another
connection, which may be allowed, and bring the old one back: UDP has no beginning, and TCP is taken up in the middle
(nf_conntrack_tcp_loose). So answers are shut before the entry goes, by an element of the set that the base chain asks.
"""

from collections.abc import Callable, Container, Sequence
from typing import Final

from weft.desired.policy.names import CUT, connection_of, cut_element
from weft.kernel.netfilter import conntrack
from weft.kernel.netfilter.conntrack import Connection
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import Torn
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.nftset import Add, Change, Delete
from weft.model.kernel.policytable import INET, table_of
from weft.model.net import FAMILIES, Ip

# Of the sender and the target, packed, the number of the protocol, and the target's port.
Forbids = Callable[[bytes, bytes, int, int], bool]

_AT_ONCE: Final = 2048
_WITH_PORTS: Final = (6, 17, 132)


def cut(nf: NfSocket, forbids: Forbids, of: Container[bytes] | None) -> int:
    """Judge the connections of these addresses, or all, and end those that are forbidden.

    Returns how many were cut. One walk through the kernel's table for each family; in a thread. Raises `OSError`.
    """
    return sum(_cut(nf, family, forbids, of) for family in FAMILIES)


def _cut(nf: NfSocket, family: int, forbids: Forbids, of: Container[bytes] | None) -> int:
    try:
        found = _forbidden(nf, family, forbids, of)
    except Torn:
        found = _forbidden(nf, family, forbids, of)
    gone = 0
    for start in range(0, len(found), _AT_ONCE):
        part = found[start : start + _AT_ONCE]
        _shut_answers(nf, part)
        gone += conntrack.forget(nf, family, (each.entry for each in part))
    return gone


def _forbidden(nf: NfSocket, family: int, forbids: Forbids, of: Container[bytes] | None) -> list[Connection]:
    return [
        each
        for each in conntrack.connections(nf, family, of)
        if forbids(each.source, each.target, each.protocol, each.target_port)
    ]


def _shut_answers(nf: NfSocket, found: list[Connection]) -> None:
    """What is there already is left out, and so is what has no room: what is over has no more answers."""
    ends = [each for each in found if each.protocol in _WITH_PORTS and not conntrack.is_over(each)]
    shut = (cut_element(each.source, each.target, each.protocol, (each.source_port, each.target_port)) for each in ends)
    _change(nf, [Add(each) for each in shut])


def _change(nf: NfSocket, changes: Sequence[Change]) -> None:
    """All at once; what is refused is left out of the next try."""
    while changes:
        refused = nf.transaction(table_of(INET), changes)
        if not refused:
            return
        changes = [change for position, change in enumerate(changes) if position not in refused]


def reopen(nf: NfSocket, forbids: Forbids) -> int:
    """Let answers pass again whose connections are allowed now: ports and addresses may be another's, or a rule came.

    Returns how many stay shut. Raises `OSError`.
    """
    stay = 0
    for family in FAMILIES:
        shut = nf.elements(table_of(INET), f"{CUT}{family}")
        allowed = [each for each in shut if not forbids(*connection_of(each.key))]
        stay += len(shut) - len(allowed)
        for start in range(0, len(allowed), _AT_ONCE):
            _change(nf, [Delete(each) for each in allowed[start : start + _AT_ONCE]])
    return stay


def own_addresses() -> frozenset[Ip]:
    """Those of this node."""
    with Rtnl.open() as rtnl:
        return frozenset(each.ip for each in rtnl.addresses())
