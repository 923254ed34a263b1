"""`weft trace`: what a packet passes on this node, and where it ends."""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from secrets import randbits
from typing import Any, Final

import click

from weft.diag.bundle.offline import bundle_at
from weft.diag.options import NAMES, place_options, places_of
from weft.diag.rules.matching import ECHO, SOME_PORT, Packet
from weft.diag.sight.look import look, with_neighbours
from weft.diag.sight.node import Sight, peers
from weft.diag.sight.onlinks import hanging
from weft.diag.sight.pods import Pods, hidden_words, pods_of
from weft.diag.sight.routing import NO_ANSWER, is_own, link_of_pod, link_towards
from weft.diag.sizes import SMALLEST
from weft.diag.trace import inside
from weft.diag.trace.hops import Direction, End, Way, Ways
from weft.diag.trace.predict import Entry, addressed, follow
from weft.diag.trace.probe_report import Asked, TraceReport, proved, tried_diagram, tried_lines
from weft.diag.trace.probes import Kind, ProbesSeen, Wanted, numbers, patterns, questions, so_many
from weft.diag.trace.sending import Filters, Growth, counters_there, send, told, watch
from weft.diag.trace.sequence import Stage, diagram, lines
from weft.diag.trace.sized import Sized
from weft.kernel.netfilter import nftrace
from weft.model.errors import ConfigError, Problem
from weft.model.net import Ip, with_port
from weft.model.text import one_line
from weft.model.value import replace
from weft.screen.documents import output_with, show_report
from weft.screen.groups import FROM, need_root

SIZE: Final = click.option(
    "--size",
    type=click.IntRange(SMALLEST, 65535),
    metavar="BYTES",
    callback=lambda _, __, given: given or 0,
    help="A packet of this size, from the IP header on, that is not to be fragmented.",
)
_KINDS: Final[dict[str, Kind]] = {"icmp": "icmp", "ipv6-icmp": "icmp", "udp": "udp", "tcp": "tcp"}
EXPLAIN: Final = click.option("--explain", is_flag=True, help="Say what each step is, in a sentence.")


@click.command()
@output_with("mermaid")
@EXPLAIN
@click.option("--udp", is_flag=True, help="With a port, a datagram instead of TCP.")
@SIZE
@click.option("--probe", is_flag=True, help="Send three packets from SRC, and count them at each link of this node.")
@place_options
@FROM
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST[:PORT]")
def trace(
    output: str,
    source: str,
    target: str,
    size: int,
    *,
    explain: bool,
    udp: bool,
    probe: bool,
    file: Path | None,
    **where: Any,
) -> int:
    """Say what a packet from SRC to DST passes on this node, step by step, and the answer to it; and where each ends.

    SRC and DST are addresses: of pods, nodes, or others. It is computed from one look at the node, as the kernel would
    decide. With --probe, and a SRC of this node, three marked packets prove it: echo requests, or with a PORT what asks
    for a connection, or datagrams. Where the packet goes on to another node, run it there, too: `weft lab trace` does
    so. Of what leaves the pod network it says which rule masquerades it, and with --probe which source was seen at each
    device. With --size it says where a packet is too large, and with --probe, by up to 66 more packets, how large the
    largest is that passes.

    \b
      weft trace 10.244.1.2 10.244.2.3
      weft trace 10.244.1.2 10.244.2.3:5432
      weft trace 10.244.1.2 '[fd00::2]:53' --udp
      weft trace --probe 10.244.1.2 10.244.2.3
      weft trace --probe --size 1450 10.244.1.2 10.244.2.3
      weft trace --probe 10.244.1.2 192.0.2.7         # to the outside
      weft trace --from weft-bundle-node1.tar.gz 10.244.1.2 10.244.2.3
      weft trace --explain 10.244.1.2 10.244.2.3
      weft trace -o mermaid 10.244.1.2 10.244.2.3     # a sequence diagram, for Markdown

    Exits 0 if neither is dropped here, 3 if one is; with --probe, 0 if all is answered, or was sent on as a datagram.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    there = _packet(source, target, udp=udp, size=size)
    sight = _sight(where) if file is None else bundle_at(file, *NAMES, "probe").sight
    if probe:
        proved = prove(sight, there)
        told = "".join(f"{one_line(line)}\n" for line in tried_lines(proved, explain=explain))
        show_report(output, proved, tried_diagram(proved) if output == "mermaid" else told)
        return 0 if proved.well else 3
    ways = both_ways(sight, there)
    said = [line for packet, way in ways.values() for line in (str(packet), *lines(way, explain=explain))]
    text = diagram(list(_stages(ways))) if output == "mermaid" else "".join(f"{one_line(line)}\n" for line in said)
    show_report(output, _alone(ways), text)
    return 3 if any(way.end == "dropped" for _, way in ways.values()) else 0


def _alone(ways: Mapping[Direction, tuple[Packet, Way]]) -> Ways:
    return {direction: way for direction, (_, way) in ways.items()}


def _sight(where: dict[str, Any]) -> Sight:
    need_root("weft trace")
    return look(places_of(where))


def _stages(ways: Mapping[Direction, tuple[Packet, Way]]) -> Iterator[Stage]:
    for name, (packet, way) in ways.items():
        back = name == "back"
        if way.hops[0].what != "pod":
            yield Stage(place=str(packet.source), way=Way(hops=(), end="sent"), back=back)
        yield Stage(place="this node", way=way, back=back)
        if way.end != "dropped":
            yield Stage(place=way.to or str(packet.target), way=Way(hops=(), end=way.end), back=back)


def both_ways(sight: Sight, there: Packet) -> dict[Direction, tuple[Packet, Way]]:
    """Follow a packet and its answer; that answers what the packet has become on this node."""
    way = follow(sight, there, entry_of(sight, there))
    became = way.packet or addressed(there)
    back = replace(
        there,
        source=ip_address(became.target),
        target=ip_address(became.source),
        source_port=became.target_port,
        target_port=became.source_port,
        state="established",
        # An echo reply is as large; by IPv4 it may be fragmented (icmp_sk_init in net/ipv4/icmp.c).
        size=there.size if there.protocol == "ipv6-icmp" else 0,
    )
    return {"there": (there, way), "back": (back, follow(sight, back, entry_of(sight, back), original=there))}


def entry_of(sight: Sight, packet: Packet) -> Entry:
    """One for this node's own pods comes through the overlay."""
    source, at_home = packet.source, any(packet.target in subnet for subnet in sight.subnets)
    if is_own(sight, source):
        return Entry(kind="node")
    for peer in peers(sight):
        if source in peer.subnet or source == peer.public:
            # In a mesh it may be for a pod of a third node: it came by the way by which answers go.
            relayed = bool(peer.way) and any(packet.target in each.subnet for each in peers(sight))
            inside = source in peer.subnet
            return Entry(kind="remote", remote=peer.hop if inside else peer.public, wrapped=at_home or relayed)
    if link_of_pod(sight, source) in sight.bridges or any(source in subnet for subnet in sight.subnets):
        return Entry(kind="pod")
    return Entry(kind="remote")


