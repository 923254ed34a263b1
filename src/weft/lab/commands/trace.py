"""`weft lab trace`: a packet between two places of a lab, through both nodes and back, predicted and then tried."""

import socket
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from secrets import randbits
from typing import Final

import click

from weft.diag.sight.node import Hanging
from weft.diag.trace.command import EXPLAIN, SIZE, no_size
from weft.diag.trace.following import followed
from weft.diag.trace.hops import OUTSIDE, Addressed, End, Visit, Way, Ways
from weft.diag.trace.probe_report import Following, TraceReport, tried_diagram, tried_lines
from weft.diag.trace.probes import Kind, Probe, Sent, numbers
from weft.diag.trace.ruled import Ruling
from weft.lab import protocol
from weft.lab.commands import terminal
from weft.lab.commands.choose import ask, ask_for_socket, ends, find, lab_option, nodes_and_pods, within
from weft.lab.itinerary import COMMAND, Goal, end_at, end_of, family_of, next_node, translated
from weft.lab.itinerary import goal as goal_of
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.model.net import with_port
from weft.screen.documents import next_commands, output_with, show_report

_MOST_NODES: Final = 6


@click.command("trace")
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B[:PORT]", shell_complete=ends)
@click.option("-6", "six", is_flag=True, help="By IPv6, of a lab with both.")
@click.option("--udp", is_flag=True, help="With a port, a datagram instead of TCP.")
@SIZE
@EXPLAIN
@lab_option
@output_with("mermaid")
def trace(source: str, target: str, size: int, lab: str, output: str, *, six: bool, udp: bool, explain: bool) -> int:
    """Say what a packet from A to B passes in each pod and node, and its answer; where it is lost, and why.

    It is computed from a look at each node. Then three marked probes prove it: echo requests, or with a PORT what asks
    for a connection, or datagrams. At a device, +3 says that all were seen there; before the first 0 they were lost.
    B may be a Service, or the port of a node that leads to one: one of its pods is followed, and only the probes count
    that chance has sent there. It may also be any address, or `outside`: the network around the nodes, where the store
    is and which has no route to the pods. What NAT makes of the source is said as it was seen at each device. With
    --size probes are never fragmented; if they are lost, it says where, whether somebody tells the sender the MTU, and
    tries by up to 66 more how large the largest is that passes.

    \b
      weft lab trace pod1-1 pod2-1
      weft lab trace pod1-1 node2:80
      weft lab trace pod1-1 web:80
      weft lab trace pod1-1 outside               # and how it is masqueraded
      weft lab trace pod1-1 pod2-1 --size 1450    # small packets pass, and large ones do not
      weft lab trace --explain pod1-1 pod2-1
      weft lab trace -o mermaid pod1-1 pod2-1     # a sequence diagram, for Markdown

    Exits 0 if they arrive and come back, 3 if they are dropped or lost.
    """
    place = find(lab)
    found = follow(place, source, target, six=six, udp=udp, size=size)
    text = (
        tried_diagram(found)
        if output == "mermaid"
        else "".join(f"{line}\n" for line in tried_lines(found, explain=explain))
    )
    show_report(output, found, text)
    if found.well:
        return 0
    node = next(leg.node for leg in found.legs[found.last :: -1] if leg.node != OUTSIDE)
    next_commands(output, f"weft lab exec{within(place)} {node} weft doctor")
    return 3


