"""Our nft tables, read as text and replaced in one transaction. What others put into them goes."""

import re
from typing import Final

from weft.kernel.tools import ToolError, Tools
from weft.model.kernel.nftset import Table
from weft.model.kernel.objects import Chain, RuleSet
from weft.wire import nft as wire

KIND: Final = "nft"
TABLES: Final = {4: Table("ip", "flannel-ipv4"), 6: Table("ip6", "flannel-ipv6")}

_OLDEST: Final = (1, 0, 1)  # flannel.md §8.5
_VERSION: Final = re.compile(r"nftables v(\d+)\.(\d+)(?:\.(\d+))?")
# The same for all: nft prints names for numbers that /etc/iproute2/rt_marks and the like know, unless told not to.
_LIST: Final = ("-n", "list")


class Nft:
    def __init__(self, tools: Tools, family: int) -> None:
        self._tools = tools
        self._family = family
        self._table = TABLES[family]

    async def read(self) -> RuleSet | None:
        """None when there is no table. Raises `ToolError`."""
        text = await self._text()
        return None if text is None else parse(text, self._family)

    async def replace(self, want: RuleSet | None) -> None:
        """Write nothing when the table is right.

        Raises `ToolError`, also when someone else changed the table between the look and the change.
        """
        transaction = change(want, await self._text(), self._family)
        if transaction:
            await self._tools.run("nft", ("-f", "-"), transaction)

    async def can_be_random(self) -> bool:
        probe = RuleSet(
            kind=KIND,
            family=self._family,
            chains=(
                Chain(
                    name="weft-probe",
                    hook="type nat hook postrouting priority 100; policy accept;",
                    rules=("masquerade fully-random",),
                ),
            ),
        )
        try:
            await self._tools.run("nft", ("--check", "-f", "-"), make(probe, replace=False))
        except ToolError:
            return False
        return True

    async def _text(self) -> str | None:
        try:
            return await self._tools.run("nft", (*_LIST, "table", self._table.family, self._table.name))
        except ToolError:
            # nft has one exit code for everything; the list of tables tells "not there" from "cannot say".
            tables = await self._tools.run("nft", (*_LIST, "tables"))
            if f"table {self._table}" in tables.splitlines():
                raise
            return None


async def version(tools: Tools) -> tuple[str, bool]:
    """The version, and whether it is new enough. Raises `ToolError`."""
    text = await tools.run("nft", ("--version",))
    found = _VERSION.search(text)
    if found is None:
        return text.strip(), False
    numbers = tuple(int(part or 0) for part in found.groups())
    return ".".join(map(str, numbers)), numbers >= _OLDEST


def change(want: RuleSet | None, text: str | None, family: int) -> str:
    """`text` is our table as listed, None without one; "" for no change."""
    if text is None:
        return "" if want is None else make(want, replace=False)
    if want is None:
        return remove(family)
    have = parse(text, family)
    if _mark(family) in text and _shape(have) == _shape(want):
        return refill(want, have)
    return "" if have == want else make(want, replace=True)


def make(want: RuleSet, *, replace: bool) -> str:
    """`replace`: delete the table first, in the same transaction.

    That is for another shape: the kernel refuses a change of a chain's hook and ignores one of a table's comment.
    """
    table = TABLES[want.family]
    lines = _removal(table) if replace else []
    lines.append(f'add table {table} {{ comment "{_mark(want.family)}"; }}')
    for chain in want.chains:
        comment = f' comment "{chain.comment}";' if chain.comment else ""
        lines.append(f"add chain {table} {chain.name} {{ {chain.hook}{comment} }}")
        lines += [f"add rule {table} {chain.name} {rule}" for rule in chain.rules]
    return wire.payload(lines)


def refill(want: RuleSet, have: RuleSet) -> str:
    """Empty and fill the chains that differ: a packet meets the old rules or the new.

    Right chains are left alone: deleting rules makes nft wait for the kernel, 10 ms and more.
    """
    table = TABLES[want.family]
    lines: list[str] = []
    for chain in want.chains:
        if chain not in have.chains:
            lines += wire.refill(table, chain.name, chain.rules)
    return wire.payload(lines)


def remove(family: int) -> str:
    """It succeeds whether or not the table is there."""
    return wire.payload(_removal(TABLES[family]))


def parse(text: str, family: int) -> RuleSet:
    """Read `nft -n list table`. What is not a chain becomes an unwanted chain, so that it is noticed.

    Chains are in the order of `desired.firewall`, masquerading first; nft lists them by age.
    """
    listed = sorted(wire.parse(text).items(), key=lambda item: (item[0] != "postrtg", item[0]))
    chains = (
        Chain(name=name, hook=chain.hook, comment=chain.comment, rules=tuple(rule for rule, _ in chain.rules))
        for name, chain in listed
    )
    return RuleSet(kind=KIND, family=family, chains=tuple(chains))


def _shape(ruleset: RuleSet) -> list[tuple[str, str, str]]:
    return [(chain.name, chain.hook, chain.comment) for chain in ruleset.chains]


def _mark(family: int) -> str:
    """The comment by which people tell our table from upstream's of the same name."""
    return f"weft: rules for {TABLES[family].name}"


def _removal(table: Table) -> list[str]:
    # `destroy table` needs nft 1.0.7 and Linux 6.3; adding first makes deleting succeed on anything.
    return [f"add table {table}", f"delete table {table}"]
