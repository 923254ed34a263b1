"""`weft lab ps`, `run`, `rm`, `ping`, `pingall`, `expose`, `unexpose` and `services`."""

import re
from functools import partial
from ipaddress import ip_address
from typing import Final

import click

from weft.lab import protocol, spec
from weft.lab.commands import show
from weft.lab.commands.choose import ask, find, lab_and_output, lab_option, nodes, nodes_and_pods, pods, within
from weft.lab.commands.choose import services as names
from weft.lab.places import Place
from weft.lab.report import LabReport, PingReport
from weft.lab.services.choice import NODE_PORTS
from weft.lab.spec import HostPort, Pod
from weft.model.errors import ConfigError, Problem
from weft.screen.documents import next_commands, output_with, show_report, watch_option
from weft.screen.groups import read_by

_PORT = click.IntRange(1, 65535)


@click.command()
@watch_option
@lab_option
@output_with("wide")
def ps(lab: str, output: str, *, watch: bool) -> None:
    """Show nodes with their leases, and pods with their addresses.

    With -o wide also processes, container ids and network namespaces: for `nsenter`, `ip netns` and plugins by hand.
    """
    place = find(lab)
    look, option = partial(ask, place, protocol.Ps()), within(place)

    def render(report: LabReport) -> tuple[LabReport, str]:
        return report, show.lab(report, wide=output == "wide")

    if watch:
        from weft.screen.documents import redraw

        redraw(output, look, render)
    report = look()
    show_report(output, *render(report))
    if len(report.pods) > 1:
        ping = f"weft lab ping{option} {report.pods[0].name} {report.pods[-1].name}"
        next_commands(output, ping, f"weft lab pingall{option}")
    elif report.nodes[0].subnets:
        next_commands(output, f"weft lab run{option} POD --node {report.nodes[0].name}")
    else:  # a bare node, which starts no pods
        next_commands(output, f"weft lab exec{option} {report.nodes[0].name} -- bash")


_ADDRESS: Final = read_by(lambda text: str(ip_address(text)) if text else "")


@click.command()
@click.argument("pod")
@click.option("--node", required=True, shell_complete=nodes, help="The node that it runs on.")
@click.option("--port", "ports", multiple=True, metavar="PORT:POD-PORT[/udp]", help="A port of the node leads to it.")
@click.option("--network", default="", metavar="NAME", help="A network of the node other than its first.")
@click.option("--ip", "address", default="", metavar="ADDRESS", callback=_ADDRESS, help="The address that it asks for.")
@lab_and_output
def run(pod: str, *, node: str, ports: tuple[str, ...], network: str, address: str, lab: str, output: str) -> None:
    """Start a pod: a process that holds its namespaces, attached by the node's plugins.

    \b
      weft lab run web --node node2
      weft lab run dns --node node1 --port 8080:80 --port 53:53/udp
      weft lab run db --node node1 --ip 10.244.1.100
      weft lab run far --node node1 --network second
    """
    place = find(lab)
    wanted = Pod(name=pod, node=node, ports=tuple(map(_host_port, ports)), network=network, ip=address)
    report, option = ask(place, protocol.Run(wanted)), within(place)
    show_report(output, report, f"pod {report.name} runs on {report.node}: {', '.join(report.addresses)}\n")
    next_commands(output, f"weft lab exec{option} {pod} -- ip address", f"weft lab rm{option} {pod}")


def _host_port(text: str) -> HostPort:
    """Reads `8080:80` or `53:53/udp`. `ConfigError`."""
    found = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,5})(/(?:tcp|udp))?", text)
    outside, inside = (0, 0) if found is None else (int(found[1]), int(found[2]))
    if found is None or not (0 < outside < 65536 and 0 < inside < 65536):
        expected = "a port of the node and one of the pod, from 1 to 65535, as 8080:80 or 53:53/udp"
        raise ConfigError(Problem("FLAG-001", "weft lab run --port", repr(text), expected=expected))
    return HostPort(outside=outside, inside=inside, protocol="UDP" if found[3] == "/udp" else "TCP")


