"""`weft doctor`: what is wrong with this node, by name, and what mends it.

`--fix` runs each command by its words, never by a shell. After one that failed, the rest of its finding is not run.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from weft.beside.programs import run_here
from weft.diag.bundle.offline import bundle_at
from weft.diag.check.proof import examined
from weft.diag.checks import CHECKS
from weft.diag.doctor import forms
from weft.diag.finding import Command, Diagnosis, Finding, ask
from weft.diag.options import NAMES, place_options, places_of
from weft.diag.sight.listings import ENVIRON
from weft.diag.sight.node import Sight
from weft.model.errors import ConfigError, Problem
from weft.model.text import counted, one_line
from weft.screen.documents import document, output_with, show_report
from weft.screen.groups import FROM, need_root
from weft.screen.say import say

_SECONDS: Final = 60.0  # for a command that mends: firewalld reads all of its configuration again
_MOST: Final = 1 << 20  # bytes of what one prints


@click.command()
@output_with("junit", "sarif")
@click.option("-v", "--verbose", is_flag=True, help="Name the checks that found nothing, too.")
@click.option("--fix", is_flag=True, help="Show the commands that mend what was found, ask, run them, and look again.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@place_options
@FROM
def doctor(output: str, *, verbose: bool, fix: bool, yes: bool, file: Path | None, **where: Any) -> int:
    """Examine this node and say what is wrong with its pod network, and what mends it.

    It sees the kernel, the firewall, the runtime's configuration, the daemon's own state if weftd runs, and asks each
    peer for an echo. It changes nothing without --fix. It serves nodes with flannel's daemon, or with plugins alone, as
    well.

    \b
      weft doctor
      weft doctor -v
      weft doctor --fix
      weft doctor -o json | jq -r '.findings[].code'
      weft lab exec node1 weft doctor
      weft doctor --from weft-bundle-node1.tar.gz

    Exits 0 when no fault was found, 3 when one was; warnings do not count. With --fix, what is left counts.
    """
    if (fix and output != "text") or (yes and not fix):
        raise click.UsageError("--fix works with text output only; --yes needs --fix")
    sight = _sight(where) if file is None else bundle_at(file, *NAMES, "fix").sight
    diagnosis = ask(CHECKS, sight)
    show_report(
        output,
        forms.report(diagnosis, sight.proof),
        "".join(f"{one_line(line)}\n" for line in forms.lines(diagnosis, sight.proof, verbose=verbose)),
        junit=lambda: forms.junit(diagnosis),
        sarif=lambda: document("json", forms.sarif(diagnosis)),
    )
    planned = plan_fixes(diagnosis.findings) if fix else []
    if planned and agreed(planned, yes=yes):
        for line in run_fixes(planned):
            say(one_line(line))
        diagnosis = _mended(diagnosis, _sight(where))
    elif fix and not planned and diagnosis.findings:
        say("no finding has a command that is certain to mend it")
    return 0 if diagnosis.is_well else 3


def _mended(before: Diagnosis, sight: Sight) -> Diagnosis:
    after = ask(CHECKS, sight)
    left = {(each.problem.code, each.problem.where) for each in after.findings}
    for finding in before.findings:
        if (finding.problem.code, finding.problem.where) not in left:
            say(one_line(f"mended   {finding.problem.code} {finding.problem.where}"))
    for line in forms.lines(after, sight.proof, verbose=False):
        say(one_line(line))
    return after


def _sight(where: dict[str, Any]) -> Sight:
    need_root("weft doctor")
    return examined(places_of(where))


def plan_fixes(findings: Iterable[Finding]) -> list[Finding]:
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
        raise ConfigError(Problem("FLAG-001", "weft doctor --fix", seen, hint="Say --yes to agree"))
    count = sum(len(finding.fix) for finding in planned)
    return click.confirm(f"Run {counted(count, 'command')}?", default=False)


def run_fixes(planned: Iterable[Finding]) -> Iterator[str]:
    for finding in planned:
        for command in finding.fix:
            failed = _run(command)
            yield f"{'failed  ' if failed else 'done    '} {command}{f': {failed}' if failed else ''}"
            if failed:
                break


def _run(command: Command) -> str:
    try:
        ran = run_here(command.words, environ=ENVIRON, seconds=_SECONDS, most=_MOST)
    except OSError as error:
        return str(error.strerror)
    return f"exit {ran.status}: {' '.join(ran.err.decode(errors='replace').split())[:200]}" if ran.status else ""
