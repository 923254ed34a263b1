"""Reports that go on until Ctrl-C."""

import errno
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NoReturn, TypeVar

import click

from weft.model.errors import Unavailable
from weft.screen.documents import DOCUMENTS, piece
from weft.screen.say import is_screen, say

_LOOK_AGAIN: Final = 1.0  # seconds

T = TypeVar("T")


def pause(seconds: float) -> None:
    """Wait. Raises `BrokenPipeError` as soon as nobody reads standard output any more, as behind `| head -1`.

    A program that has nothing to print would not notice otherwise, and never end.
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
    """What `look` sees, again and again after a pause. It says that it waits for a daemon that is away."""
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
    """Show what `look` sees, made into a report by `render`, again whenever it changes.

    On a terminal a text replaces the one before; elsewhere it comes after an empty line.
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
