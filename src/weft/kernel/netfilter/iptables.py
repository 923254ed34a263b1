"""Our iptables chains: `FLANNEL-POSTRTG` in nat, `FLANNEL-FWD` in filter, and a jump to each.

Read by `iptables-save`, replaced by one `iptables-restore --noflush`, which is atomic for each table. Nothing but our
chains and the jumps to them is touched.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.tools import Tools
from weft.model.errors import Problem
from weft.model.kernel.objects import Chain, RuleSet
from weft.model.value import Value
from weft.wire.iptables import Table, leading, parse, payload, target

KIND: Final = "iptables"
PROGRAMS: Final = {4: "iptables", 6: "ip6tables"}

_ORIGINS: Final = {"nat": "POSTROUTING", "filter": "FORWARD"}
_OURS: Final = (POSTRTG, FWD)

_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?")
_WAITS: Final = (1, 6, 2)  # iptables-restore --wait, and MASQUERADE --random-fully
# The calling thread's namespace; /proc/net would be the main thread's.
_LEGACY_NAMES: Final = {4: "/proc/thread-self/net/ip_tables_names", 6: "/proc/thread-self/net/ip6_tables_names"}


class Version(Value):
    """`legacy` rules live outside nf_tables and give no notices."""

    numbers: tuple[int, ...]
    legacy: bool

    @property
    def waits(self) -> bool:
        return self.numbers >= _WAITS

    @property
    def random_fully(self) -> bool:
        return self.numbers >= _WAITS

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.numbers))} ({'legacy' if self.legacy else 'nf_tables'})"


class Iptables:
    """The rules of one family. `variant` is "" for the host's iptables, else `nft` or `legacy`."""

    def __init__(self, tools: Tools, family: int, variant: str = "") -> None:
        self._tools = tools
        self._family = family
        self._variant = variant
        self._kind = f"{KIND}-{variant}" if variant else KIND
        self._program = f"{PROGRAMS[family]}-{variant}" if variant else PROGRAMS[family]
        self._version: Version | None = None

    @property
    def installed(self) -> bool:
        return self._tools.has(f"{self._program}-save")

    async def version(self) -> Version:
        """Asked for once: it decides how the programs are called. Raises `ToolError`."""
        if self._version is None:
            self._version = parse_version(await self._tools.run(self._program, ("--version",)))
        return self._version

    async def read(self) -> RuleSet | None:
        """None when there is no trace of our chains. Raises `ToolError`."""
        return as_rule_set(await self._look(), self._kind, self._family)

    async def replace(self, want: RuleSet | None) -> None:
        """Write nothing when the chains are right.

        Raises `ToolError`, also when someone removed a jump between the look and the change.
        """
        change = render(want.chains if want is not None else (), await self._look())
        if change:
            wait = ("--wait",) if (await self.version()).waits else ()
            await self._tools.run(f"{self._program}-restore", (*wait, "--noflush"), change)

    async def _look(self) -> dict[str, Table]:
        # Looking at a legacy table creates it, with its hooks; one that does not exist holds nothing of ours.
        is_legacy = self._variant == "legacy" if self._variant else (await self.version()).legacy
        there = legacy_tables(self._family) if is_legacy else _ORIGINS
        names = [table for table in _ORIGINS if table in there]
        texts = await asyncio.gather(*(self._tools.run(f"{self._program}-save", ("-t", name)) for name in names))
        found: dict[str, Table] = {table: {} for table in _ORIGINS}
        return found | dict(zip(names, map(parse, texts), strict=True))


def parse_version(text: str) -> Version:
    """Before 1.8 there was only what is now called legacy."""
    found = _VERSION.search(text)
    if found is None:
        return Version(numbers=(0, 0, 0), legacy=True)
    *numbers, variant = found.groups()
    return Version(numbers=tuple(map(int, numbers)), legacy=variant != "nf_tables")


def legacy_tables(family: int) -> frozenset[str]:
    """Name the legacy tables of this network namespace, without creating any."""
    try:
        return frozenset(Path(_LEGACY_NAMES[family]).read_text("ascii").split())
    except OSError:  # a kernel without legacy iptables
        return frozenset()


def mixed_worlds(version: Version | None, family: int) -> Problem | None:
    """Say that legacy tables filter beside our nf_tables rules (`version` None: of nft)."""
    tables = legacy_tables(family)
    if not tables or (version is not None and version.legacy):
        return None
    return Problem(
        code="NFT-001",
        where=f"legacy {PROGRAMS[family]}",
        seen=f"tables {', '.join(sorted(tables))} exist beside nf_tables",
        expected="one of the two",
        hint=f"Rules of both apply. Look with `{PROGRAMS[family]}-legacy-save`; remove what is stale, or restart.",
    )


def as_rule_set(tables: Mapping[str, Table], kind: str, family: int) -> RuleSet | None:
    """A chain's `jump` is the text of all jumps to it from where ours belongs, one a line."""
    chains = tuple(
        Chain(
            name=name,
            table=table,
            rules=tuple(have[name]),
            jump_from=_ORIGINS[table],
            jump="\n".join(leading(have, _ORIGINS[table], name)),
        )
        for table, have in tables.items()
        for name in _OURS
        if name in have
    )
    return RuleSet(kind=kind, family=family, chains=chains) if chains else None


def render(want: Iterable[Chain], tables: Mapping[str, Table]) -> str:
    """Write the payload of `iptables-restore --noflush`; "" for no change.

    Naming a chain creates or empties it, within the table's one change. A right jump keeps its place among the rules of
    others; a missing one is appended, as upstream's.
    """
    wanted = tuple(want)
    return "".join(
        payload(table, _lines([chain for chain in wanted if chain.table == table], have))
        for table, have in tables.items()
    )


def _lines(want: list[Chain], have: Table) -> list[str]:
    names = {chain.name for chain in want}
    stale = [name for name in _OURS if name in have and name not in names]
    changed = [chain for chain in want if chain.name not in have or tuple(have[chain.name]) != chain.rules]
    added, removed = _jumps(want, stale, have)
    return [
        *(f":{name} - [0:0]" for name in (*(chain.name for chain in changed), *stale)),
        *(f"-D {jump}" for jump in removed),
        *(f"-A {chain.name} {rule}" for chain in changed for rule in chain.rules),
        *(f"-A {jump}" for jump in added),
        *(f"-X {name}" for name in stale),
    ]


def _jumps(want: list[Chain], stale: list[str], have: Table) -> tuple[list[str], list[str]]:
    """Leave exactly one jump for each wanted chain.

    A jump from another chain than ours was put there by a person and stays, unless its target goes.
    """
    removed = [
        f"{origin} {rule}"
        for origin, rules in have.items()
        if origin not in _OURS
        for rule in rules
        if target(rule) in stale
    ]
    added: list[str] = []
    for chain in want:
        found = leading(have, chain.jump_from, chain.name)
        if chain.jump in found:
            found.remove(chain.jump)
        else:
            added.append(f"{chain.jump_from} {chain.jump}")
        removed += [f"{chain.jump_from} {rule}" for rule in found]
    return added, removed
