"""`weft lab …`: arguments in, reports out. What a lab is and does is elsewhere; here stands what people see.

Labs as a whole are in `lifecycle`; this is what is done in one.
"""

import os
from typing import Final

import click

from weft.lab import protocol
from weft.lab.commands import (
    breaking,
    capture,
    checking,
    exposing,
    lifecycle,
    links,
    show,
    start,
    stopping,
    terminal,
    tracing,
)
from weft.lab.commands.choose import ask, base, lab_option, nodes, nodes_and_pods, pods, within
from weft.lab.commands.speak import next_commands, output_option, show_report
from weft.lab.report import LabReport, Nothing, PingReport, PodReport
from weft.model.errors import ConfigError, Problem

_PASSED: Final = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LS_COLORS")


@click.group()
def lab() -> None:
    """A multi-node cluster network on this machine.

    Real daemons and real plugins on a real etcd, in namespaces that end with the lab. The machine's own network,
    rules and settings stay untouched.
    """


for command in (
    lifecycle.up,
    lifecycle.down,
    lifecycle.list_labs,
    lifecycle.clean,
    breaking.break_node,
    tracing.trace,
    checking.check,
    capture.capture,
    exposing.expose,
    exposing.services,
    exposing.unexpose,
    links.link,
    links.partition,
    links.heal,
    stopping.stop,
    stopping.start_again,
    stopping.restart,
    stopping.kill,
):
    lab.add_command(command)


@lab.command()
@lab_option
@output_option
def ps(lab: str, output: str) -> None:
    """Show nodes with their leases, and pods with their addresses."""
    place = start.find(base(), lab)
    report, option = ask(place, protocol.Ps(), LabReport), within(place)
    show_report(output, report, show.lab(report))
    if len(report.pods) > 1:
        ping = f"weft lab ping{option} {report.pods[0].name} {report.pods[-1].name}"
        next_commands(output, ping, f"weft lab pingall{option}")
    else:
        next_commands(output, f"weft lab run{option} POD --node {report.nodes[0].name}")


@lab.command()
@click.argument("pod")
@click.option("--node", required=True, shell_complete=nodes, help="The node that it runs on.")
@lab_option
@output_option
def run(pod: str, node: str, lab: str, output: str) -> None:
    """Start a pod: a process that holds its namespaces, attached by the node's plugins."""
    place = start.find(base(), lab)
    report, option = ask(place, protocol.Run(pod=pod, node=node), PodReport), within(place)
    show_report(output, report, f"pod {report.name} runs on {report.node}: {', '.join(report.addresses)}\n")
    next_commands(output, f"weft lab exec{option} {pod} -- ip address", f"weft lab rm{option} {pod}")


@lab.command("rm")
@click.argument("pod", shell_complete=pods)
@lab_option
@output_option
def remove(pod: str, lab: str, output: str) -> None:
    """Detach a pod and end it."""
    place = start.find(base(), lab)
    ask(place, protocol.Remove(pod), Nothing)
    show_report(output, {"removed": pod}, f"pod {pod} is gone\n")
    next_commands(output, f"weft lab ps{within(place)}")


class _Exec(click.Command):
    """Options end at `--`; without it, at NODE, so that `exec node1 ls -l` is what it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does."""
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@lab.command("exec", cls=_Exec, context_settings={"ignore_unknown_options": True})
@lab_option
@output_option
@click.argument("where", metavar="NODE|POD", shell_complete=nodes_and_pods)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def execute(where: str, command: tuple[str, ...], lab: str, output: str) -> int:
    """Run a command in a node or a pod; its exit status is ours.

    It sees the node's network, files and processes: not only, as with `ip netns exec`, the network. It has our
    standard input, and a terminal if we have one. 126 is the status of what cannot be executed, 127 of what is not
    there.
    """
    if where.startswith("-"):  # no option of ours, and no name begins so
        hint = "Leave it out: the command gets standard input, and a terminal where there is one."
        where, seen = "weft lab exec", f"no such option: {where}"
        raise ConfigError(Problem(code="FLAG-001", where=where, seen=seen, expected="NODE|POD -- COMMAND", hint=hint))
    place = start.find(base(), lab)
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    request = terminal.command(place, where, command, environ)
    if output == "text":
        return terminal.run(request)
    status, stdout, stderr = terminal.captured(request)
    show_report(output, {"status": status, "stdout": stdout, "stderr": stderr}, "")
    return status


@lab.command()
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B", shell_complete=nodes_and_pods)
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=3, show_default=True, help="How often.")
@lab_option
@output_option
def ping(source: str, target: str, count: int, lab: str, output: str) -> int:
    """Ping from one pod or node to another, and show which address arrives there."""
    wanted = protocol.Ping(source=source, target=target, count=count)
    place = start.find(base(), lab)
    report, option = ask(place, wanted, PingReport), within(place)
    show_report(output, report, show.ping(report))
    next_commands(output, f"weft lab capture{option} {source} --out packets.pcapng", f"weft lab ps{option}")
    return 0 if report.reached == report.tried else 1


@lab.command()
@lab_option
@output_option
def pingall(lab: str, output: str) -> int:
    """Ping from every pod and every node to every pod; fails unless all arrive with the source's own address."""
    place = start.find(base(), lab)
    report, option = ask(place, protocol.PingAll(), PingReport), within(place)
    show_report(output, report, show.pingall(report))
    if report.reached == report.tried:
        return 0
    broken = next(cell for cell in report.cells if cell.fault)
    look = f"weft lab exec{option} {broken.source} -- ip route get {broken.address}"
    next_commands(output, look, f"weft lab logs{option} NODE")
    return 1


@lab.command()
@click.argument("node", metavar="NODE|etcd|supervisor", shell_complete=nodes)
@lab_option
@output_option
def logs(node: str, lab: str, output: str) -> None:
    """Print what a node's daemon, the store or the lab's supervisor has logged."""
    place = start.find(base(), lab)
    names = {path.stem: path for path in place.logs.iterdir()}
    if node not in names:
        expected = f"one of {', '.join(sorted(names))}"
        raise ConfigError(Problem(code="LAB-002", where="weft lab logs", seen=f"no log {node!r}", expected=expected))
    text = names[node].read_text(errors="replace")
    show_report(output, {"name": node, "lines": text.splitlines()}, text)


@lab.command()
def demo() -> None:
    """Show a pod network at work: a packet, the entries that led it, a repair; about ten seconds."""
    from weft.lab.commands import demo as story

    story.run(base(), os.environ)
