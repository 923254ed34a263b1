"""Prints text for people: with colour and links on a terminal that has them, and exactly as it is elsewhere."""

import os
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Final, TextIO

import click

from weft.model.text import visible

PAGE: Final = Path(__file__).parents[1] / "diag" / "problems.md"  # in a checkout a link to the page of the docs
# Parameters of SGR (ECMA-48): colours of the user's own palette, none of which is a background.
_STYLES: Final = {"heading": "1", "code": "1", "good": "32", "bad": "31", "notable": "33", "faint": "2"}

_GOOD: Final = "ready|served|up|attached|delivered|joined|recovered|started|store-back|lease-taken|uplink-back"
_BAD: Final = (
    r"not ready|silent|exited -?\d+|dead|refused|lacks|unusable|dropped|lost|unseen|nat|leaked|fault|failing|held"
    "|store-lost|lease-lost|uplink-lost"
)
_NOTABLE: Final = "repaired|left|changed|uplink-changed|unknown|undecided"
_CELL: Final = "(?:(?<=  )|(?<=, ))"  # not the first of a line: that is a name
_END: Final = "(?=[,: ]|$)"

_KINDS: Final = {
    "heading": "^[A-Z][A-Z ]*(?:  +[A-Z][A-Z ]*)+$",
    "code": r"\b[A-Z][A-Z0-9]+-\d{3}\b",
    "good": f"{_CELL}(?:{_GOOD})(?=,|$|  )|^ok(?=  )|✓",
    "bad": f"{_CELL}(?:{_BAD}){_END}|^fault(?=  )|^!|✗",
    "notable": f"{_CELL}(?:{_NOTABLE}){_END}|^warning(?=  )",
    "faint": "^Next:|^not seen",
}


def is_screen(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def shows_colour(stream: TextIO) -> bool:
    """Of a user who wants colours (no-color.org)."""
    return is_screen(stream) and not os.environ.get("NO_COLOR")


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may hold what others said: no terminal obeys anything in it.

    Without a reader of standard error (`err`) the text is lost, and the work goes on.
    """
    stream = sys.stderr if err else sys.stdout
    text = visible(text)
    with suppress(BrokenPipeError) if err else nullcontext():
        click.echo(painted(text, _link) if shows_colour(stream) else text, err=err, nl=nl)


def title(text: str) -> None:
    if shows_colour(sys.stdout):
        text = _styled("heading", text)
    click.echo(text)


def _link(code: str) -> str:
    """The page of a code. The host tells a terminal of another machine that the file is not its own."""
    return f"file://{os.uname().nodename}{PAGE.resolve().as_uri().removeprefix('file://')}#{code.lower()}"


@cache
def _marks() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.MULTILINE)


def painted(text: str, link: Callable[[str], str]) -> str:
    """Colour finished text, without a change of words and columns; each code links to `link(code)`.

    A word means the same in all commands. It is a state where it begins a column or a part of a sentence; a heading is
    a line of names in capitals.
    """
    return _marks().sub(lambda found: _painted(str(found.lastgroup), found.group(), link), text)


def _painted(kind: str, text: str, link: Callable[[str], str]) -> str:
    styled = _styled(kind, text)
    # OSC 8 (gist egmontkob): terminals that do not know it show the text alone.
    return f"\033]8;;{link(text)}\033\\{styled}\033]8;;\033\\" if kind == "code" else styled


def _styled(kind: str, text: str) -> str:
    return f"\033[{_STYLES[kind]}m{text}\033[0m"
