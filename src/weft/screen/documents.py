"""Reports and problems, as text for people or as JSON or YAML for programs."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
import msgspec

from weft.model.errors import Problem
from weft.screen.say import say

Command = TypeVar("Command", bound=Callable[..., Any])

DOCUMENTS: Final = ("json", "yaml")
_C1: Final = re.compile("[\x7f-\x9f]")
PEOPLE: Final = ("text", "wide")  # what people read; all else is for programs


def output_with(*further: str) -> Callable[[Command], Command]:
    """The option that says how to print: as text, as a document, or in a `further` way."""
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
    """Escape the control characters that JSON may hold and that some terminals obey (C1)."""
    return _C1.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def piece(output: str, value: object) -> str:
    """One of many values in turn: a line of JSON or a document of YAML."""
    return (
        f"---\n{document(output, value)}" if output == "yaml" else _escaped(msgspec.json.encode(value).decode()) + "\n"
    )


def show_report(output: str, value: object, text: str, **further: Callable[[], str]) -> None:
    """Print a value as it was asked for; people get `text`, which has its own newlines.

    `further` makes the text of each further way, with a newline at its end.
    """
    if output in DOCUMENTS:
        click.echo(document(output, value), nl=False)
    elif output in further:
        click.echo(further[output](), nl=False)
    else:
        say(text, nl=False)


def complain(problem: Problem, *, programs: bool) -> None:
    """Print a problem on standard error; for programs as a line of JSON, which is YAML, too."""
    if programs:
        click.echo(piece("json", problem), err=True, nl=False)
    else:
        say(f"weft: {problem}", err=True)
