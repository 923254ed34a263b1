"""Who owns which blocks: tokens, and how two peers' tokens become one.

For each block the highest version wins, then the lower key. That is a maximum, block by block: it does not matter in
which order, how often and in which pieces tokens come. All else in this package rests on that, and on one rule that
this module cannot check: a token is written by the owner of its blocks alone, with a higher version.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from weft.model.mesh.records import VERSIONS, Layout, Token
from weft.model.value import Value, replace

NOBODY: Final = b""  # owns what we have not heard of yet, with version 0

Run = tuple[int, int]  # blocks, from the first up to the second


class Change(Value):
    """The tokens that a merge has replaced, and those in their place."""

    gone: tuple[Token, ...]
    new: tuple[Token, ...]

    def lost(self, key: bytes) -> list[Token]:
        """What was `key`'s and is another's now."""
        mine = [token for token in self.gone if token.owner == key]
        others = [token for token in self.new if token.owner != key]
        pairs = ((max(old.start, new.start), min(old.stop, new.stop), new) for old in mine for new in others)
        return [replace(new, start=start, stop=stop) for start, stop, new in pairs if start < stop]


class Tokens:
    """The blocks of a ring, each with owner and version; neighbours that agree in both are one token.

    An operation costs what it changes, not what there is.
    """

    __slots__ = ("_by_owner", "_counts", "_layout", "_starts", "_tokens")

    def __init__(self, layout: Layout, tokens: Iterable[Token] = ()) -> None:
        self._layout = layout
        whole = Token(start=layout.first, stop=layout.blocks, owner=NOBODY, version=0)
        self._starts = [whole.start]
        self._tokens = {whole.start: whole}
        self._by_owner = {NOBODY: [whole.start]}  # sorted
        self._counts = {NOBODY: whole.stop - whole.start}
        self.merge(tokens)

    def __iter__(self) -> Iterator[Token]:
        """What is known, in the order of blocks: equal for equal rings."""
        tokens = (self._tokens[start] for start in self._starts)
        return (token for token in tokens if token.owner != NOBODY)

    def __contains__(self, token: Token) -> bool:
        return self._tokens.get(token.start) == token

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def owners(self) -> AbstractSet[bytes]:
        return self._counts.keys() - {NOBODY}

    def count(self, owner: bytes) -> int:
        """Blocks that are this owner's."""
        return self._counts.get(owner, 0)

    def of(self, owner: bytes) -> list[Token]:
        return [self._tokens[start] for start in self._by_owner.get(owner, ())]

    def runs(self, owner: bytes) -> list[Run]:
        """As long as they can be: neighbours of different versions are one."""
        runs: list[Run] = []
        for token in self.of(owner):
            if runs and runs[-1][1] == token.start:
                runs[-1] = (runs[-1][0], token.stop)
            else:
                runs.append((token.start, token.stop))
        return runs

    def within(self, start: int, stop: int) -> list[Token]:
        """The tokens that have a block of this run, whole."""
        at = max(0, bisect_right(self._starts, start) - 1)
        found = (self._tokens[start] for start in self._starts[at : bisect_left(self._starts, stop)])
        return [token for token in found if token.stop > start]

    def at(self, block: int) -> Token | None:
        """The token that this block is in, if it can be given and anybody's is known."""
        at = bisect_right(self._starts, block) - 1
        found = self._tokens[self._starts[at]] if at >= 0 else None
        return found if found and block < found.stop and found.owner != NOBODY else None

    def accepts(self, token: Token, frozen: Collection[bytes] = ()) -> bool:
        """Tell whether a merge would take all of it, or it is there.

        Nobody else has written the same version, or a higher one, nor are the blocks of an owner that is frozen.
        """
        mine = (token.owner, token.version)
        possible = self._layout.first <= token.start < token.stop <= self._layout.blocks and token.version < VERSIONS
        others = [run for run in self.within(token.start, token.stop) if (run.owner, run.version) != mine]
        return possible and all(run.version < token.version and run.owner not in frozen for run in others)

    def written(self, owner: bytes, start: int, stop: int) -> Token:
        """What the owner of these blocks writes to give them to `owner`."""
        version = max(run.version for run in self.within(start, stop)) + 1
        return Token(start=start, stop=stop, owner=owner, version=version)

    def merge(self, incoming: Iterable[Token], frozen: Collection[bytes] = ()) -> Change:
        """Take what wins, but for blocks of the owners that are frozen."""
        gone: dict[Token, None] = {}
        new: dict[Token, None] = {}
        for token in incoming:
            if token in self:  # as a rule all of them, where two compare what they know
                continue
            old, made = self._take(token, frozen)
            _exchange(old, gone, new)
            _exchange(made, new, gone)
        return Change(gone=tuple(gone), new=tuple(new))

    def _take(self, token: Token, frozen: Collection[bytes]) -> tuple[list[Token], list[Token]]:
        start, stop = max(token.start, self._layout.first), min(token.stop, self._layout.blocks)
        if start >= stop or token.version >= VERSIONS:
            return [], []
        old = self.within(start - 1, stop + 1)  # with the neighbours: they may become one with it
        made: list[Token] = []
        for run in old:
            left, right = max(start, run.start), min(stop, run.stop)
            if left >= right or run.owner in frozen or not _wins(token, run):
                append(made, run)
                continue
            append(made, replace(run, stop=left))
            append(made, replace(token, start=left, stop=right))
            append(made, replace(run, start=right))
        same = set(old) & set(made)
        self._splice(old, made, same)
        return [run for run in old if run not in same], [run for run in made if run not in same]

    def _splice(self, old: list[Token], made: list[Token], same: Collection[Token]) -> None:
        at = bisect_left(self._starts, old[0].start)
        self._starts[at : at + len(old)] = [run.start for run in made]
        for run in old:
            if run not in same:
                del self._tokens[run.start]
                starts = self._by_owner[run.owner]
                del starts[bisect_left(starts, run.start)]
                self._counts[run.owner] -= run.stop - run.start
        for run in made:
            if run not in same:
                self._tokens[run.start] = run
                if run.owner in self._by_owner:
                    insort(self._by_owner[run.owner], run.start)
                else:
                    self._by_owner[run.owner] = [run.start]
                self._counts[run.owner] = self._counts.get(run.owner, 0) + run.stop - run.start
        for owner in {run.owner for run in old}:
            if not self._counts[owner]:
                del self._counts[owner], self._by_owner[owner]


def founded(layout: Layout, founder: bytes) -> Token:
    return Token(start=layout.first, stop=layout.blocks, owner=founder, version=1)


def _wins(token: Token, run: Token) -> bool:
    return token.version > run.version or (token.version == run.version and token.owner < run.owner)


def append(runs: list[Token], run: Token) -> None:
    """Put a run behind the others, if it is not empty; neighbours that agree become one."""
    if run.start >= run.stop:
        return
    before = runs[-1] if runs else None
    if before and (before.owner, before.version, before.stop) == (run.owner, run.version, run.start):
        runs[-1] = replace(before, stop=run.stop)
    else:
        runs.append(run)


def _exchange(tokens: list[Token], into: dict[Token, None], out_of: dict[Token, None]) -> None:
    for token in tokens:
        if token in out_of:
            del out_of[token]
        else:
            into[token] = None
