"""Groups of commands, which suggest a name for an unknown one, and what commands about a node have in common."""

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

Command = TypeVar("Command", bound=Callable[..., Any])
_LONGEST = 1000  # characters of a help line: click would cut at 45

INSTANCE: Final = click.option(
    "--instance", metavar="NAME", help="The daemon of this name, where several run on this node."
)
FROM: Final = click.option(
    "--from",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read a bundle (`weft bundle`) instead of this node; that needs no root.",
)


def read_by(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Have an option's text, if there is one, read by this, whose `ValueError` says what is wrong with it."""

    def callback(_: click.Context, param: click.Parameter, given: Any) -> Any:
        try:
            return None if given is None else read(given)
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from error

    return callback


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Make one decorator of several, in the order in which help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Group(click.Group):
    def about(self, name: str) -> str:
        """The first sentence of a command's help."""
        return self.commands[name].get_short_help_str(_LONGEST)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            near = get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(names)}."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.about(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Late(Value, kw_only=False):
    """A command that is imported when it is called: `place` is `module:name`.

    `about` is its line of help; empty to import the command for it.
    """

    place: str
    about: str = ""

    def load(self) -> click.Command:
        module, name = self.place.split(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.place} is not a command")
        return command


class LateGroup(Group):
    """A group that knows its commands, `late`, without importing them.

    Those in `absent` are not installed; `add` says how to install them.
    """

    def __init__(
        self, *args: Any, late: Mapping[str, Late], absent: Mapping[str, Late] | None = None, add: str = "", **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._late = late
        self._absent = absent or {}
        self._add = add

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self._absent:
            raise click.UsageError(f"The command {args[0]!r} is not installed. Install it with: {self._add}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        if self._absent:
            with formatter.section(f"Not installed ({self._add})"):
                formatter.write_dl([(name, late.about) for name, late in self._absent.items()])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._late, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._late[cmd_name].load() if cmd_name in self._late else super().get_command(ctx, cmd_name)

    def about(self, name: str) -> str:
        if name not in self._late:
            return super().about(name)
        return self._late[name].about or self._late[name].load().get_short_help_str(_LONGEST)


def need_root(command: str) -> None:
    """Refuse other users: to them everything would look empty."""
    if os.geteuid() != 0:
        seen, hint = f"run by user {os.geteuid()}", "Run the same command as root."
        raise ConfigError(Problem("HOST-002", command, seen, expected="root", hint=hint))