@click.command("rm")
@click.argument("pod", shell_complete=pods)
@lab_and_output
def remove(pod: str, lab: str, output: str) -> None:
    """Detach a pod and end it."""
    place = find(lab)
    ask(place, protocol.Remove(pod))
    show_report(output, {"removed": pod}, f"pod {pod} is gone\n")
    next_commands(output, f"weft lab ps{within(place)}")


def _as_policies_say(place: Place, found: PingReport) -> PingReport:
    report = ask(place, protocol.Ps())
    if not report.policies:
        return found
    from weft.lab.allowed import pinged

    return pinged(found, report)


@click.command()
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B", shell_complete=nodes_and_pods)
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=3, show_default=True, help="How often.")
@lab_and_output
def ping(source: str, target: str, count: int, lab: str, output: str) -> int:
    """Ping from one pod or node to another, and show which address arrives there, or that policies refuse it."""
    wanted = protocol.Ping(source=source, target=target, count=count)
    place = find(lab)
    report, option = _as_policies_say(place, ask(place, wanted)), within(place)
    show_report(output, report, show.ping(report))
    next_commands(output, f"weft lab capture{option} {source} --out packets.pcapng", f"weft lab ps{option}")
    return 0 if report.reached == report.tried else 1


@click.command()
@lab_and_output
def pingall(lab: str, output: str) -> int:
    """Ping from every pod and every node to every pod; fails unless all arrive with the source's own address.

    In a lab with policies, what they forbid has to be lost.
    """
    place = find(lab)
    report, option = _as_policies_say(place, ask(place, protocol.PingAll())), within(place)
    show_report(output, report, show.pingall(report))
    broken = next((cell for cell in report.cells if cell.fault), None)
    if broken is None:
        return 0
    next_commands(output, f"weft lab trace{option} {broken.source} {broken.target}", f"weft lab check{option}")
    return 1


@click.command()
@click.argument("name")
@click.argument("chosen", metavar="POD…", nargs=-1, required=True, shell_complete=pods)
@click.option("--port", type=_PORT, required=True, help="The port of its address.")
@click.option("--target-port", type=_PORT, help="The port of the pods: the same by default.")
@click.option("--node-port", type=click.IntRange(*NODE_PORTS), help="A port of every node that leads to it.")
@click.option("--cluster-ip", multiple=True, metavar="ADDRESS", help="Its address, of each family; else chosen.")
@click.option("--udp", is_flag=True, help="Datagrams instead of TCP.")
@lab_and_output
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
    """Make a Service NAME: its address, and with --node-port a port of every node, lead to one of the PODs, at random.

    A POD that ends in * means all pods whose names begin so, those that are yet to come, too. Nodes and pods know the
    Service by its name.

    \b
      weft lab expose web --port 80 --target-port 8080 pod1-1 pod2-1
      weft lab expose web --port 80 --node-port 30080 'pod*'
      weft lab expose dns --port 53 --udp pod1-2

    Exits 2 if there can be no such Service; nothing has changed then.
    """
    wanted = spec.Service(
        name=name,
        port=port,
        target_port=target_port or port,
        pods=chosen,
        protocol="UDP" if udp else "TCP",
        addresses=cluster_ip,
        node_port=node_port or 0,
    )
    place = find(lab)
    report, option = ask(place, protocol.Expose(wanted)), within(place)
    show_report(output, report, show.services([report]))
    next_commands(output, f"weft lab services{option}", f"weft lab unexpose{option} {name}")


@click.command()
@lab_and_output
def services(lab: str, output: str) -> None:
    """Show Services: their addresses and ports, and the pods that they lead to now."""
    place = find(lab)
    report = ask(place, protocol.Ps())
    show_report(output, report.services, show.services(report.services))
    if not report.services:
        pod = report.pods[0].name if report.pods else "POD"
        next_commands(output, f"weft lab expose{within(place)} web --port 80 {pod}")


@click.command()
@click.argument("name", shell_complete=names)
@lab_and_output
def unexpose(name: str, lab: str, output: str) -> None:
    """End a Service."""
    place = find(lab)
    ask(place, protocol.Unexpose(name))
    show_report(output, {"unexposed": name}, f"Service {name} is gone\n")
    next_commands(output, f"weft lab services{within(place)}")
