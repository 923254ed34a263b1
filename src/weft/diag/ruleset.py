"""The kernel's packet filter as values, read from what `nft -j list ruleset` prints (libnftables-json(5)). Pure.

Rules of iptables-nft are among them. What such a rule asks of xtables, nft shows by its name alone; where
`iptables-save` has been read as well, states of connection tracking and kinds of addresses are known from there.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from weft.model.value import Value, field

Name = tuple[str, str, str]  # family, table, chain or set
Statement = tuple[str, Any]  # what it does, and with what: ("match", {…}), ("drop", None)

UNKNOWN: Final = "unknown"  # a statement that nft has no JSON for

_SETS: Final = ("set", "map")
_STATE: Final = re.compile(r"(! )?--ctstate ([A-Z,]+)")
# iptables' match of the kind of a target's address, where nothing else of addrtype is asked.
_KIND: Final = re.compile(r"-m addrtype (! )?--dst-type ([A-Z]+)(?! --limit-iface)")
_MARKS: Final = ("MARK", "CONNMARK")


class Rule(Value):
    """A rule: its statements in order, and where it stands."""

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
    """All chains, and the elements of sets and maps, by their names. `marks`: a rule marks packets, and not for NAT."""

    chains: dict[Name, Chain] = field(default_factory=dict)
    sets: dict[Name, list[Any]] = field(default_factory=dict)
    marks: bool = False

    def at(self, hook: str, family: int) -> list[Chain]:
        """The filtering chains that packets of a family (4 or 6) meet at a hook, in order."""
        families = ("inet", "ip" if family == 4 else "ip6")
        found = (chain for chain in self.chains.values() if chain.hook == hook and chain.kind == "filter")
        return sorted((chain for chain in found if chain.place[0] in families), key=lambda chain: chain.priority)


def parse(text: str, saved: Mapping[str, str] | None = None) -> Ruleset:
    """Read the listing; `saved` is what iptables-save prints, by family (`ip`, `ip6`). Raises `ValueError`."""
    try:
        return _read(json.loads(text)["nftables"], _lines(saved or {}))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a ruleset of nft: {error!r}") from error


def _read(items: list[dict[str, Any]], saved: Mapping[Name, list[str]]) -> Ruleset:
    chains: dict[Name, Chain] = {}
    sets: dict[Name, list[Any]] = {}
    asleep = {(each["family"], each["name"]) for kind, each in _items(items) if kind == "table" and _sleeps(each)}
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
    return Ruleset(chains=chains, sets=sets, marks=any(map(_marks, chains.values())))


def _sleeps(table: Mapping[str, Any]) -> bool:
    return "dormant" in table.get("flags", ())


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
    address = _KIND.search(line)
    if kind == "xt" and said.get("name") == "addrtype" and address is not None:
        asked = {"fib": {"result": "type", "flags": ["daddr"]}}
        return "match", {"op": "!=" if address[1] else "==", "left": asked, "right": address[2].lower()}
    state = _STATE.search(line)
    if kind == "xt" and said.get("name") == "conntrack" and state is not None and _asks_state_alone(line):
        right = state[2].lower().split(",")
        return "match", {"op": "!=" if state[1] else "in", "left": {"ct": {"key": "state"}}, "right": right}
    return kind, said


def _asks_state_alone(line: str) -> bool:
    return line.count("--ct") == 1


def _marks(chain: Chain) -> bool:
    """Tell whether a chain marks packets, but for those that NAT is to see, as kube-proxy's do."""
    if chain.place[1] in ("nat", "kube-proxy"):
        return False
    return any(
        (kind == "mangle" and "mark" in str(said.get("key"))) or (kind == "xt" and said.get("name") in _MARKS)
        for rule in chain.rules
        for kind, said in rule.statements
        if isinstance(said, dict)
    )


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