def no_size(command: str) -> ConfigError:
    hint = "Without a port it is an echo request, with --udp a datagram."
    seen = "--size, and a port of TCP: what asks for a connection is small, whatever that carries later"
    return ConfigError(Problem("FLAG-001", command, seen, hint=hint))


def _packet(source: str, target: str, *, udp: bool, size: int) -> Packet:
    host, port = _split(target)
    try:
        sender, receiver = ip_address(source), ip_address(host)
    except ValueError as error:
        raise ConfigError(_wrong(str(error))) from None
    if sender.version != receiver.version:
        raise ConfigError(_wrong(f"{sender} and {receiver} are of two families"))
    if udp and not port:
        raise ConfigError(
            replace(_wrong(f"--udp to {target!r}, without a port"), expected="a port, as in 10.244.2.3:53")
        )
    if not port:
        return Packet(source=sender, target=receiver, protocol=ECHO[sender.version], size=size)
    if size and not udp:
        raise no_size("weft trace")
    protocol = "udp" if udp else "tcp"
    return Packet(source=sender, target=receiver, protocol=protocol, source_port=SOME_PORT, target_port=port, size=size)


def _split(target: str) -> tuple[str, int]:
    """Read `10.0.0.1:80`, `[fd00::1]:80`, or an address alone, whose port is 0."""
    if target.startswith("["):
        host, _, rest = target[1:].partition("]")
        if not rest:
            return host, 0
        port = rest[1:] if rest.startswith(":") else ""
    elif target.count(":") == 1:
        host, _, port = target.partition(":")
    else:
        return target, 0
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(_wrong(f"{target!r} has no port from 1 to 65535"))
    return host, int(port)


def _wrong(seen: str) -> Problem:
    return Problem("FLAG-001", "weft trace", seen, expected="two addresses of one family, as 10.244.1.2 10.244.2.3:80")


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
    name, kind, ways = socket.gethostname(), _KINDS[packet.protocol], _alone(both_ways(sight, packet))
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
            look_again=lambda: [(name, _alone(both_ways(with_neighbours(sight), packet)))],
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
