"""The options that say where a node has its files, and which of its daemons is meant."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from weft.cni.install.directories import Directories
from weft.diag.sight.look import Places
from weft.screen.groups import INSTANCE

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT: Final = Places()
_OPTIONS: Final = (
    INSTANCE,
    click.option(
        "--subnet-file", default=str(_DEFAULT.subnet_file), show_default=True, help="The daemon's subnet file."
    ),
    click.option(
        "--conf-dir",
        default=lambda: str(Directories.known(os.environ).conf_dir),
        show_default=f"install's, or {Directories().conf_dir}",
        help="Where runtimes find networks.",
    ),
    click.option(
        "--bin-dir",
        default=lambda: str(Directories.known(os.environ).bin_dir),
        show_default=f"install's, or {Directories().bin_dir}",
        help="Where runtimes find plugins.",
    ),
)
NAMES: Final = ("instance", "subnet_file", "conf_dir", "bin_dir")


def place_options(command: Command) -> Command:
    """`places_of` reads what the command then gets."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def places_of(given: Mapping[str, Any]) -> Places:
    directories = {name: Path(given[name]) for name in NAMES if name != "instance"}
    run = None if os.environ.get("POD_NAME") else _DEFAULT.run
    return Places(instance=given["instance"], run=run, **directories)
