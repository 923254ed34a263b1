"""The kernel's packet filter as values, read from what `nft -j list ruleset` prints (libnftables-json(5)). Pure.

Rules of iptables-nft are among them. What such a rule asks of xtables, nft shows by its name alone.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from weft.model.value import Value, field

Name = tuple[str, str, str]  # family, table, chain or set

_SETS: Final = ("set", "map")


class Rule(Value):
    """A rule: its statements in order, as nft has them (`{"match": …}`, `{"drop": None}`), and where it stands."""

    place: Name
    handle: int
    statements: tuple[Mapping[str, Any], ...]
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
    """All chains, and the elements of sets and maps, by their names."""

    chains: dict[Name, Chain] = field(default_factory=dict)
    sets: dict[Name, list[Any]] = field(default_factory=dict)

    def at(self, hook: str, family: int) -> list[Chain]:
        """The filtering chains that packets of a family (4 or 6) meet at a hook, in order."""
        families = ("inet", "ip" if family == 4 else "ip6")
        found = (chain for chain in self.chains.values() if chain.hook == hook and chain.kind == "filter")
        return sorted((chain for chain in found if chain.place[0] in families), key=lambda chain: chain.priority)


def parse(text: str) -> Ruleset:
    """Read the listing. Raises `ValueError` for what is none."""
    try:
        return _read(json.loads(text)["nftables"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a ruleset of nft: {error!r}") from error


def _read(items: list[dict[str, Any]]) -> Ruleset:
    found = Ruleset()
    for kind, each in _items(items):
        if kind == "chain":
            chain = Chain(
                place=_place(each, each["name"]),
                hook=each.get("hook", ""),
                kind=each.get("type", ""),
                priority=int(each.get("prio", 0)),
                policy=each.get("policy", "accept"),
            )
            found.chains[chain.place] = chain
        elif kind in _SETS:
            found.sets[_place(each, each["name"])] = each.get("elem", [])
    for kind, each in _items(items):
        if kind == "rule":
            place = _place(each, each["chain"])
            rule = Rule(place=place, handle=each["handle"], statements=each["expr"], comment=each.get("comment", ""))
            found.chains[place].rules.append(rule)
    return found


def _items(items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in items:
        yield from item.items()


def _place(each: Mapping[str, Any], name: str) -> Name:
    return each["family"], each["table"], name
