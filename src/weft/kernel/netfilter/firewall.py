"""The node's rule sets in the kernel, of both kinds: reads, compares and replaces them.

`desired.firewall` decides what is wanted, the monitor and the daemon when to look.
"""

import asyncio
import errno
from collections.abc import Collection
from contextlib import closing
from typing import Final, Protocol

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.netfilter import iptables, nft
from weft.kernel.netfilter.iptables import Iptables
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.nft import Nft
from weft.kernel.tools import ToolError, Tools
from weft.model.errors import Failure, Problem
from weft.model.kernel.nftset import Table
from weft.model.kernel.objects import Key, RuleSet
from weft.model.value import Value
from weft.plan.diff import Put, Step

_LEGACY: Final = f"{iptables.KIND}-legacy"
IPTABLES_NFT: Final = f"{iptables.KIND}-nft"

_CHAINS: Final = {"nat": POSTRTG, "filter": FWD}


class _Rules(Protocol):
    async def read(self) -> RuleSet | None: ...

    async def replace(self, want: RuleSet | None) -> None: ...


class Tooling(Value):
    version: str = ""
    random_fully: bool = False
    notices: bool = True  # nf_tables announces changes; else somebody must look now and then
    problems: tuple[Problem, ...] = ()  # they forbid the kind
    warnings: tuple[Problem, ...] = ()  # for the log


class Firewall:
    """Rules of both kinds and families, in the caller's namespace.

    One caller at a time: two changes of one rule set would not see each other.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._nft = {family: Nft(tools, family) for family in nft.TABLES}
        self._iptables = {
            (f"{iptables.KIND}{ending}", family): Iptables(tools, family, ending.removeprefix("-"))
            for family in iptables.PROGRAMS
            for ending in ("", "-nft", "-legacy")
        }

    async def tooling(self, kind: str, families: Collection[int]) -> Tooling:
        if kind == nft.KIND:
            return await self._nft_tooling(families)
        return await self._iptables_tooling(families)

    async def present(self, only: Collection[Key] | None = None) -> dict[Key, RuleSet]:
        """All rule sets with our names, or `only` those.

        The kinds `iptables-nft` and `iptables-legacy` are remains in the variant that is not the host's `iptables`.
        Unreadable ones are left out; `apply` says why.
        """
        readable = await self._readable()
        found = await asyncio.gather(*(_read(rules) for key, rules in readable.items() if only is None or key in only))
        return {ruleset.key: ruleset for ruleset in found if ruleset is not None}

    async def unseen(self, present: Collection[Key]) -> list[Problem]:
        """What is, or may be, there and was not in `present` (HOST-002).

        nf_tables is asked itself. Of legacy iptables the kernel tells only the tables, which may be anybody's.
        """
        shown, looked_at = set(present), set(await self._readable())
        for family in iptables.PROGRAMS:
            variant = await self._variant(family)
            for keys in (shown, looked_at):
                if ("ruleset", iptables.KIND, family) in keys:
                    keys.add(("ruleset", variant, family))
        legacy = {("ruleset", _LEGACY, family) for family in iptables.PROGRAMS if iptables.legacy_tables(family)}
        hidden: set[Key] = {*(traces() - shown), *(legacy - looked_at)}
        return [_hidden(str(kind), int(family)) for _, kind, family in sorted(hidden, key=repr)]

    async def apply(self, step: Step) -> Failure | None:
        """Put or delete a whole rule set, unless that is already so.

        The errno is ENOENT without the program (the message is HOST-002), ETIMEDOUT without its answer, EIO for its
        refusal.
        """
        ruleset = step.object
        if not isinstance(ruleset, RuleSet):
            raise TypeError(f"not a rule set: {ruleset!r}")
        want = ruleset if isinstance(step, Put) else None
        error = await _replace(self._rules(ruleset), want)
        if error is not None and error.errno == errno.EIO:
            # What someone else does between look and change can make a program refuse: one more look tells.
            error = await _replace(self._rules(ruleset), want)
        if error is None:
            return None
        return Failure(step=step, errno=error.errno or errno.EIO, message=error.strerror or str(error))

    def _rules(self, ruleset: RuleSet) -> _Rules:
        if ruleset.kind == nft.KIND:
            return self._nft[ruleset.family]
        return self._iptables[ruleset.kind, ruleset.family]

    async def _readable(self) -> dict[Key, _Rules]:
        rules: dict[Key, _Rules] = {}
        if self._tools.has("nft"):
            rules |= {("ruleset", nft.KIND, family): table for family, table in self._nft.items()}
        used = {family: await self._variant(family) for family in iptables.PROGRAMS}
        for (kind, family), each in self._iptables.items():
            is_default = kind == iptables.KIND
            if (is_default and used[family]) or (not is_default and kind != used[family] and each.installed):
                rules["ruleset", kind, family] = each
        return rules

    async def _variant(self, family: int) -> str:
        """The kind that names the same rules as the host's own iptables, "" when it has none."""
        try:
            legacy = (await self._iptables[iptables.KIND, family].version()).legacy
        except ToolError:
            return ""
        return _LEGACY if legacy else IPTABLES_NFT

    async def _nft_tooling(self, families: Collection[int]) -> Tooling:
        try:
            version, enough = await nft.version(self._tools)
        except ToolError as error:
            return Tooling(problems=(self._unusable("nft", error),))
        if not enough:
            problem = Problem(
                code="HOST-002",
                where="nft",
                seen=f"version {version}",
                expected="1.0.1 or newer",
                hint="Update the package nftables, or set EnableNFTables to false.",
            )
            return Tooling(version=version, problems=(problem,))
        # As upstream: the answer for the first family decides for both.
        random = await self._nft[min(families, default=4)].can_be_random()
        return Tooling(version=version, random_fully=random, warnings=_mixed(None, families))

    async def _iptables_tooling(self, families: Collection[int]) -> Tooling:
        versions: list[iptables.Version] = []
        problems: list[Problem] = []
        for family in sorted(families):
            try:
                versions.append(await self._iptables[iptables.KIND, family].version())
            except ToolError as error:
                problems.append(self._unusable(iptables.PROGRAMS[family], error))
        if not versions:
            return Tooling(problems=tuple(problems))
        return Tooling(
            version=str(versions[0]),
            random_fully=all(version.random_fully for version in versions),
            notices=not any(version.legacy for version in versions),
            problems=tuple(problems),
            warnings=_mixed(versions[0], families),
        )

    def _unusable(self, name: str, error: ToolError) -> Problem:
        if error.errno == errno.ENOENT:
            return self._tools.missing(name)
        return Problem(code="HOST-002", where=name, seen=error.strerror or str(error), expected="a working program")


