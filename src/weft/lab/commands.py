"""`weft lab …`: arguments in, reports out. What a lab is and does is elsewhere; here stands what people see."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click
from click.shell_completion import CompletionItem

from weft.lab import places, protocol, show, spec, start, terminal
from weft.lab.places import Place
from weft.lab.protocol import Call
from weft.lab.report import LabReport, Nothing, PingReport, PodReport
from weft.lab.speaking import Command, Progress, next_commands, output_option, show_report
from weft.model.errors import ConfigError, Problem, WeftError
from weft.model.table import table

T = TypeVar("T")

_DEFAULT: Final = "weft"  # the name of a lab that was given none
_PASSED: Final = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LS_COLORS")


def base() -> Path:
    """Return where this user's labs are."""
    return places.home(os.environ)


def ask(place: Place, request: protocol.Request, kind: type[T]) -> T:
    """Ask a lab, and wait for the report."""
    call = Call(place.socket, request)
    try:
        return call.result(kind)
    finally:
        call.close()


# --- What the commands have in common --------------------------------------------------------------------------


def _labs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [place.name for place in places.found(base())]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _complete(*kinds: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a completer for names of nodes, pods or both."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            report = ask(start.find(base(), ctx.params.get("lab") or ""), protocol.Ps(), LabReport)
        except (WeftError, OSError):
            return []  # there is nothing to complete, and no place to say why
        nodes = [CompletionItem(node.name, help="node") for node in report.nodes if "node" in kinds]
        pods = [CompletionItem(pod.name, help=f"pod on {pod.node}") for pod in report.pods if "pod" in kinds]
        return [item for item in (*nodes, *pods) if str(item.value).startswith(incomplete)]

    return complete


_node: Final = _complete("node")
_pod: Final = _complete("pod")
_any: Final = _complete("node", "pod")


def _which(command: Command) -> Command:
    option = click.option(
        "-l", "--lab", default="", metavar="LAB", shell_complete=_labs, help="Which lab; not needed while there is one."
    )
    return option(command)


def _within(place: Place) -> str:
    """Return how later commands name this lab: not at all while there is but the usual one."""
    others = any(other.alive and other.name != place.name for other in places.found(base()))
    return f" --lab {place.name}" if others or place.name != _DEFAULT else ""


# --- The commands ----------------------------------------------------------------------------------------------


@click.group()
def lab() -> None:
    """A multi-node cluster network on this machine.

    Real daemons and real plugins on a real etcd, in namespaces that end with the lab. The machine's own network,
    rules and settings stay untouched.
    """


@lab.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--nodes", type=click.IntRange(1, spec.MOST_NODES), help="How many nodes: 3 if not told.")
@click.option("--pods", type=click.IntRange(0, spec.MOST_PODS), help="How many pods on each node: 2 if not told.")
@click.option("--backend", help="vxlan, host-gw, …: vxlan if not told.")
@click.option("--family", type=click.Choice(list(spec.FAMILIES)), help="IPv4, IPv6 or both: 4 if not told.")
@click.option("--nft", is_flag=True, help="Rules by nft instead of iptables (EnableNFTables).")
@click.option("--name", default="", help=f"The lab's name: the file's, or {_DEFAULT}.")
@output_option
def up(
    file: Path | None,
    *,
    nodes: int | None,
    pods: int | None,
    backend: str | None,
    family: str | None,
    nft: bool,
    name: str,
    output: str,
) -> None:
    """Start a lab, from options or from a FILE, and wait until every pod runs."""
    from weft.lab import labfile

    if name and (problems := spec.name_problem("a lab", "--name", name)):
        raise ConfigError(*problems)
    if file is not None:
        given = {"--nodes": nodes, "--pods": pods, "--backend": backend, "--family": family, "--nft": nft or None}
        if clash := [option for option, value in given.items() if value is not None]:
            seen = f"{', '.join(clash)} beside {file}"
            raise ConfigError(
                Problem(code="LAB-001", where="weft lab up", seen=seen, expected="either options or a file")
            )
        wanted = labfile.read(file.read_text(errors="replace"), str(file), name=name)
    else:
        wanted = labfile.regular(
            name=name or _DEFAULT,
            backend=backend or "vxlan",
            families=spec.FAMILIES[family or "4"],
            nft=nft,
            nodes=3 if nodes is None else nodes,
            pods=2 if pods is None else pods,
        )
    progress = Progress(output)
    try:
        report = start.up(wanted, base(), os.environ, note=progress)
    except KeyboardInterrupt:
        if output == "text":
            click.echo("\ninterrupted: nothing of the lab is left", err=True)
        raise
    finally:
        progress.done()
    show_report(output, report, show.lab(report))
    first, within = report.nodes[0].name, _within(places.make(base(), wanted.name))
    down = f"weft lab down{within.removeprefix(' --lab')}"
    next_commands(output, f"weft lab pingall{within}", f"weft lab exec{within} {first} -- ip route", down)


@lab.command()
@click.argument("name", default="", metavar="[LAB]", shell_complete=_labs)
@output_option
def down(name: str, output: str) -> None:
    """End a lab and all that is in it."""
    place = start.find(base(), name)
    start.down(place)
    show_report(output, {"down": place.name}, f"lab {place.name} is down\n")


@lab.command("list")
@output_option
def list_labs(output: str) -> None:
    """List the labs there are, also those whose supervisor was killed."""
    labs = [
        {"name": place.name, "state": "up" if place.alive else "dead", "pid": place.pid}
        for place in places.found(base())
    ]
    text = table(("LAB", "STATE", "PID"), ((str(lab["name"]), str(lab["state"]), str(lab["pid"])) for lab in labs))
    show_report(output, labs, text if labs else "no labs\n")
    if any(lab["state"] == "dead" for lab in labs):
        next_commands(output, "weft lab clean")
    elif not labs:
        next_commands(output, "weft lab up")


@lab.command()
@click.argument("name", default="", metavar="[LAB]", shell_complete=_labs)
@output_option
def clean(name: str, output: str) -> None:
    """End a lab, or every lab, and remove every trace, also of one whose supervisor was killed."""
    cleaned = start.clean(base(), name)
    show_report(output, {"removed": cleaned}, f"removed: {', '.join(cleaned) or 'nothing was there'}\n")


@lab.command()
@_which
@output_option
def ps(lab: str, output: str) -> None:
    """Show nodes with their leases, and pods with their addresses."""
    place = start.find(base(), lab)
    report, within = ask(place, protocol.Ps(), LabReport), _within(place)
    show_report(output, report, show.lab(report))
    if len(report.pods) > 1:
        ping = f"weft lab ping{within} {report.pods[0].name} {report.pods[-1].name}"
        next_commands(output, ping, f"weft lab pingall{within}")
    else:
        next_commands(output, f"weft lab run{within} POD --node {report.nodes[0].name}")


@lab.command()
@click.argument("pod")
@click.option("--node", required=True, shell_complete=_node, help="The node that it runs on.")
@_which
@output_option
def run(pod: str, node: str, lab: str, output: str) -> None:
    """Start a pod: a process that holds its namespaces, attached by the node's plugins."""
    place = start.find(base(), lab)
    report, within = ask(place, protocol.Run(pod=pod, node=node), PodReport), _within(place)
    show_report(output, report, f"pod {report.name} runs on {report.node}: {', '.join(report.addresses)}\n")
    next_commands(output, f"weft lab exec{within} {pod} -- ip address", f"weft lab rm{within} {pod}")


@lab.command("rm")
@click.argument("pod", shell_complete=_pod)
@_which
@output_option
def remove(pod: str, lab: str, output: str) -> None:
    """Detach a pod and end it."""
    place = start.find(base(), lab)
    ask(place, protocol.Remove(pod), Nothing)
    show_report(output, {"removed": pod}, f"pod {pod} is gone\n")
    next_commands(output, f"weft lab ps{_within(place)}")


class _Exec(click.Command):
    """Options end at `--`; without it, at NODE, so that `exec node1 ls -l` is what it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does."""
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@lab.command("exec", cls=_Exec, context_settings={"ignore_unknown_options": True})
@_which
@output_option
@click.argument("where", metavar="NODE|POD", shell_complete=_any)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def execute(where: str, command: tuple[str, ...], lab: str, output: str) -> int:
    """Run a command in a node or a pod; its exit status is ours.

    It sees the node's network, files and processes: not only, as with `ip netns exec`, the network.
    """
    place = start.find(base(), lab)
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}

    def request(descriptors: list[int], tty: bool) -> Call:  # noqa: FBT001 - the meaning is terminal.Start's
        wanted = protocol.Exec(where=where, command=list(command), environ=environ, tty=tty)
        return Call(place.socket, wanted, descriptors=descriptors)

    if output == "text":
        return terminal.run(request)
    status, stdout, stderr = terminal.captured(request)
    show_report(output, {"status": status, "stdout": stdout, "stderr": stderr}, "")
    return status


