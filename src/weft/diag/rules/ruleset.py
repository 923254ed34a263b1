"""The kernel's packet filter as values, read from what `nft -j list ruleset` prints (libnftables-json(5)). Pure.

What a rule of iptables-nft asks of xtables, nft shows by its name alone; `xtables` knows some of it from
`iptables-save`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from weft.diag.rules.xtables import Statement, known
from weft.model.value import Value, field

Name = tuple[str, str, str]  # family, table, chain or set

UNKNOWN: Final = "unknown"  # a statement that nft has no JSON for

_SETS: Final = ("set", "map")
_MARKS: Final = ("MARK", "CONNMARK")


class Rule(Value):
    """A rule: its statements in order, as ("match", {…}) or ("drop", None), and where it stands."""

    place: Name
    handle: int
    statements: tuple[Statement, ...]
    comment: str = ""

    def __str__(self) -> str:
        family, table, chain = self.place
        named = f' "{self.comment}"' if self.comment else ""
        return f"rule{named} of {family} {table} {chain} (handle {self.handle})"


class Chain(Value):
    """A chain. One that has a `hook` is asked of each packet there, the lowest `priority` first."""

    place: Name
    hook: str = ""
    kind: str = ""
    priority: int = 0
    policy: str = "accept"
    rules: list[Rule] = field(default_factory=list)

    def __str__(self) -> str:
        family, table, name = self.place
        return f"chain {name} of {family} {table}"


class Ruleset(Value):
    """All chains, and the elements of sets and maps, by their names.

    `marks`: a rule outside of the chains for NAT marks packets, which is not followed.
    """

    chains: dict[Name, Chain] = field(default_factory=dict)
    sets: dict[Name, list[Any]] = field(default_factory=dict)
    marks: bool = False

    def at(self, hook: str, family: int, *, kind: str = "filter") -> list[Chain]:
        """The chains of a kind that packets of a family (4 or 6) meet at a hook, in order.

        Of one priority, the kernel asks the newest first (net/netfilter/core.c, nf_hook_entries_grow). In a table that
        is the last; of several tables the newest is taken for the one that was made last, and may not be.
        """
        families = ("inet", "ip" if family == 4 else "ip6")
        found = reversed([chain for chain in self.chains.values() if chain.hook == hook and chain.kind == kind])
        return sorted((chain for chain in found if chain.place[0] in families), key=lambda chain: chain.priority)


def parse(listings: Iterable[str], saved: Mapping[str, str] | None = None) -> Ruleset:
    """Read listings of tables; `saved` is what iptables-save prints, by family (`ip`, `ip6`). Raises `ValueError`."""
    try:
        return _read([item for text in listings for item in json.loads(text)["nftables"]], _lines(saved or {}))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a ruleset of nft: {error!r}") from error


def _read(items: list[dict[str, Any]], saved: Mapping[Name, list[str]]) -> Ruleset:
    chains: dict[Name, Chain] = {}
    sets: dict[Name, list[Any]] = {}
    tables = (each for kind, each in _items(items) if kind == "table")
    asleep = {(each["family"], each["name"]) for each in tables if "dormant" in each.get("flags", ())}
    for kind, each in _items(items):
        if kind == "chain" and (each["family"], each["table"]) not in asleep:
            chain = Chain(
                place=_place(each, each["name"]),
                hook=each.get("hook", ""),
                kind=each.get("type", ""),
                priority=int(each.get("prio", 0)),
                policy=each.get("policy", "accept"),
            )
            chains[chain.place] = chain
        elif kind in _SETS:
            sets[_place(each, each["name"])] = each.get("elem", [])
    for kind, each in _items(items):
        place = _place(each, each["chain"]) if kind == "rule" else None
        if place is not None and place in chains:
            rules = chains[place].rules
            lines = saved.get(place, [])
            line = lines[len(rules)] if len(rules) < len(lines) else ""
            statements = tuple(_statement(one, line) for one in each.get("expr", []))
            comment = each.get("comment", "")
            rules.append(Rule(place=place, handle=each["handle"], statements=statements, comment=comment))
    filtering = (place for place, chain in chains.items() if chain.hook and chain.kind != "nat")
    reached = _reached(chains, sets, filtering)
    return Ruleset(chains=chains, sets=sets, marks=any(_marks(chains[place]) for place in reached))


def _items(items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in items:
        yield from item.items()


def _place(each: Mapping[str, Any], name: str) -> Name:
    return each["family"], each["table"], name


def _statement(one: Any, line: str) -> Statement:
    """A statement; of what has no JSON, nft prints a text, or nothing in its place."""
    if not isinstance(one, dict) or one.get("xt", one) is None:
        return UNKNOWN, None
    [(kind, said)] = one.items()
    if kind == "xt":
        return known(str(said.get("type")), str(said.get("name")), line) or (kind, said)
    return kind, said


def _marks(chain: Chain) -> bool:
    return any(
        (kind == "mangle" and "mark" in str(said.get("key"))) or (kind == "xt" and said.get("name") in _MARKS)
        for rule in chain.rules
        for kind, said in rule.statements
        if isinstance(said, dict)
    )


def _reached(chains: Mapping[Name, Chain], sets: Mapping[Name, list[Any]], start: Iterable[Name]) -> set[Name]:
    found, waiting = set[Name](), list(start)
    while waiting:
        place = waiting.pop()
        if place in found or place not in chains:
            continue
        found.add(place)
        statements = (statement for rule in chains[place].rules for statement in rule.statements)
        waiting += [(*place[:2], target) for statement in statements for target in _targets(statement, place, sets)]
    return found


def _targets(statement: Statement, place: Name, sets: Mapping[Name, list[Any]]) -> Iterator[str]:
    kind, said = statement
    if kind in ("jump", "goto"):
        yield said["target"]
    elif kind == "vmap":
        data = said["data"]
        pairs = sets.get((*place[:2], data[1:]), []) if isinstance(data, str) else data.get("set", [])
        for _, verdict in pairs:
            for inner, target in verdict.items():
                yield from _targets((inner, target), place, sets)


def _lines(saved: Mapping[str, str]) -> dict[Name, list[str]]:
    """The rules of iptables-save by chain: nft lists them in the same order."""
    found: dict[Name, list[str]] = {}
    for family, text in saved.items():
        table = ""
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith("-A "):
                found.setdefault((family, table, line.split()[1]), []).append(line)
    return found
