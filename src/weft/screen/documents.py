"""Prints reports and problems: text for people, JSON or YAML for programs, and some again until Ctrl-C."""

import errno
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec

from weft.model.errors import Problem, Unavailable
from weft.model.text import visible
from weft.screen.say import is_screen, say

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")

DOCUMENTS: Final = ("json", "yaml")
_C1: Final = re.compile("[\x7f-\x9f]")
_LOOK_AGAIN: Final = 1.0  # seconds
PEOPLE: Final = ("text", "wide")  # what people read; all else is for programs


def output_with(*further: str) -> Callable[[Command], Command]:
    """The option that says how to print; `further` are ways beside text and documents."""
    forms = click.Choice(["text", *further, *DOCUMENTS])
    return click.option("-o", "--output", type=forms, default="text", help="How to print it.")


output_option: Final = output_with()
watch_option: Final = click.option(
    "-w", "--watch", is_flag=True, help="Show it again when it has changed, until Ctrl-C."
)


def document(output: str, value: object) -> str:
    """Ends in a newline."""
    encoded = msgspec.json.encode(value)
    if output == "yaml":
        import yaml

        text: str = yaml.safe_dump(msgspec.json.decode(encoded), sort_keys=False, allow_unicode=True)
        return text
    return _escaped(msgspec.json.format(encoded, indent=2).decode()) + "\n"


def _escaped(text: str) -> str:
    """Escape C1, control characters that JSON may hold and some terminals obey."""
    return _C1.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def piece(output: str, value: object) -> str:
    """One of many values: a line of JSON, or a document of YAML."""
    return (
        f"---\n{document(output, value)}" if output == "yaml" else _escaped(msgspec.json.encode(value).decode()) + "\n"
    )


def show_report(output: str, value: object, text: str, **further: Callable[[], str]) -> None:
    """People get `text`, which has its newlines; `further` makes the texts of further ways."""
    if output in DOCUMENTS:
        click.echo(document(output, value), nl=False)
    elif output in further:
        click.echo(further[output](), nl=False)
    else:
        say(text, nl=False)


def complain(problem: Problem, *, programs: bool) -> None:
    """On standard error; for programs as a line of JSON, which is YAML, too."""
    if programs:
        click.echo(piece("json", problem), err=True, nl=False)
    else:
        say(f"weft: {problem}", err=True)


def complain_beside(output: str, problems: Iterable[Problem]) -> None:
    """On standard error, for those whom the output is for."""
    for problem in problems:
        complain(problem, programs=output in DOCUMENTS)


def next_commands(output: str, *commands: str) -> None:
    """Say on standard error what to try next; nothing for programs."""
    if output in PEOPLE:
        say("\nNext: " + "\n      ".join(commands), err=True)


class Progress:
    """On standard error, one line that changes on a terminal; a line for each step elsewhere; nothing for programs."""

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


def pause(seconds: float) -> None:
    """Wait. `BrokenPipeError` as soon as nobody reads standard output, as behind `| head -1`.

    A program that prints nothing would not notice otherwise.
    """
    try:
        stream = sys.stdout.fileno()
    except (OSError, ValueError):  # a test's, which is no file
        time.sleep(seconds)
        return
    poller = select.poll()
    poller.register(stream, 0)  # poll reports errors and hang-ups unasked
    if poller.poll(seconds * 1000):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # at which click ends the program quietly


def watched(look: Callable[[], T], seconds: float, sleep: Callable[[float], None] = pause) -> Iterator[T]:
    """What `look` sees, again and again; says that it waits for a daemon that is away."""
    away = False
    while True:
        sleep(seconds)
        try:
            seen = look()
        except Unavailable as error:
            if not away:
                say(f"weft: {error}; waiting for it", err=True)
            away = True
        else:
            away = False
            yield seen


def redraw(
    output: str,
    look: Callable[[], T],
    render: Callable[[T], tuple[object, str]],
    *,
    sleep: Callable[[float], None] = pause,
) -> NoReturn:
    """Show what `look` sees, made into a report by `render`, whenever that changes.

    On a terminal it replaces the one before; elsewhere it comes after an empty line.
    """
    live, before = is_screen(sys.stdout), ""
    for value, text in map(render, chain((look(),), watched(look, _LOOK_AGAIN, sleep))):
        shown = piece(output, value) if output in DOCUMENTS else text
        if shown == before:
            continue
        if output in DOCUMENTS:
            click.echo(shown, nl=False)
        elif live:
            click.echo("\033[H\033[J", nl=False)  # to the first line, and empty all
            say(shown, nl=False)
        else:
            say(f"\n{shown}" if before else shown, nl=False)
        before = shown
    raise AssertionError("a watch ends by Ctrl-C alone")
