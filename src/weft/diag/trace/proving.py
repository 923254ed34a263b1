"""Sends a trace's probes from this node, and says what became of them beside what is predicted."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from secrets import randbits
from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.sight.host import node_name
from weft.diag.sight.look import with_neighbours
from weft.diag.sight.node import Sight
from weft.diag.sight.onlinks import hanging
from weft.diag.sight.peers import peers
from weft.diag.sight.pods import Pods, hidden_words, pods_of
from weft.diag.sight.routing import NO_ANSWER, is_own, link_towards
from weft.diag.trace import inside
from weft.diag.trace.bothways import alone, both_ways
from weft.diag.trace.hops import End
from weft.diag.trace.probe_report import Asked, TraceReport, proved
from weft.diag.trace.probes import Kind, ProbesSeen, Wanted, numbers, patterns, questions, so_many
from weft.diag.trace.sending import Filters, Growth, counters_there, send, told, watch
from weft.diag.trace.sized import Sized
from weft.kernel.netfilter import nftrace
from weft.model.errors import ConfigError, Problem
from weft.model.net import Ip, with_port

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
    with pods_of(sight, name, "weft trace --probe") as pods:
        return _Probing(sight, packet, pods, name).report()


class _Probing:
    """Probes of one packet, from this node or a pod of it (`name` is the node's) to `end`.

    `beyond` names what is behind this node; it is empty if the packet ends here.
    """

    def __init__(self, sight: Sight, packet: Packet, pods: Pods, name: str) -> None:
        """Raises `ConfigError` unless the packet comes from this node."""
        self._sight, self._packet, self._pods, self._name = sight, packet, pods, name
        self._kind: Kind = _KINDS[packet.protocol]
        self._ways = alone(both_ways(sight, packet))
        there = self._there = self._ways["there"]
        others = [address for hop in there.hops for address in hop.others]
        self._numbers = numbers(randbits(32), 1 + len(others))
        begin = _local(sight, pods, name, str(packet.source))
        if begin is None:
            raise ConfigError(_elsewhere(sight, packet.source, hidden_words(pods.hidden)))
        self._begin = begin
        target = str(packet.target) if there.packet is None else there.packet.target
        end = _local(sight, pods, name, target)
        self._beyond = "" if end is not None else there.to or target
        self._end = end or End(node=self._beyond, address=target)
        self._places = [] if self._beyond else [self._end.place]
        self._chosen = {each: ip_address(each).packed for each in (target, *others)}

    def report(self) -> TraceReport:
        packet, again = self._packet, partial(with_neighbours, self._sight)
        found = proved(
            Asked(
                source=str(packet.source),
                target=with_port(packet.target, packet.target_port),
                kind=self._kind,
                numbers=self._numbers,
            ),
            self._begin,
            self._end,
            [(self._name, self._ways)],
            self._explained(),
            beyond=self._beyond,
            sized=Sized(size=packet.size) if packet.size else None,
            count=self._of_sizes,
            look_again=lambda: [(self._name, alone(both_ways(again(), packet)))],
        )
        return inside.explained(found, self._pods, self._begin, self._end, sent=packet, way=self._there)

    def _explained(self) -> ProbesSeen:
        """What was seen of the probes, with what packet filters and counters tell of them."""
        pods, name, sent, size = self._pods, self._name, self._numbers, self._packet.size
        traced = [*patterns(self._kind, sent), *questions(_asked_for(self._sight, self._packet))]
        watched, listen = [self._begin.place, name, *self._places], partial(nftrace.listen, traced)
        with (
            counters_there() as counters,
            Filters(
                watched,
                listen=lambda place: pods.run(place, listen),
                tell=lambda place, ruling: pods.run(place, partial(told, ruling)),
            ) as filters,
        ):
            growth = Growth(watched, lambda place: pods.run(place, counters), lambda place: pods.run(place, hanging))
            sizes, all_dropped = [size] * len(sent) if size else [], partial(filters.have_dropped, len(sent))
            seen = self._seen(sent, sizes, [name, *self._places], all_dropped)
            filters.explain(seen)
            growth.explain(seen, self._begin.place, sent)
        return seen

    def _of_sizes(self, sizes: Sequence[int]) -> tuple[Sequence[int], ProbesSeen]:
        tries = so_many(randbits(32), len(sizes))
        return tries, self._seen(tries, sizes, self._places)

    def _seen(
        self,
        numbers: Sequence[int],
        sizes: Sequence[int],
        places: Sequence[str],
        are_dropped: Callable[[], bool] = lambda: False,
    ) -> ProbesSeen:
        packet, there = self._packet, self._there.packet
        ports = {packet.target_port, *([] if there is None else [there.target_port])}
        return watch(
            self._pods,
            places,
            Wanted(kind=self._kind, numbers=numbers, ports=ports, chosen=self._chosen),
            source=self._begin.place,
            send=partial(
                send,
                packet.source,
                packet.target,
                kind=self._kind,
                port=packet.target_port,
                numbers=numbers,
                sizes=sizes,
            ),
            largest=max(sizes, default=0),
            are_dropped=are_dropped,
        )


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
