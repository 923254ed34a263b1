"""What commands say beside their reports, on standard error: progress, and what to try next.

Nothing of it for programs.
"""

import sys
import time
from contextlib import suppress

import click

from weft.model.text import visible
from weft.screen.documents import PEOPLE
from weft.screen.say import is_screen, say


def next_commands(output: str, *commands: str) -> None:
    if output in PEOPLE:
        say("\nNext: " + "\n      ".join(commands), err=True)


class Progress:
    """One line that changes on a terminal; a line for each step elsewhere; nothing for programs."""

    def __init__(self, output: str) -> None:
        self._start = time.monotonic()
        self._silent = output not in PEOPLE
        self._live = is_screen(sys.stderr) and not self._silent

    def __call__(self, text: str) -> None:
        if not self._silent:
            line = f"{time.monotonic() - self._start:5.2f} s  {visible(text)}"
            with suppress(BrokenPipeError):  # the work goes on when nobody reads of it any more
                click.echo(f"\r\033[K{line}" if self._live else line, err=True, nl=not self._live)

    def done(self) -> None:
        if self._live:
            click.echo("\r\033[K", err=True, nl=False)
