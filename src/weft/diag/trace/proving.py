"""Sends a trace's probes from this node, and says what became of them beside what is predicted."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from ipaddress import ip_address
from secrets import randbits
from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.sight.host import node_name
from weft.diag.sight.look import with_neighbours
from weft.diag.sight.node import Hanging, Sight
from weft.diag.sight.onlinks import hanging
from weft.diag.sight.peers import peers
from weft.diag.sight.pods import Pods, hidden_words, pods_of
from weft.diag.sight.routing import NO_ANSWER, is_own, link_towards
from weft.diag.trace import dropped, inside
from weft.diag.trace.bothways import alone, both_ways
from weft.diag.trace.following import SHOWN, followed
from weft.diag.trace.hops import End, Way
from weft.diag.trace.outcome import UNSEEN
from weft.diag.trace.probe_report import Following, TraceReport
from weft.diag.trace.probes import Kind, Probe, Sent, numbers, patterns, questions, so_many
from weft.diag.trace.ruled import Ruling
from weft.diag.trace.sending import counters_there, send, told
from weft.kernel import packetsocket
from weft.kernel.dropmonitor import Monitor
from weft.kernel.netfilter import nftrace
from weft.kernel.rtnetlink.attributes import Malformed
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.nftrace import Pattern
from weft.model.net import Ip, with_port
from weft.model.value import replace

_BUFFER: Final = 32 << 20  # bytes: a busy node has much else to tell
_ON_THE_WAY: Final = 0.2  # seconds until the kernel has told of what it drops
_KINDS: Final[dict[str, Kind]] = {"icmp": "icmp", "ipv6-icmp": "icmp", "udp": "udp", "tcp": "tcp"}


def prove(sight: Sight, packet: Packet) -> TraceReport:
    """Send probes as `packet`: three, or more to a Service, of which one pod is followed.

    Raises `ConfigError` unless the packet comes from this node.

    Where a neighbour does not tell its MAC, more are sent: the kernel asks each second, three times, so the first ones
    may have seen no question, and what loses it. Once it has given up, each packet makes it ask at once.
    """
    found = _sent(sight, packet)
    if found.problem is None or NO_ANSWER not in found.problem.seen:
        return found
    return _sent(with_neighbours(sight), packet)


def _sent(sight: Sight, packet: Packet) -> TraceReport:
    name = node_name()
    with pods_of(sight, name, "weft trace --probe") as pods, counters_there() as counters:
        begin = _local(sight, pods, name, str(packet.source))
        if begin is None:
            raise ConfigError(_elsewhere(sight, packet.source, hidden_words(pods.hidden)))
        ways = alone(both_ways(sight, packet))
        what = _following(packet, begin, ways["there"], partial(_local, sight, pods, name), name)
        ground = _Here(pods, counters, questions(_asked_for(sight, packet)))
        found = followed(
            ground, what, [(name, ways)], lambda: [(name, alone(both_ways(with_neighbours(sight), packet)))]
        )
        found = inside.explained(found, pods, begin, what.end, sent=packet, way=ways["there"])
        return found if found.problem is None or found.problem.code != UNSEEN else _monitored(found, what.probe, ground)


def _following(packet: Packet, begin: End, there: Way, local: Callable[[str], End | None], name: str) -> Following:
    """What is behind the node called `name` is not looked at."""
    kind = _KINDS[packet.protocol]
    others = [address for hop in there.hops for address in hop.others]
    sent = numbers(randbits(32), 1 + len(others))
    target = str(packet.target) if there.packet is None else there.packet.target
    end = local(target)
    beyond = "" if end is not None else there.to or target
    last = end or End(node=beyond, address=target)
    ends = {} if beyond else {last.place: ""}
    return Following(
        source=str(packet.source),
        target=with_port(packet.target, packet.target_port),
        probe=Probe(
            source=begin.place,
            address=str(packet.source),
            target=str(packet.target),
            kind=kind,
            numbers=sent,
            port=packet.target_port,
            sizes=[packet.size] * len(sent) if packet.size else [],
        ),
        begin=begin,
        end=last,
        beyond=beyond,
        places={name: "", **ends},
        ends=ends,
        ports={packet.target_port, *([] if there.packet is None else [there.packet.target_port])},
        chosen={each: ip_address(each).packed for each in (target, *others)},
    )


class _Here:
    """This node and its pods. It is a `following.Ground`."""

    def __init__(self, pods: Pods, counters: Callable[[], dict[str, int]], asking: Sequence[Pattern]) -> None:
        """`counters` reads those of where it is called; `asking` are the patterns of what asks for MACs on the way."""
        self._pods, self._counters, self._asking = pods, counters, asking
        self.is_pod = pods.has

    def send(self, probe: Probe) -> Sent:
        return self._pods.run(probe.source, partial(send, probe))

    def capture(self, place: str, link: str, longest: int) -> socket.socket:
        return self._pods.run(place, partial(packetsocket.listen, link, room=_BUFFER, longest=longest, shown=SHOWN))

    def filtered(self, place: str, probe: Probe) -> socket.socket:
        traced = [*patterns(probe.kind, probe.numbers), *self._asking]
        return self._pods.run(place, partial(nftrace.listen, traced))

    def told(self, place: str, ruling: Ruling) -> Ruling:
        return self._pods.run(place, partial(told, ruling))

    def counters(self, place: str) -> dict[str, int]:
        return self._pods.run(place, self._counters)

    def hanging(self, place: str) -> list[Hanging]:
        return self._pods.run(place, hanging)


def _monitored(found: TraceReport, probe: Probe, ground: _Here) -> TraceReport:
    """Send the probes once more while the kernel tells what it drops, if it can."""
    again = replace(probe, numbers=so_many(randbits(32), len(probe.numbers)))
    with suppress(OSError, Malformed), closing(Monitor()) as monitor:  # none in this kernel, or another program has it
        ground.send(again)
        time.sleep(_ON_THE_WAY)
        return dropped.explained(found, again, list(monitor.take()))
    return found


def _asked_for(sight: Sight, packet: Packet) -> Iterator[Ip]:
    """Addresses whose MACs are asked for on the way, here or by the next node."""
    ends = {packet.source, packet.target}
    known = {address.ip for bridge in sight.bridges for address in sight.addresses_of(bridge.index)}
    for peer in peers(sight):
        if peer.hop is not None and any(end in peer.subnet or end == peer.public for end in ends):
            link = link_towards(sight, peer.hop)
            known |= {peer.hop, *(each.ip for each in sight.addresses_of(0 if link is None else link.index))}
    yield from ends | known


def _local(sight: Sight, pods: Pods, name: str, address: str) -> End | None:
    """Raises `ConfigError` for an address of several pods: which of them gets a packet is chance."""
    having = [pod.name for pod in pods.found if address in pod.all_addresses]
    if len(having) > 1:
        seen = f"pods {' and '.join(having)} have it"
        hint = "'weft ipam list' shows which container holds it: take it off the other"
        raise ConfigError(Problem("CHECK-001", address, seen, hint=hint))
    if (pod := pods.named(address)) is not None:
        link = sight.link(pod.peer)
        return End(node=name, address=address, pod=pod.name, device=pod.device, host_end=link.name if link else "")
    return End(node=name, address=address) if is_own(sight, ip_address(address)) else None


def _elsewhere(sight: Sight, source: Ip, hidden: str) -> Problem:
    for each in sight.attached:
        if source in each.addresses:
            seen = f"it was given {source}, and has it no more, or its link is gone"
            return Problem("CHECK-001", f"{each.ifname} of {each}", seen, hint="'weft doctor' says which")
    return Problem(
        "FLAG-001",
        "weft trace --probe",
        f"{source} is no address of this node, or of a pod of it",
        hint=f"Run it on the node where it is{f'; {hidden}' if hidden else ''}.",
    )
