"""RE2 patterns, as flannel takes them for `--iface-regex` and tuning for its list, matched in linear time as there.

Python's `re` goes back and tries again, which may take for ever (`(a*)*$`). Here all ways through a pattern are
followed at once, a character of the text at a time: the parts that may come next are a state, and what a character
makes of a state is remembered, so that most steps are one look-up (Thompson 1968; https://swtch.com/~rsc/regexp).
"""

from typing import Final, NamedTuple

from weft.config.re2parse import Assert, Choice, Node, Repeat, Sequence, parse
from weft.config.re2sets import PERL, Chars

_MOST_PARTS: Final = 10_000  # a character of a text takes at most as many looks
_MOST_REMEMBERED: Final = 100_000  # parts in states: some megabytes
_WORD: Final = Chars(ranges=PERL["w"])


class _State(NamedTuple):
    """After some characters: what kind the last one was, and which parts may come next; "" is a text's end."""

    last: str
    parts: frozenset[int]


_MATCHED: Final = _State("matched", frozenset())


class Pattern:
    """A pattern that was read, and what was learned of texts.

    Raises `ValueError`, which says what is wrong with the pattern and, where it is so, that RE2 lacks it.
    """

    __slots__ = ("_parts", "_remembered", "_start", "_steps", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        # A part is a set of characters or a place, with the part behind it; or several parts, one of which may come.
        self._parts: list[tuple[Chars | Assert | None, tuple[int, ...]]] = [(None, ())]  # the first is the match
        self._start = self._add_tree(parse(pattern), 0)
        self._steps: dict[tuple[_State, str], _State] = {}
        self._remembered = 0

    def __eq__(self, other: object) -> bool:
        """Compare the texts of patterns."""
        return isinstance(other, Pattern) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def search(self, text: str) -> bool:
        """Tell whether the pattern matches somewhere in `text`."""
        state = _State("", frozenset())
        for letter in (*text, ""):
            state = self._steps.get((state, letter)) or self._step(state, letter)
            if state is _MATCHED:
                return True
        return False

    def _step(self, state: _State, letter: str) -> _State:
        """What `letter`, or the text's end, makes of a state; a match may begin anywhere."""
        kind = _kind(letter)
        near = self._reachable({*state.parts, self._start}, state.last, kind)
        if 0 in near:
            after = _MATCHED
        else:
            chars = (self._parts[each] for each in near)
            ahead = (to for part, to in chars if letter and isinstance(part, Chars) and part.holds(letter))
            after = _State(kind, frozenset(each for to in ahead for each in to))
        if self._remembered > _MOST_REMEMBERED:
            self._steps.clear()
            self._remembered = 0
        self._steps[state, letter] = after
        self._remembered += 1 + len(after.parts)
        return after

    def _reachable(self, parts: set[int], last: str, kind: str) -> set[int]:
        """These parts and all that come next without a character, between one of the kind `last` and one of `kind`."""
        todo = list(parts)
        while todo:
            part, to = self._parts[todo.pop()]
            if part is None or (isinstance(part, Assert) and _stands(part.kind, last, kind)):
                todo += [each for each in to if each not in parts]
                parts.update(to)
        return parts

    def _add(self, part: Chars | Assert | None, to: tuple[int, ...]) -> int:
        if len(self._parts) > _MOST_PARTS:
            raise ValueError(f"the pattern has more than {_MOST_PARTS} parts when its repeats are written out")
        self._parts.append((part, to))
        return len(self._parts) - 1

    def _add_tree(self, tree: Node, then: int) -> int:
        """Add the parts of `tree`, behind which comes the part `then`; returns the first of them."""
        match tree:
            case Sequence(parts=parts):
                for each in reversed(parts):
                    then = self._add_tree(each, then)
                return self._add(None, (then,))
            case Choice(parts=parts):
                return self._add(None, tuple([self._add_tree(each, then) for each in parts]))
            case Repeat():
                return self._add_repeat(tree, then)
            case _:
                return self._add(tree, (then,))

    def _add_repeat(self, repeat: Repeat, then: int) -> int:
        if repeat.high is None:
            then = self._add(None, (then,))
            self._parts[then] = (None, (*self._parts[then][1], self._add_tree(repeat.part, then)))
        else:
            behind = then
            for _ in range(repeat.high - repeat.low):
                then = self._add(None, (behind, self._add_tree(repeat.part, then)))
        for _ in range(repeat.low):
            then = self._add_tree(repeat.part, then)
        return then


def _kind(letter: str) -> str:
    """The kind of a character as far as places between characters depend on it."""
    if letter in ("", "\n"):
        return letter
    return "w" if _WORD.holds(letter) else "."


def _stands(place: str, last: str, kind: str) -> bool:
    """Tell whether a place of `Assert` is between these two kinds of characters."""
    match place:
        case "A":
            return last == ""
        case "z":
            return kind == ""
        case "^":
            return last in ("", "\n")
        case "$":
            return kind in ("", "\n")
    return ((last == "w") is not (kind == "w")) is (place == "b")
