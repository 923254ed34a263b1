"""Which nodes of a lab reach each other, where not all do. Pure."""

from collections.abc import Collection, Iterator, Sequence
from hashlib import sha256
from itertools import combinations, pairwise
from typing import Final

from weft.lab.links import Cut
from weft.model.errors import Problem

FULL: Final = "full"
LINE: Final = "line"
RING: Final = "ring"
PARTIAL: Final = "partial:"  # and a number, the seed
SHAPES: Final = f"{FULL}, {LINE}, {RING} or {PARTIAL}SEED"
PATTERN: Final = rf"^({FULL}|{LINE}|{RING}|{PARTIAL}[0-9]+)$"

Pair = tuple[str, str]
Wanted = str | Sequence[Sequence[str]]  # a shape, or nodes, each before those that it reaches


def read(text: str) -> list[list[str]]:
    """A file of nodes: in each line one, and behind it those that it reaches; `#` begins a comment."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [line for line in lines if line]


def pairs(wanted: Wanted, names: Sequence[str]) -> tuple[Pair, ...]:
    """None at all of a full network, as of a lab without a topology. `ValueError` for what is no shape.

    A partial network is connected, each node with three others or so, as chance wants it.
    """
    if not isinstance(wanted, str):
        return tuple(dict.fromkeys((line[0], other) for line in wanted for other in line[1:]))
    if wanted == FULL:
        return ()
    if wanted in {LINE, RING}:
        closing = ((names[0], names[-1]),) if wanted == RING and len(names) > 2 else ()
        return (*pairwise(names), *closing)
    seed = wanted.removeprefix(PARTIAL)
    if seed == wanted or not seed.isdecimal():
        raise ValueError(f"a topology {wanted!r}")
    drawn = sorted(combinations(names, 2), key=lambda pair: sha256(f"{int(seed)} {pair}".encode()).digest())
    tree = [next(pair for pair in drawn if pair[1] == name) for name in names[1:]]
    rest = [pair for pair in drawn if pair not in tree]
    return (*tree, *rest[: len(names) // 2])


def cuts(joined: Collection[Pair], names: Sequence[str]) -> frozenset[Cut]:
    """All ways between nodes that are no pair; none without pairs."""
    if not joined:
        return frozenset()
    near = {frozenset(pair) for pair in joined}
    apart = [pair for pair in combinations(names, 2) if frozenset(pair) not in near]
    return frozenset(Cut(source=one, target=other) for pair in apart for one, other in (pair, pair[::-1]))


def problems(joined: Collection[Pair], names: Sequence[str], where: str) -> Iterator[Problem]:
    """Who is no node, and who is not reached from the first."""
    unknown = sorted({name for pair in joined for name in pair} - {*names})
    if unknown:
        seen = f"a topology with {', '.join(unknown)}"
        yield Problem("LAB-001", where, seen, expected=f"nodes of the lab: {', '.join(names)}")
    elif joined and (lost := [name for name in names if name not in _reached(names[0], joined)]):
        seen = f"a topology in which no way leads from {names[0]} to {', '.join(lost)}"
        yield Problem("LAB-001", where, seen, expected="a network in one piece, which 'cuts' may cut later")


def _reached(first: str, joined: Collection[Pair]) -> set[str]:
    found, new = set[str](), {first}
    while new:
        found |= new
        new = {name for pair in joined if not found.isdisjoint(pair) for name in pair} - found
    return found
