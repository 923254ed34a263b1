"""What commands about a node share: the options that choose whose answer is wanted, and that root has to ask."""

import os
from pathlib import Path
from typing import Final

import click

from weft.model.errors import ConfigError, Problem

INSTANCE: Final = click.option(
    "--instance", metavar="NAME", help="Of several daemons on this node, the one of this name."
)
FROM: Final = click.option(
    "--from",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Answer of a bundle (`weft bundle`) instead of this node; for that you need not be root.",
)


def need_root(command: str) -> None:
    """Refuse other users: to them everything would look empty."""
    if os.geteuid() != 0:
        seen, hint = f"run by user {os.geteuid()}", "Run the same command as root."
        raise ConfigError(Problem(code="HOST-002", where=command, seen=seen, expected="root", hint=hint))
