"""`weft lab status`: what the daemons of a lab's nodes say of themselves, side by side."""

from functools import partial

import click

from weft.lab import protocol
from weft.lab.commands import overview, start
from weft.lab.commands.choose import ask, base, lab_option, within
from weft.lab.places import Place
from weft.lab.report import LabReport, StatesReport
from weft.model.node.nodestate import NodeState
from weft.screen.beside import next_commands
from weft.screen.documents import output_option, show_report, watch_option
from weft.screen.watching import redraw


@click.command()
@watch_option
@lab_option
@output_option
def status(lab: str, output: str, *, watch: bool) -> int:
    """Show how the daemon of each node is: ready or why not, its lease, peers, repairs and plugins' calls.

    LEASE is how long the lease still lasts if nothing renews it, PEERS how many of the other nodes are served, REPAIRS
    how often what another program had changed was put right, CALLS and FAILED are plugins' calls.

    \b
      weft lab status
      weft lab status -w
      weft lab status -o json | jq '.node1.loops[].repairs'

    Exits 0 when all nodes are ready, 1 when one is not.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = start.find(base(), lab)
    if watch:
        redraw(output, partial(_look, place), _render)
    report, states = _look(place)
    show_report(output, *_render((report, states)))
    bad = [node.name for node in report.nodes if node.daemon != "ready"]
    if bad:
        option = within(place)
        next_commands(output, f"weft lab exec{option} {bad[0]} weft doctor", f"weft lab logs{option} {bad[0]}")
    return 1 if bad else 0


def _look(place: Place) -> tuple[LabReport, StatesReport]:
    return ask(place, protocol.Ps(), LabReport), ask(place, protocol.States(), StatesReport)


def _render(seen: tuple[LabReport, StatesReport]) -> tuple[dict[str, NodeState | None], str]:
    report, states = seen
    return states.states, overview.text(report, states.states)
