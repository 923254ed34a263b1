"""Answers of a bundle instead of this node's: what `--from` reads."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from weft.model.errors import Problem, Unavailable
from weft.model.node.history import EventsSince
from weft.model.node.nodestate import NodeState

if TYPE_CHECKING:
    from weft.diag.bundle.contents import Bundle


def bundle_at(file: Path, *not_with: str) -> "Bundle":
    """Read a bundle. Raises `ConfigError`, or `UsageError` where an option of these names was given, too."""
    from weft.diag.bundle import archive
    from weft.diag.bundle.contents import bundle_of

    context = click.get_current_context()
    for param in context.command.params:
        if param.name in not_with and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--from and {param.opts[0]} exclude each other: a bundle is of one node", context)
    return bundle_of(archive.unpack(file), str(file))


def state_in(bundle: "Bundle", file: Path) -> NodeState:
    """What the daemon said of itself. Raises `Unavailable` if none did."""
    if bundle.sight.daemon is None:
        raise _silent(bundle, file)
    return bundle.sight.daemon


def told_in(bundle: "Bundle", file: Path) -> EventsSince:
    """The daemon's history. Raises `Unavailable` if none told it."""
    if bundle.told is None:
        raise _silent(bundle, file)
    return bundle.told


def _silent(bundle: "Bundle", file: Path) -> Unavailable:
    seen = bundle.sight.unseen.get("daemon", "no weftd ran there when it was made")
    return Unavailable(Problem("INST-003", str(file), seen))