def follow(
    place: Place, source: str, target: str, *, six: bool = False, udp: bool = False, size: int = 0
) -> TraceReport:
    """Compute the way between two places of a lab, and try it by probes, of `size` bytes if that is not 0.

    `ConfigError` for an unknown place.
    """
    report = ask(place, protocol.Ps())
    family = 6 if six else family_of(target) or report.families[0]
    begin = end_of(report, source, family, asking=COMMAND)
    goal = goal_of(report, begin, target, udp=udp)
    kind: Kind = "icmp" if not goal.port else "udp" if goal.udp else "tcp"
    if size and kind == "tcp":
        raise no_size(COMMAND)
    visits = _visits(place, report, begin, goal, size)
    end = _end(report, visits, goal)
    beyond = "" if end is not None else _there(visits)[-1].to or goal.address
    end = end or End(node=beyond, address=goal.address)
    ports = {goal.port, *(way.packet.target_port for way in _there(visits) if way.packet is not None)}
    ends = {each.place: each.device if each.node == OUTSIDE else "" for each in (*goal.ends, end) if not beyond}

    sent = numbers(randbits(32), len(goal.ends))
    probe = Probe(
        source=begin.place,
        address=begin.address,
        target=goal.address,
        kind=kind,
        numbers=sent,
        port=goal.port,
        sizes=[size] * len(sent) if size else [],
    )
    what = Following(
        source=source,
        target=target,
        probe=probe,
        begin=begin,
        end=end,
        beyond=beyond,
        places=dict.fromkeys(_nodes(visits), "") | ends,
        ends=ends,
        ports=ports,
        chosen={each.address: ip_address(each.address).packed for each in goal.ends},
    )

    def look_again() -> list[Visit]:
        again = _visits(place, report, begin, goal, size)
        return again if _nodes(again) == _nodes(visits) else visits

    pods = {each.pod for each in (begin, end, *goal.ends)} - {""}
    return followed(_InLab(place, pods), what, visits, look_again)


class _InLab:
    """A lab's nodes and pods, of which those that a trace passes are `pods`. It is a `following.Ground`."""

    def __init__(self, lab: Place, pods: Collection[str]) -> None:
        self._lab, self._pods = lab, pods

    def is_pod(self, place: str) -> bool:
        return place in self._pods

    def send(self, probe: Probe) -> Sent:
        return ask(self._lab, protocol.Send(probe))

    def capture(self, place: str, link: str, longest: int) -> socket.socket:
        sock = self._socket(protocol.Capture(place, link, longest))
        sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
        return sock

    def filtered(self, place: str, probe: Probe) -> socket.socket:
        return self._socket(protocol.Filtered(place, probe))

    def told(self, place: str, ruling: Ruling) -> Ruling:
        return ask(self._lab, protocol.Tell(place, ruling))

    def counters(self, place: str) -> dict[str, int]:
        return ask(self._lab, protocol.Counters(place))

    def hanging(self, place: str) -> list[Hanging]:
        return ask(self._lab, protocol.OnLinks(place))

    def _socket(self, request: protocol.Capture | protocol.Filtered) -> socket.socket:
        return socket.socket(fileno=ask_for_socket(self._lab, request))


def _visits(place: Place, report: LabReport, begin: End, goal: Goal, size: int) -> list[Visit]:
    visits: list[Visit] = []
    node: str | None = begin.node
    packet = Addressed(source=begin.address, target=goal.address, target_port=goal.port)
    while node is not None and len(visits) < _MOST_NODES:
        words = ["trace", packet.source, with_port(packet.target, packet.target_port)]
        words += ["--udp"] if goal.udp else []
        words += ["--size", str(size)] if size else []
        ways = terminal.answer(place, node, words, Ways)
        ways["there"] = translated(report, goal, node, ways["there"])
        visits.append((node, ways))
        node, packet = next_node(report, ways["there"]), ways["there"].packet or packet
    return visits


def _nodes(visits: Sequence[Visit]) -> list[str]:
    return [node for node, _ in visits]


def _there(visits: Sequence[Visit]) -> list[Way]:
    return [ways["there"] for _, ways in visits]


def _end(report: LabReport, visits: Sequence[Visit], goal: Goal) -> End | None:
    """Where the packet comes to; where it comes to nothing, what it was sent to, or may have been.

    None where that is no place of the lab.
    """
    node, way = visits[-1][0], _there(visits)[-1]
    found = None if way.packet is None else end_at(report, way.packet.target)
    last = End(node=node, address=goal.address) if goal.service or way.end == "delivered" else None
    return found or next(iter(goal.ends), last)
