"""`weft lab sh`: a prompt for one lab, without `weft lab` and `exec`."""

import os
import readline
import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path
from shlex import split
from typing import Final

import click
from click.shell_completion import ShellComplete

from weft.lab.commands.choose import VARIABLE, everywhere, find, lab_option
from weft.model.errors import ConfigError, Problem
from weft.screen.say import say

_MOST_KEPT: Final = 1000  # lines of the history
_ENDS: Final = ("exit", "quit")
_HELP: Final = "help"

# Runs a command line of weft as if it was called so: prints what goes wrong, returns the exit status.
Run = Callable[[Sequence[str]], int]


@click.command("sh")
@lab_option
@click.pass_context
def shell(ctx: click.Context, lab: str) -> int:
    """Open a prompt in a lab: NODE COMMAND and POD COMMAND run there, and lab commands go without `weft lab`.

    \b
      weft:weft> pod1-1 ping -c 1 pod2-1
      weft:weft> node1 ip route | grep flannel
      weft:weft> all pgrep weftd
      weft:weft> pingall

    What follows a name goes to the shell of that place, with its pipes and quotes. A lab command wins over a node or
    pod of its name, which `exec` then reaches. Tab completes names, commands and options; earlier lines are
    kept. Ctrl-C ends a command, Ctrl-D the prompt.

    From a pipe or a file it runs each line, and commands get no input. Exits with the status of the last command.
    """
    place = find(lab)
    os.environ[VARIABLE] = ctx.params["lab"] = place.name  # what is typed and completed means this lab
    run: Run = ctx.obj
    group = None if ctx.parent is None else ctx.parent.command
    assert isinstance(group, click.Group)  # noqa: S101 - `weft lab`, whose commands these are
    verbs = frozenset(group.list_commands(ctx)) - {ctx.info_name}
    status = 0
    typed = _typed(f"weft:{place.name}> ", _Completion(ctx, group, verbs)) if sys.stdin.isatty() else _piped()
    with closing(typed) as lines:
        for line in lines:
            if line in _ENDS:
                break
            if line == _HELP:
                say(ctx.get_help())
                continue
            try:
                words = command_line(line, verbs)
            except ConfigError as error:
                say(f"weft: {error}", err=True)
                status = error.status
                continue
            status = run(words) if words else status
            if not place.alive:
                say(f"lab {place.name} is down", err=True)
                break
    return status


def command_line(line: str, verbs: Collection[str]) -> list[str]:
    """Weft's arguments; none for an empty line or a comment. Raises `ConfigError`."""
    line = line.strip()
    if not line or line.startswith("#"):
        return []
    first, _, rest = line.partition(" ")
    rest = rest.strip().removeprefix("-- ").strip()
    if first in verbs:
        try:
            return ["lab", first, *split(rest)]
        except ValueError as error:
            raise ConfigError(_problem(line, str(error).lower(), "quotes in pairs")) from None
    near = get_close_matches(first, verbs, n=1)
    if not rest:
        hint = f"Did you mean {near[0]!r}?" if near else "'help' says more."
        raise ConfigError(_problem(first, "a word alone", "a lab command, or NODE COMMAND or POD COMMAND", hint))
    return ["lab", "exec", first, "--", "sh", "-c", rest]


def _problem(where: str, seen: str, expected: str, hint: str = "") -> Problem:
    return Problem("FLAG-001", f"weft lab sh: {where}", seen, expected=expected, hint=hint)


class _Completion:
    """What Tab offers, by what stands before it."""

    def __init__(self, ctx: click.Context, group: click.Group, verbs: Collection[str]) -> None:
        self._ctx = ctx
        self._group = group
        self._verbs = verbs
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        """Suggestion number `state`, as readline asks for it."""
        if state == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()].split()
            self._found = [f"{word} " for word in self.offers(before, text)]
        return self._found[state] if state < len(self._found) else None

    def offers(self, before: Sequence[str], text: str) -> list[str]:
        """What may follow the words `before` and begins with `text`."""
        places = [str(item.value) for item in everywhere(self._ctx, self._ctx.command.params[0], text)]
        if not before:
            return sorted(places + [word for word in (*self._verbs, *_ENDS, _HELP) if word.startswith(text)])
        if before[0] not in self._verbs:
            return places
        items = ShellComplete(self._group, {}, "lab", "").get_completions(list(before), text)
        return [item.value for item in items if item.type == "plain"]


def _typed(prompt: str, completion: _Completion) -> Generator[str, None, None]:
    history = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "weft" / "lab-history"
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_completer(completion)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    try:
        while True:
            try:
                yield input(prompt).strip()
            except KeyboardInterrupt:
                say("")
            except EOFError:
                say("")
                return
    finally:
        readline.set_history_length(_MOST_KEPT)
        with suppress(OSError):  # the prompt works without a history
            history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(history)


def _piped() -> Generator[str, None, None]:
    """The lines of standard input, of which commands get nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    with os.fdopen(os.dup(0)) as lines:
        os.dup2(nothing, 0)
        os.close(nothing)
        for line in lines:
            yield line.strip()
