"""RE2 patterns, as flannel takes them for `--iface-regex`, compiled by Python's `re`.

The two dialects agree on most of what people write. This module translates what is only spelt differently and
refuses what RE2 does not have, so that a pattern that works here also works on a node with upstream's daemon.
It must not guess: what it cannot translate faithfully is an error (https://github.com/google/re2/wiki/Syntax).
"""

import re
from typing import Final

# RE2 refuses larger counts ("invalid repeat count").
_MAX_REPEAT: Final = 1000
_REPEAT = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_GROUP_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>")
_HEX = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_POSIX_CLASS = re.compile(r"\[:(\^?)([a-z]+):\]")
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\t ",
    "digit": "0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
    "word": "0-9A-Za-z_",
}
# Letters that mean the same after a backslash in both dialects (with re.ASCII); `z` is spelt `Z` in Python.
_SAME_ESCAPES: Final = "AabBdDfnrsStvwW"
_SAME_ESCAPES_IN_CLASS: Final = "adDfnrsStvwW"
# Characters that Python's `re` reads, or warns that it will read, as something else inside a class.
_SPECIAL_IN_CLASS: Final = "[&|~"


def compile_re2(text: str) -> re.Pattern[str]:
    """Compile an RE2 pattern; `ValueError` says what is wrong with it and, where it is so, that RE2 lacks it."""
    translated = _Translator(text).run()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression (RE2): {error}") from None


class _Translator:
    """One pass from left to right over one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        while self._at < len(self._text):
            match self._text[self._at]:
                case "\\":
                    self._escape(_SAME_ESCAPES)
                case "[":
                    self._class()
                case "(":
                    self._group()
                case "*" | "+" | "?":
                    self._copy(1)
                    self._after_repeat()
                case "{":
                    self._braces()
                case _:
                    self._copy(1)
        return "".join(self._out)

    def _copy(self, count: int) -> None:
        self._emit(self._text[self._at : self._at + count], count)

    def _emit(self, translated: str, count: int) -> None:
        self._out.append(translated)
        self._at += count

    def _escape(self, same: str) -> None:
        letter = self._text[self._at + 1 : self._at + 2]
        if not letter:
            raise ValueError("the pattern ends in a single backslash")
        if letter in "123456789":
            raise ValueError(f"back-references (\\{letter}) do not exist in RE2")
        if letter == "z" and same is _SAME_ESCAPES:
            self._emit(r"\Z", 2)
        elif letter == "x":
            self._hex()
        elif letter in same or letter == "0" or (letter.isascii() and not letter.isalnum()):
            self._copy(2)
        elif letter in "pPCQE":
            raise ValueError(f"\\{letter} is RE2, but weft does not support it; write the characters out")
        else:
            raise ValueError(f"\\{letter} does not exist in RE2")

    def _hex(self) -> None:
        found = _HEX.match(self._text, self._at)
        if found is None or int(found[1] or found[2], 16) > 0x10FFFF:
            raise ValueError("\\x needs two hexadecimal digits, or up to six in braces (at most 10FFFF)")
        self._emit(f"\\U{int(found[1] or found[2], 16):08x}", len(found[0]))

    def _class(self) -> None:
        # A `]` or `-` that comes first stands for itself, in both dialects; escaped, it cannot be misread.
        self._copy(2 if self._text.startswith("[^", self._at) else 1)
        if self._text.startswith(("]", "-"), self._at):
            self._emit("\\" + self._text[self._at], 1)
        while self._at < len(self._text):
            letter = self._text[self._at]
            posix = _POSIX_CLASS.match(self._text, self._at)
            if letter == "]":
                self._copy(1)
                return
            if posix is not None:
                if posix[2] not in _POSIX or posix[1]:
                    raise ValueError(f"weft does not know the character class {posix[0]}")
                self._emit(_POSIX[posix[2]], len(posix[0]))
            elif letter == "\\":
                self._escape(_SAME_ESCAPES_IN_CLASS)
            elif letter in _SPECIAL_IN_CLASS or (letter == "-" == self._out[-1]):
                self._emit("\\" + letter, 1)
            else:
                self._copy(1)
        raise ValueError("missing closing ]")

    def _group(self) -> None:
        if not self._text.startswith("(?", self._at):
            self._copy(1)
        elif (named := _GROUP_NAME.match(self._text, self._at)) is not None:
            self._emit(f"(?P<{named[1]}>", len(named[0]))
        elif (flags := _GROUP_FLAGS.match(self._text, self._at)) is not None:
            self._flags(flags)
        elif self._text.startswith(("(?=", "(?!", "(?<=", "(?<!"), self._at):
            raise ValueError("look-around ((?=, (?!, (?<=, (?<!) does not exist in RE2")
        elif self._text.startswith("(?P=", self._at):
            raise ValueError("back-references ((?P=name)) do not exist in RE2")
        else:
            raise ValueError(f"{self._text[self._at : self._at + 3]} does not exist in RE2")

    def _flags(self, flags: re.Match[str]) -> None:
        if unknown := set(flags[1] + (flags[2] or "")) - set("ims"):
            raise ValueError(f"the flag {min(unknown)!r} of {flags[0]} is not one of i, m, s")
        if flags[3] == ")" and (self._at or flags[2]):
            raise ValueError(f"weft takes {flags[0]} only at the start, without '-'; write (?flags:…) around a part")
        self._copy(len(flags[0]))

    def _braces(self) -> None:
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            self._emit(r"\{", 1)  # RE2 takes a brace that is no repeat count as itself; Python reads `{,5}` as one
            return
        if any(int(count) > _MAX_REPEAT for count in found.groups() if count):
            raise ValueError(f"{found[0]}: RE2 repeats at most {_MAX_REPEAT} times")
        self._copy(len(found[0]))
        self._after_repeat()

    def _after_repeat(self) -> None:
        """Refuse `a++`, `a**` and `a{2}+`: possessive in Python, errors in RE2; let the lazy `a+?` pass."""
        if self._text.startswith("?", self._at):
            self._copy(1)
        if self._text.startswith(("*", "+", "?"), self._at):
            raise ValueError("two repeat operators in a row do not exist in RE2")
