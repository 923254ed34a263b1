"""`weft lab config`, `scale`, `stop`, `start`, `restart` and `kill`: a lab is changed while it runs."""

import sys
from pathlib import Path

import click

from weft.lab import protocol, spec
from weft.lab.call import Call
from weft.lab.commands import show, start
from weft.lab.commands.choose import ask, find, hand_down, lab_and_output, things, within
from weft.lab.links import DAEMON
from weft.lab.protocol import Verb
from weft.screen.documents import Progress, document, next_commands, show_report
from weft.screen.groups import Group

_THINGS = click.argument("things", nargs=-1, required=True, metavar="NODE|NODE/weftd|store …", shell_complete=things)


@click.group(cls=Group, invoke_without_command=True)
@lab_and_output
@click.pass_context
def config(ctx: click.Context, lab: str, output: str) -> None:
    """Show the network configuration that the store holds now, as JSON.

    \b
      weft lab config
      weft lab config >net-conf.json
      weft lab config set net-conf.json
    """
    hand_down(ctx)
    if ctx.invoked_subcommand is None:
        report = ask(find(lab), protocol.Ps())
        show_report(output, report.network, document("json", report.network))


@config.command("set")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@lab_and_output
def put(file: Path, lab: str, output: str) -> None:
    """Put the network configuration of a FILE into the store; - is standard input.

    It is checked first: a wrong one changes nothing. Each daemon says that it has seen it (CONF-001), and takes it when
    it starts again.

    \b
      weft lab config set net-conf.json
      weft lab config | jq '.Backend.Type = "host-gw"' | weft lab config set -
    """
    piped = str(file) == "-"
    text = sys.stdin.read() if piped else file.read_text(errors="replace")
    place = find(lab)
    wanted = protocol.Configure(network=text, where="standard input" if piped else str(file))
    report, option = ask(place, wanted), within(place)
    show_report(output, report, f"lab {place.name}: the store holds {report.backend} now\n")
    daemons = " ".join(f"{node.name}/{DAEMON}" for node in report.nodes)
    next_commands(
        output, f"weft lab exec{option} {report.nodes[0].name} -- weft plan", f"weft lab restart{option} {daemons}"
    )


@click.command()
@click.argument("nodes", type=click.IntRange(1, spec.MOST_NODES))
@click.option("--pods", type=click.IntRange(0, spec.MOST_PODS), help="Pods on each new node: as the first, by default.")
@lab_and_output
def scale(nodes: int, *, pods: int | None, lab: str, output: str) -> None:
    """Set the number of nodes of a lab: new ones join it, or the last ones leave it.

    A node that leaves takes along its pods, its daemon, its link and its lease: all others forget it. One that comes
    later in its place is another machine, with a lease of its own.

    \b
      weft lab scale 5
      weft lab scale 5 --pods 0
      weft lab scale 2
    """
    place = find(lab)
    progress = Progress(output)
    call = Call(place.socket, protocol.Scale(nodes=nodes, pods=pods))
    try:
        report = call.result(note=progress)
    finally:
        call.close()
        start.name_nodes(place, progress)  # also when some nodes have left and the next could not
        progress.done()
    show_report(output, report, show.lab(report))
    option = within(place)
    next_commands(output, f"weft lab pingall{option}", f"weft lab ps{option}")


def _turn(verb: Verb, things: tuple[str, ...], lab: str, output: str) -> int:
    place = find(lab)
    report = ask(place, protocol.Turn(verb=verb, things=list(things)))
    show_report(output, report, show.things(report))
    option = within(place)
    if verb in ("stop", "kill"):
        next_commands(output, f"weft lab pingall{option}", f"weft lab start{option} {' '.join(things)}")
    else:
        next_commands(output, f"weft lab ps{option}")
    return 0 if report.well else 1


@click.command("stop")
@_THINGS
@lab_and_output
def stop(things: tuple[str, ...], lab: str, output: str) -> int:
    """Stop nodes, daemons or the store, and wait until they have ended.

    A node that is stopped has no link and no daemon, as if its machine were off; its pods stay. `NODE/weftd` is its
    daemon alone. They are asked to end (SIGTERM).

    \b
      weft lab stop node2
      weft lab stop node1/weftd
      weft lab stop store
    """
    return _turn("stop", things, lab, output)


@click.command("start")
@_THINGS
@lab_and_output
def start_again(things: tuple[str, ...], lab: str, output: str) -> int:
    """Start nodes, daemons or the store that do not run, and wait until they are ready.

    Of a node, its link goes up and its daemon starts. The exit status is 1 if one is not ready after ten seconds.

    \b
      weft lab start node2
      weft lab start node1/weftd store
    """
    return _turn("start", things, lab, output)


@click.command("restart")
@_THINGS
@lab_and_output
def restart(things: tuple[str, ...], lab: str, output: str) -> int:
    """Stop nodes, daemons or the store, start them again, and wait until they are ready.

    The exit status is 1 if one is not ready after ten seconds.

    \b
      weft lab restart node1/weftd
      weft lab restart store
    """
    return _turn("restart", things, lab, output)


@click.command("kill")
@_THINGS
@lab_and_output
def kill(things: tuple[str, ...], lab: str, output: str) -> int:
    """Kill nodes, daemons or the store (SIGKILL): they end at once and say nothing.

    A node that is killed loses its link first, as at a power cut; its pods stay.

    \b
      weft lab kill node2
      weft lab kill node1/weftd
      weft lab kill store
    """
    return _turn("kill", things, lab, output)
