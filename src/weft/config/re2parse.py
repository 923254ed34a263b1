"""RE2 patterns as trees (https://github.com/google/re2/wiki/Syntax, in the reading of Go's `regexp/syntax`).

Whether a text matches is all that anybody asks, so captures and laziness are read and forgotten. What weft does not
support is an error: a pattern must not mean one thing here and another on a node with upstream's daemon.
"""

import re
from typing import Final

from weft.config.re2sets import LAST, PERL, POSIX, Chars, Ranges, cases, in_any_case, others
from weft.model.value import Value, replace

# RE2 refuses larger counts, nested ones multiplied ("invalid repeat count").
_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 50  # of groups: RE2 takes 1000, for which our recursion has no stack
_REPEAT = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
_GROUP_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_HEX = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\})")
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_POSIX_CLASS = re.compile(r"\[:(\^?)([^:]*):\]")
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_COUNTS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_NEWLINE: Final = ((10, 10),)


class Assert(Value):
    """A place between characters: `A` and `z` the text's ends, `^` and `$` a line's, `b` a word's end, `B` none."""

    kind: str


class Sequence(Value):
    """One after the other."""

    parts: "tuple[Node, ...]"


class Choice(Value):
    """One of them."""

    parts: "tuple[Node, ...]"


class Repeat(Value):
    """`low` times at least and `high` times at most; None is any number."""

    part: "Node"
    low: int
    high: int | None


Node = Chars | Assert | Sequence | Choice | Repeat


class _Flags(Value):
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


def parse(text: str) -> Node:
    """Read a pattern. Raises `ValueError`, which says what is wrong and, where it is so, that RE2 lacks it."""
    return _Parser(text).run()