@lab.command()
@click.argument("source", metavar="A", shell_complete=_any)
@click.argument("target", metavar="B", shell_complete=_any)
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=3, show_default=True, help="How often.")
@_which
@output_option
def ping(source: str, target: str, count: int, lab: str, output: str) -> int:
    """Ping from one pod or node to another, and show which address arrives there."""
    wanted = protocol.Ping(source=source, target=target, count=count)
    place = start.find(base(), lab)
    report, within = ask(place, wanted, PingReport), _within(place)
    show_report(output, report, show.ping(report))
    next_commands(output, f"weft lab capture{within} {source} --out packets.pcapng", f"weft lab pingall{within}")
    return 0 if report.reached == report.tried else 1


@lab.command()
@_which
@output_option
def pingall(lab: str, output: str) -> int:
    """Ping from every pod and every node to every pod; fails unless all arrive with the source's own address."""
    place = start.find(base(), lab)
    report, within = ask(place, protocol.PingAll(), PingReport), _within(place)
    show_report(output, report, show.pingall(report))
    if report.reached == report.tried:
        return 0
    broken = next(cell for cell in report.cells if cell.fault)
    look = f"weft lab exec{within} {broken.source} -- ip route get {broken.address}"
    next_commands(output, look, f"weft lab logs{within} NODE")
    return 1


