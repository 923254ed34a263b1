"""Sends a trace's probes from this node, and says what became of them beside what is predicted."""

import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from secrets import randbits
from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.sight.look import with_neighbours
from weft.diag.sight.node import Sight, peers
from weft.diag.sight.onlinks import hanging
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
    name, kind, ways = socket.gethostname(), _KINDS[packet.protocol], alone(both_ways(sight, packet))
    there = ways["there"]
    others = [address for hop in there.hops for address in hop.others]
    sent, size = numbers(randbits(32), 1 + len(others)), packet.size
    ports = {packet.target_port, *([there.packet.target_port] if there.packet is not None else [])}
    with pods_of(sight, name, "weft trace --probe") as pods:
        begin = _local(sight, pods, name, str(packet.source))
        if begin is None:
            raise ConfigError(_elsewhere(sight, packet.source, hidden_words(pods.hidden)))
        target = str(packet.target) if there.packet is None else there.packet.target
        end = _local(sight, pods, name, target)
        beyond = "" if end is not None else there.to or target
        end = end or End(node=beyond, address=target)
        places, chosen = ([] if beyond else [end.place]), {each: ip_address(each).packed for each in (target, *others)}

        def counted(
            numbers: Sequence[int],
            sizes: Sequence[int],
            places: Sequence[str],
            are_dropped: Callable[[], bool] = lambda: False,
        ) -> ProbesSeen:
            return watch(
                pods,
                places,
                Wanted(kind=kind, numbers=numbers, ports=ports, chosen=chosen),
                source=begin.place,
                send=lambda: send(
                    packet.source, packet.target, kind=kind, port=packet.target_port, numbers=numbers, sizes=sizes
                ),
                largest=max(sizes, default=0),
                are_dropped=are_dropped,
            )

        def of_sizes(sizes: Sequence[int]) -> tuple[Sequence[int], ProbesSeen]:
            tries = so_many(randbits(32), len(sizes))
            return tries, counted(tries, sizes, places)

        traced = [*patterns(kind, sent), *questions(_asked_for(sight, packet))]
        watched, listen = [begin.place, name, *places], partial(nftrace.listen, traced)
        with (
            counters_there() as counters,
            Filters(
                watched,
                listen=lambda place: pods.run(place, listen),
                tell=lambda place, ruling: pods.run(place, partial(told, ruling)),
            ) as filters,
        ):
            growth = Growth(watched, lambda place: pods.run(place, counters), lambda place: pods.run(place, hanging))
            all_dropped = partial(filters.have_dropped, len(sent))
            seen = counted(sent, [size] * len(sent) if size else [], [name, *places], all_dropped)
            filters.explain(seen)
            growth.explain(seen, begin.place, sent)
        found = proved(
            Asked(
                source=str(packet.source),
                target=with_port(packet.target, packet.target_port),
                kind=kind,
                numbers=sent,
            ),
            begin,
            end,
            [(name, ways)],
            seen,
            beyond=beyond,
            sized=Sized(size=size) if size else None,
            count=of_sizes,
            look_again=lambda: [(name, alone(both_ways(with_neighbours(sight), packet)))],
        )
        return inside.explained(found, pods, begin, end, sent=packet, way=there)


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
