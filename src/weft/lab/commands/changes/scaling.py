"""`weft lab scale`: more nodes, or fewer, in a lab that is up."""

import click

from weft.lab import changes, spec
from weft.lab.commands import show, start
from weft.lab.commands.choose import base, lab_option, within
from weft.lab.protocol import Call
from weft.lab.report import LabReport
from weft.screen.documents import Progress, next_commands, output_option, show_report


@click.command()
@click.argument("nodes", type=click.IntRange(1, spec.MOST_NODES))
@click.option("--pods", type=click.IntRange(0, spec.MOST_PODS), help="Pods on each new node: as the first, by default.")
@lab_option
@output_option
def scale(nodes: int, *, pods: int | None, lab: str, output: str) -> None:
    """Have NODES nodes in a lab: new ones join it, or the last ones leave it.

    A node that leaves takes along its pods, its daemon, its link and its lease: all others forget it. One that comes
    later in its place is another machine, with a lease of its own.

    \b
      weft lab scale 5
      weft lab scale 5 --pods 0
      weft lab scale 2
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = start.find(base(), lab)
    progress = Progress(output)
    call = Call(place.socket, changes.Scale(nodes=nodes, pods=pods))
    try:
        report = call.result(LabReport, note=progress)
    finally:
        call.close()
        start.name_nodes(place, progress)  # also when some nodes have left and the next could not
        progress.done()
    show_report(output, report, show.lab(report))
    option = within(place)
    next_commands(output, f"weft lab pingall{option}", f"weft lab ps{option}")