def _hidden(kind: str, family: int) -> Problem:
    what, program, package = {
        nft.KIND: (f"the table {nft.TABLES[family]}", "nft", "nftables"),
        IPTABLES_NFT: (f"chains under our names for IPv{family}", iptables.PROGRAMS[family], "iptables"),
        _LEGACY: (f"legacy tables for IPv{family}", f"{iptables.PROGRAMS[family]}-legacy", "iptables"),
    }[kind]
    return Problem(
        code="HOST-002",
        where=program,
        seen=f"the kernel has {what}, and the program that shows what is in them is missing or fails",
        hint=f"Install the package {package}, and try again",
    )


async def _read(rules: _Rules) -> RuleSet | None:
    try:
        return await rules.read()
    except ToolError:
        return None


async def _replace(rules: _Rules, want: RuleSet | None) -> ToolError | None:
    try:
        await rules.replace(want)
    except ToolError as error:
        return error
    return None


def _mixed(version: iptables.Version | None, families: Collection[int]) -> tuple[Problem, ...]:
    found = (iptables.mixed_worlds(version, family) for family in sorted(families))
    return tuple(problem for problem in found if problem is not None)


def traces() -> frozenset[Key]:
    """Keys of the kinds `nft` and `iptables-nft` that nf_tables holds, in the calling thread's namespace.

    It proves that nothing is left where `nft` and `iptables` are not installed.
    """
    try:
        nf = NfSocket.open()
    except OSError:
        return frozenset()  # a kernel without nfnetlink has no nf_tables
    found: set[Key] = set()
    with closing(nf):
        for family, ours in nft.TABLES.items():
            if nf.has_table(ours):
                found.add(("ruleset", nft.KIND, family))
            if any(nf.has_chain(Table(ours.family, name), chain) for name, chain in _CHAINS.items()):
                found.add(("ruleset", IPTABLES_NFT, family))
    return frozenset(found)