@lab.command()
@click.argument("node", metavar="NODE|etcd|supervisor", shell_complete=_node)
@_which
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
@click.argument("where", metavar="NODE|POD", shell_complete=_any)
@click.argument("link", default="", metavar="[LINK]")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    help="The file; - is standard output.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many packets.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@_which
@output_option
def capture(
    where: str, link: str, *, out: Path, count: int | None, seconds: float | None, lab: str, output: str
) -> None:
    """Write the packets of one link of a node or pod, or of all, to a file for Wireshark, until Ctrl-C.

    \b
      weft lab capture node1 --out packets.pcapng
      weft lab capture node1 eth0 --out - | tcpdump -n -r -
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    from weft.lab import record

    path = None if str(out) == "-" else out
    if path is None:
        _check_stream(output)
    place = start.find(base(), lab)
    call = Call(place.socket, protocol.Capture(where=where, link=link))
    try:
        call.result(Nothing)
        [descriptor] = call.descriptors()
    finally:
        call.close()
    if output == "text":
        click.echo(f"capturing on {link or 'all links'} of {where}; Ctrl-C ends it", err=True)
    try:
        packets = record.record(descriptor, path, count=count, seconds=seconds)
    except OSError as error:
        expected = "a file that can be written"
        raise ConfigError(
            Problem(code="LAB-002", where=f"--out {out}", seen=str(error.strerror), expected=expected)
        ) from None
    if path is None:
        click.echo(f"{packets} packets", err=True)
        return
    show_report(output, {"file": str(out), "packets": packets}, f"{packets} packets in {out}\n")
    next_commands(output, f"wireshark {out}", f"tcpdump -n -r {out}")


def _check_stream(output: str) -> None:
    """Refuse to mix packets with anything else on standard output, or to show them to people."""
    mixed = "with -o json, which is for standard output too" if output == "json" else ""
    seen = "standard output is a terminal" if sys.stdout.isatty() else mixed
    if seen:
        hint = "weft lab capture … --out - | tcpdump -n -r -"
        raise ConfigError(Problem(code="LAB-001", where="--out -", seen=seen, expected="a file or a pipe", hint=hint))


@lab.command()
def demo() -> None:
    """Show a pod network at work: a packet, the entries that led it, a repair; about ten seconds."""
    from weft.lab import demo as story

    story.run(base(), os.environ)
