"""Prints text for people: with colour and links on a terminal that has them, and exactly as it is elsewhere."""

import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final, TextIO

import click

from weft.model.text import visible

PAGE: Final = Path(__file__).parents[1] / "diag" / "problems.md"  # in a checkout a link to the page of the docs


def is_screen(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal on which a line can be written again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def shows_colour(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal with colours, of a user who wants them (no-color.org)."""
    return is_screen(stream) and not os.environ.get("NO_COLOR")


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may hold what others said: no terminal obeys anything in it.

    Where nobody reads standard error (`err`) any more, the text is lost, and the work goes on.
    """
    stream = sys.stderr if err else sys.stdout
    text = visible(text)
    with suppress(BrokenPipeError) if err else nullcontext():
        click.echo(_in_colour(text) if shows_colour(stream) else text, err=err, nl=nl)


def title(text: str) -> None:
    if shows_colour(sys.stdout):
        from weft.screen.paint import emphasised

        text = emphasised(text)
    click.echo(text)


def _in_colour(text: str) -> str:
    from weft.screen.paint import painted  # programs and pipes do without its patterns

    return painted(text, _link)


def _link(code: str) -> str:
    """The page that explains a code. The host tells a terminal of another machine that it is not its file."""
    return f"file://{os.uname().nodename}{PAGE.resolve().as_uri().removeprefix('file://')}#{code.lower()}"
