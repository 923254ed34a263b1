"""Which daemon of this node a command asks."""

import click

INSTANCE = click.option(
    "--instance", "wanted", metavar="NAME", help="Of several daemons on this node, the one of this name."
)
