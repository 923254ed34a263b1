"""`weft lab stop`, `start`, `restart` and `kill`: nodes, their daemons and the store, while the lab runs."""

import click

from weft.lab import changes
from weft.lab.changes import Verb
from weft.lab.commands import show, start
from weft.lab.commands.choose import ask, base, lab_option, things, within
from weft.lab.report import TurnReport
from weft.screen.documents import next_commands, output_option, show_report

_THINGS = click.argument("things", nargs=-1, required=True, metavar="NODE|NODE/weftd|store …", shell_complete=things)


def _turn(verb: Verb, things: tuple[str, ...], lab: str, output: str) -> int:
    place = start.find(base(), lab)
    report = ask(place, changes.Turn(verb=verb, things=list(things)), TurnReport)
    show_report(output, report, show.things(report))
    option = within(place)
    if verb in ("stop", "kill"):
        next_commands(output, f"weft lab pingall{option}", f"weft lab start{option} {' '.join(things)}")
    else:
        next_commands(output, f"weft lab ps{option}")
    return 0 if report.well else 1


@click.command("stop")
@_THINGS
@lab_option
@output_option
def stop(things: tuple[str, ...], lab: str, output: str) -> int:
    """Stop nodes, daemons or the store, and wait until they have ended.

    A node that is stopped has no link and no daemon, as if its machine were off; its pods stay. `NODE/weftd` is its
    daemon alone. They are asked to end (SIGTERM).

    \b
      weft lab stop node2
      weft lab stop node1/weftd
      weft lab stop store
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    return _turn("stop", things, lab, output)


@click.command("start")
@_THINGS
@lab_option
@output_option
def start_again(things: tuple[str, ...], lab: str, output: str) -> int:
    """Start nodes, daemons or the store that do not run, and wait until they are ready.

    Of a node, its link goes up and its daemon starts. The exit status is 1 if one is not ready after ten seconds.

    \b
      weft lab start node2
      weft lab start node1/weftd store
    """  # noqa: D301 - as above
    return _turn("start", things, lab, output)


@click.command("restart")
@_THINGS
@lab_option
@output_option
def restart(things: tuple[str, ...], lab: str, output: str) -> int:
    """Stop nodes, daemons or the store, start them again, and wait until they are ready.

    The exit status is 1 if one is not ready after ten seconds.

    \b
      weft lab restart node1/weftd
      weft lab restart store
    """  # noqa: D301 - as above
    return _turn("restart", things, lab, output)


@click.command("kill")
@_THINGS
@lab_option
@output_option
def kill(things: tuple[str, ...], lab: str, output: str) -> int:
    """Kill nodes, daemons or the store (SIGKILL): they end at once and say nothing.

    A node that is killed loses its link first, as at a power cut; its pods stay.

    \b
      weft lab kill node2
      weft lab kill node1/weftd
      weft lab kill store
    """  # noqa: D301 - as above
    return _turn("kill", things, lab, output)