class _Parser:
    """One pass from left to right over one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = _Flags()
        self._names: set[str] = set()

    def run(self) -> Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise ValueError("unexpected )")
        return tree

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _takes(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(parts=tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next() not in ("", "|", ")"):
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(parts=tuple(parts))

    def _atom(self) -> Node | None:
        """The next part without what repeats it; None where flags alone are set."""
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._class()
        if letter == "\\":
            return self._escape()
        if letter in _COUNTS or self._count() is not None:
            raise ValueError(f"nothing for {letter} to repeat")
        self._at += 1
        return self._plain(letter)

    def _plain(self, letter: str) -> Node:
        match letter:
            case ".":
                return Chars(ranges=() if self._flags.s else _NEWLINE, negated=True)
            case "^":
                return Assert(kind="^" if self._flags.m else "A")
            case "$":
                return Assert(kind="$" if self._flags.m else "z")
        return self._literal(ord(letter))

    def _literal(self, point: int) -> Chars:
        return Chars(ranges=self._single(point))

    def _single(self, point: int) -> Ranges:
        letters = cases(chr(point)) if self._flags.i else chr(point)
        return tuple((ord(each), ord(each)) for each in letters)

    def _count(self) -> re.Match[str] | None:
        """A brace that is no repeat count stands for itself."""
        return _REPEAT.match(self._text, self._at)

    def _repeated(self, part: Node) -> Node:
        counts = self._operator()
        if counts is None:
            return part
        self._takes("?")  # lazy: the same texts match
        if self._operator() is not None:
            raise ValueError("two repeat operators in a row do not exist in RE2")
        whole = Repeat(part=part, low=counts[0], high=counts[1])
        if _times(whole) > _MAX_REPEAT:
            raise ValueError(f"RE2 repeats at most {_MAX_REPEAT} times, nested repeats multiplied")
        return whole

    def _operator(self) -> tuple[int, int | None] | None:
        letter = self._next()
        if letter in _COUNTS:
            self._at += 1
            return _COUNTS[letter]
        found = self._count()
        if found is None:
            return None
        self._at = found.end()
        if any(len(each) > len(str(_MAX_REPEAT)) for each in found.group(1, 3) if each):
            raise ValueError(f"RE2 repeats at most {_MAX_REPEAT} times")
        low = int(found[1])
        high = low if found[2] is None else int(found[3]) if found[3] else None
        if high is not None and high < low:
            raise ValueError(f"{found[0]} repeats at most {high} times, but at least {low}")
        return low, high

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"weft takes at most {_MAX_DEPTH} groups within each other")
        outside = self._flags
        if not self._text.startswith("(?", self._at):
            self._at += 1
        elif named := _GROUP_NAME.match(self._text, self._at):
            if named[1] in self._names:
                raise ValueError(f"two groups have the name {named[1]}")
            self._names.add(named[1])
            self._at = named.end()
        elif flags := _GROUP_FLAGS.match(self._text, self._at):
            self._set_flags(flags)
            if flags[3] == ")":  # for the rest of the group around
                self._depth -= 1
                return None
        else:
            raise ValueError(self._unknown_group())
        inside = self._choice()
        if not self._takes(")"):
            raise ValueError("missing closing ): the pattern is not RE2")
        self._depth -= 1
        self._flags = outside
        return inside

    def _set_flags(self, found: re.Match[str]) -> None:
        on, off = found[1], found[2] or ""
        if unknown := set(on + off) - set(_Flags.__struct_fields__):
            raise ValueError(f"the flag {min(unknown)!r} of {found[0]} is not one of i, m, s, U")
        self._at = found.end()
        self._flags = replace(self._flags, **dict.fromkeys(on, True), **dict.fromkeys(off, False))

    def _unknown_group(self) -> str:
        if self._text.startswith(("(?=", "(?!", "(?<=", "(?<!"), self._at):
            return "look-around ((?=, (?!, (?<=, (?<!) does not exist in RE2"
        if self._text.startswith("(?P=", self._at):
            return "back-references ((?P=name)) do not exist in RE2"
        return f"{self._text[self._at : self._at + 3]} does not exist in RE2"

    def _escape(self) -> Node:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter and letter in "AbBz":
            self._at += 2
            return Assert(kind=letter)
        if perl := self._perl():
            return Chars(ranges=perl)
        return self._literal(self._character())

    def _character(self) -> int:
        """The code point that an escape stands for."""
        letter = self._text[self._at + 1 : self._at + 2]
        if not letter:
            raise ValueError("the pattern ends in a single backslash")
        if octal := _OCTAL.match(self._text, self._at):
            self._at = octal.end()
            return int(octal[1], 8)
        if letter == "x":
            return self._hex()
        if letter in _CONTROLS or (letter.isascii() and not letter.isalnum()):
            self._at += 2
            return _CONTROLS.get(letter, ord(letter))
        if letter in "123456789":
            raise ValueError(f"back-references (\\{letter}) do not exist in RE2")
        if letter in "pPCQE":
            raise ValueError(f"\\{letter} is RE2, but weft does not support it; write the characters out")
        raise ValueError(f"\\{letter} does not exist in RE2")

    def _hex(self) -> int:
        found = _HEX.match(self._text, self._at)
        if found is None or int(found[1] or found[2], 16) > LAST:
            raise ValueError("\\x needs two hexadecimal digits, or others in braces (at most 10FFFF)")
        self._at = found.end()
        return int(found[1] or found[2], 16)

    def _class(self) -> Node:
        self._at += 1
        negated = self._takes("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self._takes("]"):  # a `]` that comes first stands for itself
            first = False
            found += self._named() or self._range()
        return Chars(ranges=tuple(found), negated=negated, fold=self._flags.i)

    def _named(self) -> Ranges:
        """A class by its name within a class; empty if there is none."""
        if perl := self._perl():
            return perl
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is None:
            return ()
        if posix[2] not in POSIX:
            raise ValueError(f"RE2 does not have the character class {posix[0]}")
        self._at = posix.end()
        return self._known(POSIX[posix[2]], negated=bool(posix[1]))

    def _perl(self) -> Ranges:
        letter = self._text[self._at + 1 : self._at + 2]
        if self._next() != "\\" or letter.lower() not in PERL:
            return ()
        self._at += 2
        return self._known(PERL[letter.lower()], negated=letter.isupper())

    def _known(self, inside: Ranges, *, negated: bool) -> Ranges:
        inside = in_any_case(inside) if self._flags.i else inside
        return others(inside) if negated else inside

    def _range(self) -> Ranges:
        low = self._member()
        if self._text.startswith("-]", self._at) or not self._takes("-"):
            return self._single(low)
        high = self._member()
        if high < low:
            raise ValueError(f"the range {chr(low)}-{chr(high)} ends before it begins")
        return ((low, high),)

    def _member(self) -> int:
        letter = self._next()
        if not letter:
            raise ValueError("missing closing ]")
        if letter == "\\":
            return self._character()
        self._at += 1
        return ord(letter)


def _times(tree: Node) -> int:
    """How often the innermost part is repeated at most, as RE2 counts it: `*` and `+` as if there were none."""
    match tree:
        case Sequence(parts=parts) | Choice(parts=parts):
            return max(map(_times, parts), default=1)
        case Repeat(part=part, low=low, high=high):
            return max(low if high is None else high, 1) * _times(part)
    return 1
