"""Events on the screen, a line for each, and the options that choose them."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, get_args

import click

from weft.model.errors import typed
from weft.model.node.history import HEALTH, Event, Kind
from weft.model.text import one_line, seconds_in
from weft.model.value import fields_of
from weft.screen.documents import DOCUMENTS, piece
from weft.screen.groups import read_by
from weft.screen.say import PAGE, say

Command = TypeVar("Command", bound=Callable[..., Any])

KINDS: Final = (*get_args(Kind), HEALTH)


def since_option(about: str) -> Callable[[Command], Command]:
    return click.option("--since", metavar="DURATION", callback=read_by(seconds_in), help=about)


def wanted_options(command: Command) -> Command:
    """What a command then gets are the fields of `Wanted`."""
    kinds = click.option(
        "--kind", "kinds", multiple=True, type=click.Choice(KINDS), metavar="KIND", help="Only events of this kind."
    )
    codes = click.option(
        "--code",
        "codes",
        multiple=True,
        metavar="CODE",
        callback=read_by(_codes),
        help="Only events with this code, or with one that begins so.",
    )
    return kinds(codes(command))


def line(event: Event, node: str = "") -> str:
    """In local time, with the name of its node where there are several."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    states = [f"{name} {text}" for name, text in (("was", event.was), ("now", event.now)) if text]
    said = "; ".join(part for part in (event.words, ", ".join(states), event.blame) if part)
    code = f"{event.code} " if event.code else ""
    where = f"{node}  " if node else ""
    return one_line(f"{when}  {where}{event.kind:14}  {code}{event.subject}{f': {said}' if said else ''}")


def show_event(output: str, event: Event, node: str = "") -> None:
    if output in DOCUMENTS:
        of = {"node": node} if node else {}
        click.echo(piece(output, {**of, **fields_of(event)}), nl=False)
    else:
        say(line(event, node))


def _codes(texts: Sequence[str]) -> tuple[str, ...]:
    known = re.findall(r"^### ([A-Z][A-Z0-9]+-\d{3})$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for text in texts:
        if not any(code.startswith(text.upper()) for code in known):
            raise ValueError(f"no code begins with {text!r}: `{typed('explain')}` lists all")
    return tuple(text.upper() for text in texts)
