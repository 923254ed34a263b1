"""How the commands speak: reports to standard output, what goes on and what to try next to standard error.

With `-o json` standard output is one JSON document, and standard error holds nothing but problems.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

Command = TypeVar("Command", bound=Callable[..., Any])

# JSON where it was asked for.
output_option: Callable[[Command], Command] = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it."
)


def show_report(output: str, report: msgspec.Struct | dict[str, Any] | list[Any], text: str) -> None:
    """Print a report: `text` as it is, or all of it as JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(report)) if output == "json" else text, nl=output == "json")


def next_commands(output: str, *commands: str) -> None:
    """Say what to try next, to people."""
    if output == "text":
        click.echo("\nNext: " + "\n      ".join(commands), err=True)


class Progress:
    """One line that changes on a terminal; a line for each step elsewhere; nothing for programs."""

    def __init__(self, output: str) -> None:
        self._start = time.monotonic()
        self._silent = output == "json"
        self._live = sys.stderr.isatty() and not self._silent

    def __call__(self, text: str) -> None:
        """Say what is being done."""
        if not self._silent:
            line = f"{time.monotonic() - self._start:5.2f} s  {text}"
            click.echo(f"\r\033[K{line}" if self._live else line, err=True, nl=not self._live)

    def done(self) -> None:
        """End the line."""
        if self._live:
            click.echo("\r\033[K", err=True, nl=False)
