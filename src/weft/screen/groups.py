"""Groups of commands: their help lists each command whole, and a name that is none is answered by a guess."""

from difflib import get_close_matches

import click

_LONGEST = 1000  # characters of a help line: click would cut at 45


class Group(click.Group):
    """A group of commands."""

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
