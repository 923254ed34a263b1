"""Errors, one type per reaction, and problems: what was seen, what was expected, what to do."""

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final

from weft.model.value import Value

_COMMAND: Final = re.compile(r"(?<=['`])weft ([a-z][^'`]*)(?=['`])")


class WeftCommand(Value, kw_only=False):
    """A command of weft's, without `weft` itself: `plan`, `cni install --check`."""

    words: str

    def __str__(self) -> str:
        return f"weft {self.words}"


# How the readers of this process's problems type a command. Set where a program begins, and nowhere else.
TYPED: Final = ContextVar[Callable[[WeftCommand], str]]("TYPED", default=str)


def typed(words: str) -> str:
    """A command of weft's, as they type it, for a text that is no hint: `typed("cleanup")`."""
    return TYPED.get()(WeftCommand(words))


def as_typed(text: str) -> str:
    """A text of weft's own with each `'weft …'` in it as they type it; what other programs say stays as it is."""
    return "".join(typed(part.words) if isinstance(part, WeftCommand) else part for part in _parts(text))


def _parts(text: str) -> list[str | WeftCommand]:
    return [WeftCommand(part) if index % 2 else part for index, part in enumerate(_COMMAND.split(text))]


class Problem(Value, kw_only=False):
    """One fault in words; `code` is permanent (docs/reference/problems.md).

    `where` names the place (`net-conf.json: Backend.VNI`, `--iface`), `seen` the value there. A command of weft's
    stands in `hint` as `'weft doctor -v'`, and in the problem's text as its readers type it.
    """

    code: str
    where: str
    seen: str
    expected: str = ""
    hint: str = ""

    @property
    def advice(self) -> list[str | WeftCommand]:
        """The hint in parts."""
        return _parts(self.hint)

    def __str__(self) -> str:
        text = f"{self.code} {self.where}: {self.seen}"
        if self.expected:
            text += f"; expected {self.expected}"
        stop = "" if text.endswith(("?", ".")) else "."
        return f"{text}{stop} {as_typed(self.hint)}" if self.hint else text


class WeftError(Exception):
    """An error that has been understood, with at least one problem. `status` is a command's exit status."""

    status = 1

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems: Sequence[Problem] = problems

    def __str__(self) -> str:  # when it is printed: only there it is known who reads it
        return "\n".join(map(str, self.problems))


class ConfigError(WeftError):
    """The user must act: trying again will not help."""

    status = 2


class CannotRun(ConfigError):
    """A program that the user named cannot be run. `status` is as a shell's: 127 if it is missing, else 126."""

    def __init__(self, problem: Problem, *, status: int) -> None:
        super().__init__(problem)
        self.status = status


class Unavailable(WeftError):
    """Something outside does not answer: try again later."""


class PeerError(WeftError):
    """A peer's data cannot be used: ignore that peer, serve the others."""


class Failure(Value):
    """A step that the kernel refused: a positive `errno` and the kernel's message."""

    step: object
    errno: int
    message: str


def not_whole(where: str, error: ImportError) -> Problem:
    """A module is missing: an image or a package may have left it out."""
    hint = "Install all of weft again; an image of your own needs all of Python's standard library."
    return Problem(code="INST-004", where=where, seen=f"this installation of weft is not whole: {error}", hint=hint)
