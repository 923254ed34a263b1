"""Our iptables chains: `FLANNEL-POSTRTG` in nat, `FLANNEL-FWD` in filter, and the one jump to each.

Read by `iptables-save`, replaced by one `iptables-restore --noflush`, which is atomic for each table. Touches
nothing but rules of our chains and rules that jump to them. Knows nothing of what the rules mean.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.tools import Tools
from weft.model.errors import Problem
from weft.model.rulesets import Chain, RuleSet
from weft.model.value import Value

KIND: Final = "iptables"
PROGRAMS: Final = {4: "iptables", 6: "ip6tables"}

_TABLES: Final = ("nat", "filter")
_OURS: Final = (POSTRTG, FWD)
_TARGET: Final = re.compile(rf"(?:^| )-[jg] ({'|'.join(_OURS)})(?: |$)")

# Comments may hold any words, such as those of a jump.
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')

_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?")
_WAITS: Final = (1, 6, 2)  # iptables-restore --wait, and MASQUERADE --random-fully
# The calling thread's namespace; /proc/net would be the main thread's.
_LEGACY_NAMES: Final = {4: "/proc/thread-self/net/ip_tables_names", 6: "/proc/thread-self/net/ip6_tables_names"}


class Version(Value):
    """What `iptables --version` says. `legacy` rules live outside nf_tables and give no notices."""

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


class Listing(Value):
    """One table: the rules of our chains by name, and who jumps there, as (chain, rule) in order."""

    chains: Mapping[str, tuple[str, ...]]
    jumps: tuple[tuple[str, str], ...] = ()


class Iptables:
    """The rules of one family (4 or 6).

    `variant` is "" for what the host calls iptables, else `nft` or `legacy` for the one of that name.
    """

    def __init__(self, tools: Tools, family: int, variant: str = "") -> None:
        self._tools = tools
        self._family = family
        self._variant = variant
        self._kind = f"{KIND}-{variant}" if variant else KIND
        self._program = f"{PROGRAMS[family]}-{variant}" if variant else PROGRAMS[family]
        self._version: Version | None = None

    @property
    def installed(self) -> bool:
        """Tell whether its programs are there."""
        return self._tools.has(f"{self._program}-save")

    async def version(self) -> Version:
        """Return the version, asked for once: it decides how the programs are called. Raises `ToolError`."""
        if self._version is None:
            self._version = parse_version(await self._tools.run(self._program, ("--version",)))
        return self._version

    async def read(self) -> RuleSet | None:
        """Return our chains as they are, None when there is no trace of them. Raises `ToolError`."""
        return as_rule_set(await self._listings(), self._kind, self._family)

    async def replace(self, want: RuleSet | None) -> None:
        """Make our chains exactly those of `want`, or be gone; nothing is written when they already are so.

        Raises `ToolError`, also when someone removed a jump between the look and the change.
        """
        payload = render(want.chains if want is not None else (), await self._listings())
        if payload:
            wait = ("--wait",) if (await self.version()).waits else ()
            await self._tools.run(f"{self._program}-restore", (*wait, "--noflush"), payload)

    async def _is_legacy(self) -> bool:
        return self._variant == "legacy" if self._variant else (await self.version()).legacy

    async def _listings(self) -> dict[str, Listing]:
        # Looking at a legacy table creates it, with its hooks; one that does not exist holds nothing of ours.
        there = legacy_tables(self._family) if await self._is_legacy() else _TABLES
        names = [table for table in _TABLES if table in there]
        texts = await asyncio.gather(*map(self._save, names))
        nothing = {table: Listing(chains={}) for table in _TABLES}
        return nothing | {table: parse(text) for table, text in zip(names, texts, strict=True)}

    async def _save(self, table: str) -> str:
        return await self._tools.run(f"{self._program}-save", ("-t", table))


def parse_version(text: str) -> Version:
    """Read `iptables --version`; before 1.8 there was only what is now called legacy."""
    found = _VERSION.search(text)
    if found is None:
        return Version(numbers=(0, 0, 0), legacy=True)
    *numbers, variant = found.groups()
    return Version(numbers=tuple(map(int, numbers)), legacy=variant != "nf_tables")


def legacy_tables(family: int) -> frozenset[str]:
    """Name the legacy iptables tables of this network namespace, without creating any."""
    try:
        return frozenset(Path(_LEGACY_NAMES[family]).read_text("ascii").split())
    except OSError:  # a kernel without legacy iptables
        return frozenset()


def mixed_worlds(version: Version | None, family: int) -> Problem | None:
    """Say that legacy tables filter beside the nf_tables rules that we write (`version` None: by nft)."""
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


def parse(text: str) -> Listing:
    """Read `iptables-save -t TABLE`."""
    chains: dict[str, list[str]] = {}
    jumps: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith(":"):
            name = line[1:].split(" ", 1)[0]
            if name in _OURS:
                chains[name] = []
        elif line.startswith("-A "):
            name, _, rule = line.removeprefix("-A ").partition(" ")
            if name in _OURS:
                chains[name].append(rule)
            elif _target(rule):
                jumps.append((name, rule))
    return Listing(chains={name: tuple(rules) for name, rules in chains.items()}, jumps=tuple(jumps))


def as_rule_set(listings: Mapping[str, Listing], kind: str, family: int) -> RuleSet | None:
    """Return what is there in terms of the model, so that it equals what is wanted when nothing is amiss.

    A chain's `jump` is the text of all jumps to it from where ours belongs, one a line.
    """
    chains = tuple(
        Chain(
            name=name,
            table=table,
            rules=listing.chains.get(name, ()),
            jump_from=_origin(table),
            jump="\n".join(rule for chain, rule in listing.jumps if chain == _origin(table) and _target(rule) == name),
        )
        for table, listing in listings.items()
        for name in _OURS
        if name in listing.chains
    )
    return RuleSet(kind=kind, family=family, chains=chains) if chains else None


def render(want: Iterable[Chain], listings: Mapping[str, Listing]) -> str:
    """Write the payload of `iptables-restore --noflush` that makes our chains those of `want`; "" for no change.

    Naming a chain creates or empties it, within the table's one change. A right jump stays where it is, so
    rules that others put before or after it keep their place; one that is missing is appended, as upstream's.
    """
    wanted = tuple(want)
    blocks = [_block([chain for chain in wanted if chain.table == name], name, listings[name]) for name in listings]
    return "".join(blocks)


def _block(want: list[Chain], table: str, have: Listing) -> str:
    names = {chain.name for chain in want}
    stale = [name for name in have.chains if name not in names]
    changed = [chain for chain in want if have.chains.get(chain.name) != chain.rules]
    declared = [*(chain.name for chain in changed), *stale]
    added, removed = _jumps(want, stale, have)
    lines = [
        *(f":{name} - [0:0]" for name in declared),
        *(f"-D {origin} {rule}" for origin, rule in removed),
        *(f"-A {chain.name} {rule}" for chain in changed for rule in chain.rules),
        *(f"-A {origin} {rule}" for origin, rule in added),
        *(f"-X {name}" for name in stale),
    ]
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in (f"*{table}", *lines, "COMMIT"))


def _jumps(want: list[Chain], stale: list[str], have: Listing) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Say which jumps to add and which to remove, so that exactly one is left for each wanted chain.

    A jump from another chain than ours was put there by a person and stays, unless its target goes.
    """
    added: list[tuple[str, str]] = []
    removed = [jump for jump in have.jumps if _target(jump[1]) in stale]
    for chain in want:
        ours = (chain.jump_from, chain.jump)
        found = [jump for jump in have.jumps if jump[0] == chain.jump_from and _target(jump[1]) == chain.name]
        if ours in found:
            found.remove(ours)
        else:
            added.append(ours)
        removed += found
    return added, removed


def _target(rule: str) -> str:
    """Return which chain of ours a rule jumps to, "" for none."""
    found = _TARGET.search(_QUOTED.sub("", rule))
    return found.group(1) if found else ""


def _origin(table: str) -> str:
    return "POSTROUTING" if table == "nat" else "FORWARD"
