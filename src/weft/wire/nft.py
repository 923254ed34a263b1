"""The text of nft: what `nft list table` prints, and lines for `nft -f -`, which is atomic.

A rule is text as nft lists it, so that present and wanted rules compare as text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from weft.model.kernel.nftset import Table
from weft.model.value import Value

_HANDLE: Final = re.compile(r" # handle (\d+)$")


class ListedChain(Value):
    """Each rule has its handle, which is "" without `nft -a`."""

    hook: str = ""
    comment: str = ""
    rules: tuple[tuple[str, str], ...] = ()


class Rule(Value):
    """A rule in a table of ours, known by its comment."""

    chain: str
    text: str
    comment: str


# The chains of a table by name. What is no chain (a set, a map) has its kind before its name, and its lines as rules.
Listing = Mapping[str, ListedChain]


def parse(text: str) -> dict[str, ListedChain]:
    """Read `nft list table` line by line, which its form allows."""
    found: dict[str, ListedChain] = {}
    name = hook = comment = ""
    rules: list[tuple[str, str]] = []
    for whole in text.split("\n"):
        line, handle, *_ = [*_HANDLE.split(whole.strip()), ""]
        if not name:
            # "chain postrtg {" opens; "table …", its comment and its closing brace stand outside of all chains.
            match line.split():
                case [kind, called, *_, "{"] if kind != "table":
                    name = called if kind == "chain" else f"{kind} {called}"
                    hook, comment, rules = "", "", []
        elif line == "}":
            found[name] = ListedChain(hook=hook, comment=comment, rules=tuple(rules))
            name = ""
        elif line.startswith('comment "'):
            comment = line.removeprefix('comment "').removesuffix('"')
        elif line.startswith("type ") and not rules:
            hook = line
        else:
            rules.append((line, handle))
    return found


def rules_of(have: Listing, chain: str) -> list[str]:
    return [rule for rule, _ in have[chain].rules] if chain in have else []


def add_rules(table: Table, rules: Iterable[Rule]) -> list[str]:
    """Each goes to the end of its chain."""
    return [f'add rule {table} {rule.chain} {rule.text} comment "{rule.comment}"' for rule in rules]


def refill(table: Table, chain: str, rules: Iterable[str]) -> list[str]:
    """Replace all rules of a chain: nft waits for the kernel then, 10 ms and more."""
    return [f"flush chain {table} {chain}", *(f"add rule {table} {chain} {rule}" for rule in rules)]


def deletions(have: Listing, table: Table, chain: str, is_unwanted: Callable[[str], bool]) -> list[str]:
    """`have` must have been listed with handles."""
    listed = have[chain].rules if chain in have else ()
    return [f"delete rule {table} {chain} handle {handle}" for rule, handle in listed if is_unwanted(rule)]


def payload(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
