"""What the commands share that ask a daemon: their options, and a watch, which asks again and again."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import click

from weft.model.errors import Unavailable

T = TypeVar("T")

OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
INSTANCE = click.option(
    "--instance", "wanted", metavar="NAME", help="Of several daemons on this node, the one of this name."
)


def watched(look: Callable[[], T], sleep: Callable[[float], None], seconds: float) -> Iterator[T]:
    """What `look` sees, again and again after a pause. A daemon that is away is waited for, and that is said."""
    away = False
    while True:
        sleep(seconds)
        try:
            seen = look()
        except Unavailable as error:
            if not away:
                click.echo(f"weft: {error}; waiting for it", err=True)
            away = True
        else:
            away = False
            yield seen
