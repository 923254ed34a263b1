"""What `weft doctor --fix` does: shows the commands that mend what was found, asks, and runs them one after the other.

Each is run by its words, never by a shell. What a finding needs after a command that failed is not run.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click

from weft.beside.programs import run_here
from weft.diag.finding import Command, Finding
from weft.diag.sight.look import ENVIRON
from weft.model.errors import ConfigError, Problem
from weft.model.text import counted, one_line
from weft.screen.say import say

_SECONDS: Final = 60.0  # firewalld reads all of its configuration again
_MOST: Final = 1 << 20  # bytes of what it prints


def plan(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that have commands. A command that several have stays in the first."""
    known = set[Command]()
    planned = list[Finding]()
    for finding in findings:
        fresh = tuple(command for command in finding.fix if command not in known)
        known.update(fresh)
        if fresh:
            planned.append(Finding(problem=finding.problem, weight=finding.weight, fix=fresh))
    return planned


def shown(planned: Iterable[Finding]) -> Iterator[str]:
    """The plan in lines for people."""
    for finding in planned:
        yield f"{finding.problem.code} {finding.problem.where}: {finding.problem.seen}"
        yield from (f"  {command}  # {command.does}" for command in finding.fix)


def agreed(planned: list[Finding], *, yes: bool) -> bool:
    """Show the plan, and ask. Raises `ConfigError` where nobody can be asked."""
    for line in shown(planned):
        say(one_line(line))
    if yes:
        return True
    if not sys.stdin.isatty():
        seen = "standard input is no terminal, so nobody can be asked"
        raise ConfigError(Problem(code="FLAG-001", where="weft doctor --fix", seen=seen, hint="Say --yes to agree"))
    count = sum(len(finding.fix) for finding in planned)
    return click.confirm(f"Run {counted(count, 'command')}?", default=False)


def run(planned: Iterable[Finding]) -> Iterator[str]:
    """Run the plan. Yields a line for each command with its result."""
    for finding in planned:
        for command in finding.fix:
            failed = _run(command)
            yield f"{'failed  ' if failed else 'done    '} {command}{f': {failed}' if failed else ''}"
            if failed:
                break


def _run(command: Command) -> str:
    """Why a command failed; empty if it did not."""
    try:
        ran = run_here(command.words, environ=ENVIRON, seconds=_SECONDS, most=_MOST)
    except OSError as error:
        return str(error.strerror)
    return f"exit {ran.status}: {' '.join(ran.err.decode(errors='replace').split())[:200]}" if ran.status else ""
