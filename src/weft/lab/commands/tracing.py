"""`weft lab trace`: a packet between two places of a lab, through both nodes and back, predicted and then tried."""

from secrets import randbits
from typing import Final

import click
import msgspec

from weft.diag.commands.trace import lines
from weft.diag.hops import Way
from weft.lab import protocol
from weft.lab.commands import start, terminal
from weft.lab.commands.choose import address_of, ask, base, lab_option, nodes_and_pods, within
from weft.lab.commands.counting import count
from weft.lab.commands.speak import next_commands, output_option, show_report
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.lab.tracing.legs import Direction, End, Leg, counted, legs
from weft.lab.tracing.outcome import outcome
from weft.lab.tracing.probes import Kind
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.value import Value

_PROBES: Final = 3
_APART: Final = 2  # between the numbers of probes: what acknowledges one is the number of no other


class TraceReport(Value):
    """The legs in order, each with how many probes were seen at its devices.

    Of `tried` probes `reached` came back; `verdict` is all of it in one sentence, `code` that of its problem. `last` is
    the number of the last leg that probes came to.
    """

    source: str
    target: str
    legs: list[Leg]
    tried: int
    reached: int
    verdict: str
    well: bool
    last: int
    problem: Problem | None = None


@click.command("trace")
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B[:PORT]", shell_complete=nodes_and_pods)
@click.option("-6", "six", is_flag=True, help="By IPv6, of a lab with both.")
@click.option("--udp", is_flag=True, help="With a port, a datagram instead of TCP.")
@lab_option
@output_option
def trace(source: str, target: str, lab: str, output: str, *, six: bool, udp: bool) -> int:
    """Say what a packet from A to B passes in each pod and node, and its answer; where it is lost, and why.

    It is computed from a look at each node. Then three marked probes prove it: echo requests, or with a PORT what asks
    for a connection, or datagrams. At a device, +3 says that all were seen there; behind the first 0 they were lost.

    \b
      weft lab trace pod1-1 pod2-1
      weft lab trace pod1-1 node2:80

    Exits 0 if they arrive and come back, 3 if they are dropped or lost.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = start.find(base(), lab)
    found = follow(place, source, target, six=six, udp=udp)
    show_report(output, msgspec.to_builtins(found), "".join(f"{line}\n" for line in _text(found)))
    if found.well:
        return 0
    next_commands(output, f"weft lab exec{within(place)} {found.legs[found.last].node} weft doctor")
    return 3


def follow(place: Place, source: str, target: str, *, six: bool = False, udp: bool = False) -> TraceReport:
    """Compute the way between two places of a lab, and try it by probes. `ConfigError` for a place that is none."""
    report = ask(place, protocol.Ps(), LabReport)
    ends, port = _ends(report, source, target, six=six)
    kind: Kind = "icmp" if not port else "udp" if udp else "tcp"
    found = _legs(place, ends, port, udp=udp)
    first = randbits(32)
    probe = protocol.Probe(
        source=ends[0].place,
        address=ends[0].address,
        target=ends[1].address,
        kind=kind,
        port=port,
        numbers=[first + number * _APART for number in range(_PROBES)],
    )
    places = [end.node for end in ends] + [end.place for end in ends]
    seen = count(place, probe, places, ports=(port,))
    found = [counted(leg, lambda *at: len(seen.at(*at))) for leg in found]
    # A firewall's answer in the name of the target is none.
    reached = len(seen.anywhere(ends[0].place, "back") & seen.anywhere(ends[1].place, "there"))
    result = outcome(found, sent=_PROBES, reached=reached, answers=kind != "udp")
    return TraceReport(
        source=source,
        target=target,
        legs=found,
        tried=_PROBES,
        reached=reached,
        verdict=result.verdict,
        well=result.well,
        last=result.leg,
        problem=result.problem,
    )


def _legs(place: Place, ends: tuple[End, End], port: int, *, udp: bool) -> list[Leg]:
    words = [ends[0].address, _with_port(ends[1].address, port), *(["--udp"] if udp else [])]
    return legs(*ends, {node: _ways(place, node, words) for node in dict.fromkeys(end.node for end in ends)})


def _ends(report: LabReport, source: str, target: str, *, six: bool) -> tuple[tuple[End, End], int]:
    name, port = _split(target)
    family = 6 if six else report.families[0]
    return (_end(report, source, family), _end(report, name, family)), port


def _split(target: str) -> tuple[str, int]:
    """A name, and the port behind it; 0 if there is none."""
    name, colon, port = target.partition(":")
    if not colon:
        return name, 0
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(
            Problem(code="FLAG-001", where=f"weft lab trace: {target}", seen=f"port {port!r}", expected="1 to 65535")
        )
    return name, int(port)


def _end(report: LabReport, name: str, family: int) -> End:
    """A place of the lab by its name. `ConfigError` if there is none, or none of the family."""
    address = address_of(report, name, family, asking="weft lab trace")
    pod = next((pod for pod in report.pods if pod.name == name), None)
    if pod is None:
        return End(node=name, address=address)
    return End(node=pod.node, address=address, pod=name, host_end=pod.host_end)


def _with_port(address: str, port: int) -> str:
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _ways(place: Place, node: str, words: list[str]) -> dict[Direction, Way]:
    """Both directions, as a node sees them."""
    command = terminal.command(place, node, ["weft", "trace", "-o", "json", *words])
    status, stdout, stderr = terminal.captured(command)
    if status not in (0, 3):
        raise Unavailable(Problem(code="LAB-002", where=f"weft trace on {node}", seen=" ".join(stderr.split())[:300]))
    return msgspec.json.decode(stdout, type=dict[Direction, Way])


def _text(found: TraceReport) -> list[str]:
    """The legs up to the last one that packets came to."""
    shown: list[str] = []
    for leg in found.legs[: found.last + 1]:
        shown += [f"{leg.place}, {leg.direction}", *lines(leg.way, leg.counted)]
    return [*shown, f"{found.reached} of {found.tried} probes were answered", found.verdict]
