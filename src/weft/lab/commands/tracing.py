"""`weft lab trace`: a packet between two places of a lab, through both nodes and back, predicted and then tried."""

from typing import Final

import click
import msgspec

from weft.diag.commands.trace import lines
from weft.diag.hops import Way
from weft.lab import protocol
from weft.lab.commands import start, terminal
from weft.lab.commands.choose import ask, base, lab_option, nodes_and_pods, within
from weft.lab.commands.speak import next_commands, output_option, show_report
from weft.lab.places import Place
from weft.lab.report import LabReport, PingReport
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.value import Value

_PROBES: Final = 3


class _End(Value):
    """A node or a pod: the node that it is on, and its address."""

    node: str
    address: str


class Leg(Value):
    """The way on one node, of the packet or of its answer."""

    node: str
    direction: str
    way: Way


class TraceReport(Value):
    """The ways in order. `reached` of `tried` probes came back; `verdict` is all of it in one sentence."""

    source: str
    target: str
    legs: list[Leg]
    tried: int
    reached: int
    verdict: str


@click.command("trace")
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B[:PORT]", shell_complete=nodes_and_pods)
@click.option("-6", "six", is_flag=True, help="By IPv6, of a lab with both.")
@click.option("--udp", is_flag=True, help="With a port, a datagram instead of TCP.")
@lab_option
@output_option
def trace(source: str, target: str, lab: str, output: str, *, six: bool, udp: bool) -> int:
    """Say what a packet from A to B passes on each node, and its answer; where it is lost, and why.

    It is computed from a look at each node; then a ping tries it.

    \b
      weft lab trace pod1-1 pod2-1
      weft lab trace pod1-1 node2:80

    Exits 0 if it arrives and comes back, 3 if it is dropped or lost.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = start.find(base(), lab)
    found = follow(place, source, target, six=six, udp=udp)
    show_report(output, msgspec.to_builtins(found), "".join(f"{line}\n" for line in _text(found)))
    if any(leg.way.end == "dropped" for leg in found.legs) or found.reached < found.tried:
        next_commands(output, f"weft lab exec{within(place)} {found.legs[-1].node} weft doctor")
        return 3
    return 0


def follow(place: Place, source: str, target: str, *, six: bool = False, udp: bool = False) -> TraceReport:
    """Compute the way between two places of a lab, and try it by a ping. `ConfigError` for a place that is none."""
    report = ask(place, protocol.Ps(), LabReport)
    legs = predicted(place, report, source, target, six=six, udp=udp)
    name = target.partition(":")[0]
    tried = ask(place, protocol.Ping(source=source, target=name, count=_PROBES), PingReport)
    address = _end(report, name, 6 if six else report.families[0]).address
    cells = [cell for cell in tried.cells if cell.address == address]
    reached = sum(not cell.fault for cell in cells)
    return TraceReport(
        source=source,
        target=target,
        legs=legs,
        tried=len(cells),
        reached=reached,
        verdict=_verdict(legs, len(cells), reached),
    )


def predicted(
    place: Place, report: LabReport, source: str, target: str, *, six: bool = False, udp: bool = False
) -> list[Leg]:
    """Compute the way between two places of a lab of which `report` tells. `ConfigError` for a place that is none."""
    name, _, port = target.partition(":")
    ends = [_end(report, each, 6 if six else report.families[0]) for each in (source, name)]
    words = [ends[0].address, _with_port(ends[1].address, port), *(["--udp"] if udp else [])]
    known = {node: _ways(place, node, words) for node in dict.fromkeys(end.node for end in ends)}
    return _legs(ends[0].node, ends[1].node, known)


def _end(report: LabReport, name: str, family: int) -> _End:
    """A place of the lab by its name. `ConfigError` if there is none, or none of the family."""
    pod = next((pod for pod in report.pods if pod.name == name), None)
    node = next((node for node in report.nodes if node.name == name), None)
    addresses = pod.addresses if pod is not None else [] if node is None else node.underlay
    address = next((each for each in addresses if (":" in each) == (family == 6)), None)
    if address is None:
        seen = f"no node or pod of this name has an IPv{family} address"
        names = [node.name for node in report.nodes] + [pod.name for pod in report.pods]
        expected = f"one of {', '.join(names)}"
        raise ConfigError(Problem(code="LAB-002", where=f"weft lab trace: {name}", seen=seen, expected=expected))
    return _End(node=name if pod is None else pod.node, address=address.partition("/")[0])


def _with_port(address: str, port: str) -> str:
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _ways(place: Place, node: str, words: list[str]) -> dict[str, Way]:
    """Both directions, as a node sees them."""
    command = terminal.command(place, node, ["weft", "trace", "-o", "json", *words])
    status, stdout, stderr = terminal.captured(command)
    if status not in (0, 3):
        raise Unavailable(Problem(code="LAB-002", where=f"weft trace on {node}", seen=" ".join(stderr.split())[:300]))
    return msgspec.json.decode(stdout, type=dict[str, Way])


def _legs(here: str, there: str, known: dict[str, dict[str, Way]]) -> list[Leg]:
    """The ways that the packet takes in turn, up to where it is dropped."""
    order = [("there", here), ("there", there), ("back", there), ("back", here)]
    if here == there:
        order = [("there", here), ("back", here)]
    legs: list[Leg] = []
    for direction, node in order:
        legs.append(Leg(node=node, direction=direction, way=known[node][direction]))
        if legs[-1].way.end == "dropped":
            break
    return legs


def _verdict(legs: list[Leg], tried: int, reached: int) -> str:
    last = legs[-1]
    if last.way.problem is not None:
        return (
            f"the {'packet' if last.direction == 'there' else 'answer'} is dropped on {last.node}: {last.way.problem}"
        )
    if reached == tried:
        return "it arrives, and the answer comes back"
    if any(leg.way.end == "undecided" for leg in legs):
        return f"it is not said by the rules that were seen, and {tried - reached} of {tried} probes were lost"
    return f"each node passes it on, and {tried - reached} of {tried} probes were lost: look between the nodes"


def _text(found: TraceReport) -> list[str]:
    shown: list[str] = []
    for leg in found.legs:
        shown += [f"{leg.node}, {'there' if leg.direction == 'there' else 'back'}", *lines(leg.way)]
    return [*shown, f"{found.reached} of {found.tried} pings came back", found.verdict]
