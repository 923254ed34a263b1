"""The command line as Go's `flag` reads it (flannel.md §1.1), but with all errors at once.

`-name` and `--name` are one; `=value` or a separate value, but booleans take a value only with `=`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from weft.config.flag import Flag
from weft.config.options import BY_NAME
from weft.model.errors import Problem
from weft.model.value import Value

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
# strconv.ParseInt with base 0: Go's integer literals, with underscores between digits and `0` for octal.
_INT: Final = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO]?(?:_?[0-7])+|0|[1-9](?:_?[0-9])*)", re.ASCII
)


def parse_bool(text: str) -> bool:
    """`ValueError` says what was expected."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("true or false (also 1, 0, t, f)")


def parse_int(text: str, *, low: int, high: int) -> int:
    """Between `low` and `high`; `ValueError` says what was expected."""
    expected = "a whole number"
    if low > -(2**63) or high < 2**63 - 1:
        expected += f" from {low} to {high}"
    # 80 characters hold every 64-bit number in every base; Python refuses to convert very long texts.
    if len(text) > 80 or not _INT.fullmatch(text):
        raise ValueError(expected)
    digits = re.sub(r"^([+-]?)0_?(?=[0-7])", r"\g<1>0o", text)
    value = int(digits, 0)
    if not low <= value <= high:
        raise ValueError(expected)
    return value


class Given(Value):
    """A value as the user wrote it, and where."""

    flag: Flag
    text: str
    where: str

    def __repr__(self) -> str:
        return f"Given({self.flag.name}, {self.where})"  # the text may be a password


class Tokens(Value):
    """What a command line says."""

    given: tuple[Given, ...]
    wants_help: bool
    problems: tuple[Problem, ...]


def tokens(argv: Sequence[str]) -> Tokens:
    """Values are not converted here."""
    return _Reader(argv).run()


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """A hint at the known name that is most like `name`, or nothing; both are without `prefix`."""
    from difflib import get_close_matches  # only who made a mistake pays for it

    folded = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    return f"Did you mean {prefix}{folded[near[0]]}?" if near else ""


class _Reader:
    def __init__(self, argv: Sequence[str]) -> None:
        self._left = list(reversed(argv))
        self._given: list[Given] = []
        self._problems: list[Problem] = []
        self._help = False
        self._last: Flag | None = None

    def run(self) -> Tokens:
        while self._left:
            argument = self._left.pop()
            if argument == "--":
                while self._left:
                    self._positional(self._left.pop())
            elif argument == "-" or not argument.startswith("-"):
                self._positional(argument)
            else:
                self._flag(argument)
        return Tokens(given=tuple(self._given), wants_help=self._help, problems=tuple(self._problems))

    def _flag(self, argument: str) -> None:
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        flag = BY_NAME.get(name)
        where = f"--{name}"
        self._last = flag
        if name in ("h", "help"):
            self._help = True
        elif not name or name.startswith("-"):
            self._problem(repr(argument.partition("=")[0]), "not a flag", expected="-name or --name")
        elif flag is None:
            hint = did_you_mean(name, BY_NAME, prefix="--") or "See weftd --help."
            self._problem(where, "no such flag", hint=hint)
            if not equals and self._left and not self._left[-1].startswith("-"):
                self._left.pop()  # most likely its value: neither another error nor a thing to print
        elif equals or flag.kind == "bool":
            self._given.append(Given(flag=flag, text=text if equals else "true", where=where))
        elif self._left:
            self._given.append(Given(flag=flag, text=self._left.pop(), where=where))
        else:
            self._problem(where, "no value", expected=f"{where}={flag.value}")

    def _positional(self, argument: str) -> None:
        last = self._last
        shown = "an argument (not shown)" if last is not None and last.secret else repr(argument)
        hint = "weftd takes flags alone."
        if last is not None and last.kind == "bool" and argument in _TRUE | _FALSE:
            hint = f"Booleans take their value with '=': --{last.name}={argument}."
        self._problem("command line", f"{shown} is not a flag", expected="flags only", hint=hint)

    def _problem(self, where: str, seen: str, *, expected: str = "", hint: str = "") -> None:
        self._problems.append(Problem(code="FLAG-001", where=where, seen=seen, expected=expected, hint=hint))
