"""Tables of our own in nf_tables, with an element of a set for each pod: one transaction for a change, and no program.

`nft` is started once on a node, when a table is missing.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.nftset import Add, Change, Delete, Element, Table
from weft.wire.cni import INTERNAL, CniError, failure
from weft.wire.nft import Rule

# Returns nft's lines for what is missing of a table with these sets.
Frame = Callable[[set[str]], list[str]]
# Returns what puts the first element in place of the one that its key has now.
Settle = Callable[[Element, Element | None], Sequence[Change]]

# Each failed one was overtaken by another program's change, which gives one of these: the key is there, with the same
# data or with other, or it is not there, or its table.
_ATTEMPTS: Final = 8
_OVERTAKEN: Final = (errno.EEXIST, errno.EBUSY, errno.ENOENT)


class Unusable(CniError):
    """This host cannot have our tables: no nf_tables in the kernel, or no nft that can make them."""

    def __init__(self, msg: str, details: str = "") -> None:
        super().__init__(INTERNAL, msg, details)


def opened(host: Host) -> NfSocket:
    try:
        return host.netfilter
    except OSError as error:
        raise Unusable(f"the kernel has no nf_tables: {error}") from error


def change(
    nf: NfSocket,
    table: Table,
    changes: Sequence[Change],
    look: Callable[[], Sequence[Change]],
    frame: Frame | None = None,
) -> None:
    """Carry out these changes, or what `look` finds to be right instead, until it holds: all or nothing.

    With `frame` a missing table is made. Raises `Unusable`, and `CniError` where the kernel refuses a change for what
    it is, or where it never holds.
    """
    refused: dict[int, NetlinkError] = {}
    for _ in range(_ATTEMPTS):
        try:
            refused = nf.transaction(table, changes)
        except NetlinkError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise Unusable(f"the kernel has no nf_tables: {error}") from error
            raise
        if not refused:
            return
        for refusal in refused.values():
            if refusal.errno not in _OVERTAKEN:
                raise failure(f"table {table}: the kernel refuses a change: {refusal}")
        if frame is not None:
            _complete(nf, table, frame)
        changes = look()
    raise failure(f"table {table} keeps changing: {next(iter(refused.values()))}")


def put(nf: NfSocket, table: Table, elements: Sequence[Element], settle: Settle, frame: Frame) -> None:
    """At first they are only added, without a look, which is right for nearly every ADD."""

    def look() -> list[Change]:
        return [change for each in elements for change in settle(each, nf.element(table, each.set, each.key))]

    change(nf, table, [*map(Add, elements)], look, frame)


def remove(nf: NfSocket, table: Table, look: Callable[[], Sequence[Element]]) -> int:
    found = look()
    change(nf, table, [*map(Delete, found)], lambda: [*map(Delete, look())])
    return len(found)


def missing_rule(nf: NfSocket, table: Table, rules: Iterable[Rule]) -> Rule | None:
    present = nf.comments(table)
    return next((rule for rule in rules if (rule.chain, rule.comment) not in present), None)


def _complete(nf: NfSocket, table: Table, frame: Frame) -> None:
    lines = frame(nf.sets(table))
    if not lines:
        return
    try:
        programs.run_nft(lines)
    except CniError as error:
        # If now something else is missing, another call was quicker with a part of it: then it is tried again.
        if frame(nf.sets(table)) == lines:
            raise Unusable(f"table {table} cannot be made: {error.msg}", error.details) from error
