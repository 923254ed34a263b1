"""`weft lab config`: the network configuration of a lab that is up, and another one in its place."""

import sys
from pathlib import Path

import click

from weft.lab import changes, protocol
from weft.lab.commands import start
from weft.lab.commands.choose import ask, base, hand_down, lab_option, within
from weft.lab.links import DAEMON
from weft.lab.report import LabReport
from weft.screen.documents import document, next_commands, output_option, show_report
from weft.screen.groups import Group


@click.group(cls=Group, invoke_without_command=True)
@lab_option
@output_option
@click.pass_context
def config(ctx: click.Context, lab: str, output: str) -> None:
    """Show the network configuration that the store holds now, as JSON.

    \b
      weft lab config
      weft lab config >net-conf.json
      weft lab config set net-conf.json
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    hand_down(ctx)
    if ctx.invoked_subcommand is None:
        report = ask(start.find(base(), lab), protocol.Ps(), LabReport)
        show_report(output, report.network, document("json", report.network))


@config.command("set")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@lab_option
@output_option
def put(file: Path, lab: str, output: str) -> None:
    """Put the network configuration of a FILE into the store; - is standard input.

    It is checked first: a wrong one changes nothing. Each daemon says that it has seen it (CONF-001), and takes it when
    it starts again.

    \b
      weft lab config set net-conf.json
      weft lab config | jq '.Backend.Type = "host-gw"' | weft lab config set -
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    piped = str(file) == "-"
    text = sys.stdin.read() if piped else file.read_text(errors="replace")
    place = start.find(base(), lab)
    wanted = changes.Configure(network=text, where="standard input" if piped else str(file))
    report, option = ask(place, wanted, LabReport), within(place)
    show_report(output, report, f"lab {place.name}: the store holds {report.backend} now\n")
    daemons = " ".join(f"{node.name}/{DAEMON}" for node in report.nodes)
    next_commands(
        output, f"weft lab exec{option} {report.nodes[0].name} -- weft plan", f"weft lab restart{option} {daemons}"
    )
