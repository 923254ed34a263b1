"""`weft lab exec`: commands in nodes and pods."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Final

import click
import msgspec

from weft.lab import protocol
from weft.lab.commands import terminal
from weft.lab.commands.choose import ask, everywhere, find, lab_and_output
from weft.lab.places import Place
from weft.lab.spec import ALL
from weft.model.errors import CannotRun, ConfigError, Problem
from weft.model.value import Value
from weft.screen.documents import DOCUMENTS, PEOPLE, show_report
from weft.screen.say import say

_PASSED: Final = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LS_COLORS")
_AT_ONCE: Final = 50  # commands of `exec all`: each takes three descriptors


class _Exec(click.Command):
    """Options end at `--`; without it, at NODE: `exec node1 ls -l` works."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@click.command("exec", cls=_Exec, context_settings={"ignore_unknown_options": True})
@lab_and_output
@click.argument("where", metavar="NODE|POD|all", shell_complete=everywhere)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def execute(where: str, command: tuple[str, ...], lab: str, output: str) -> int:
    """Run a command in a node or a pod, or in all nodes, and exit with its status.

    It sees the node's network, files and processes; with `ip netns exec` it would see the network alone. It runs in
    this directory, with this standard input, and with a terminal if there is one. Status 126 means that it cannot be
    executed, 127 that it does not exist.

    \b
      weft lab exec node1 -- ip route
      weft lab exec pod1-1 -- sh
      weft lab exec all -- bridge fdb show dev flannel.1

    In all nodes it runs at once and without input; what it says in each comes under the node's name, and the exit
    status is the highest. No node or pod is named `all`.
    """
    if where.startswith("-"):  # no option of ours, and no name begins so
        hint = "Leave it out: the command gets standard input, and a terminal where there is one."
        where, seen = "weft lab exec", f"no such option: {where}"
        raise ConfigError(Problem("FLAG-001", where, seen, expected="NODE|POD -- COMMAND", hint=hint))
    place = find(lab)
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    if where == ALL:
        return _everywhere(place, command, environ, output)
    request = terminal.command(place, where, command, environ)
    if output in PEOPLE:
        return terminal.run(request)
    status, stdout, stderr = terminal.captured(request)
    show_report(output, {"status": status, "stdout": stdout, "stderr": stderr}, "")
    return status


class _Ran(Value):
    node: str
    status: int
    stdout: str
    stderr: str


def _everywhere(place: Place, command: Sequence[str], environ: Mapping[str, str], output: str) -> int:
    found = []
    for ran in _in_nodes(place, command, environ):
        found.append(ran)
        if output in PEOPLE:
            say(f"== {ran.node}{f', exit status {ran.status}' if ran.status else ''}\n{ran.stdout}", nl=False)
            say(ran.stderr, err=True, nl=False)
    if output in DOCUMENTS:
        show_report(output, msgspec.to_builtins(found), "")
    return max(ran.status for ran in found)


def _in_nodes(place: Place, command: Sequence[str], environ: Mapping[str, str]) -> Iterator[_Ran]:
    """In all nodes at once; the results come in the nodes' order."""
    names = [node.name for node in ask(place, protocol.Ps()).nodes]
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        with ExitStack() as stack:  # Ctrl-C ends them all
            requests = [terminal.command(place, name, command, environ) for name in some]
            running = [stack.enter_context(closing(terminal.Captured(request))) for request in requests]
            for name, one in zip(some, running, strict=True):
                try:
                    status, stdout, stderr = one.result()
                except CannotRun as error:
                    status, stdout, stderr = error.status, "", f"{error}\n"
                yield _Ran(node=name, status=status, stdout=stdout, stderr=stderr)
