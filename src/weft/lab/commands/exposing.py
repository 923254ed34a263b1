"""`weft lab expose`, `services` and `unexpose`: Services of a lab."""

import click

from weft.lab import protocol, spec
from weft.lab.commands import show, start
from weft.lab.commands.choose import ask, base, lab_option, pods, within
from weft.lab.commands.choose import services as names
from weft.lab.report import LabReport, Nothing, ServiceReport
from weft.lab.services.choice import NODE_PORTS
from weft.screen.documents import next_commands, output_option, show_report

_PORT = click.IntRange(1, 65535)


@click.command()
@click.argument("name")
@click.argument("chosen", metavar="POD…", nargs=-1, required=True, shell_complete=pods)
@click.option("--port", type=_PORT, required=True, help="The port of its address.")
@click.option("--target-port", type=_PORT, help="The port of the pods: the same by default.")
@click.option("--node-port", type=click.IntRange(*NODE_PORTS), help="A port of every node that leads to it.")
@click.option("--cluster-ip", multiple=True, metavar="ADDRESS", help="Its address, of each family; else chosen.")
@click.option("--udp", is_flag=True, help="Datagrams instead of TCP.")
@lab_option
@output_option
def expose(
    name: str,
    chosen: tuple[str, ...],
    *,
    port: int,
    target_port: int | None,
    node_port: int | None,
    cluster_ip: tuple[str, ...],
    udp: bool,
    lab: str,
    output: str,
) -> None:
    """Begin a Service NAME: its address, and with --node-port a port of every node, lead to one of the PODs, by chance.

    A POD that ends in * means all pods whose names begin so, those that are yet to come, too. Nodes and pods know the
    Service by its name.

    \b
      weft lab expose web --port 80 --target-port 8080 pod1-1 pod2-1
      weft lab expose web --port 80 --node-port 30080 'pod*'
      weft lab expose dns --port 53 --udp pod1-2

    Exits 2 if there can be no such Service; nothing has changed then.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    wanted = spec.Service(
        name=name,
        port=port,
        target_port=target_port or port,
        pods=chosen,
        protocol="UDP" if udp else "TCP",
        addresses=cluster_ip,
        node_port=node_port or 0,
    )
    place = start.find(base(), lab)
    report, option = ask(place, protocol.Expose(wanted), ServiceReport), within(place)
    show_report(output, report, show.services([report]))
    next_commands(output, f"weft lab services{option}", f"weft lab unexpose{option} {name}")


@click.command()
@lab_option
@output_option
def services(lab: str, output: str) -> None:
    """Show Services: their addresses and ports, and the pods that they lead to now."""
    place = start.find(base(), lab)
    report = ask(place, protocol.Ps(), LabReport)
    show_report(output, report.services, show.services(report.services))
    if not report.services:
        pod = report.pods[0].name if report.pods else "POD"
        next_commands(output, f"weft lab expose{within(place)} web --port 80 {pod}")


@click.command()
@click.argument("name", shell_complete=names)
@lab_option
@output_option
def unexpose(name: str, lab: str, output: str) -> None:
    """End a Service."""
    place = start.find(base(), lab)
    ask(place, protocol.Unexpose(name), Nothing)
    show_report(output, {"unexposed": name}, f"Service {name} is gone\n")
    next_commands(output, f"weft lab services{within(place)}")
