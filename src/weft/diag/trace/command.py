"""`weft trace`: what a packet passes on this node, and where it ends."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import click

from weft.diag.bundle.offline import bundle_at
from weft.diag.options import NAMES, place_options, places_of
from weft.diag.rules.matching import ECHO, SOME_PORT, Packet
from weft.diag.sight.look import look
from weft.diag.sight.node import Sight
from weft.diag.sizes import SMALLEST
from weft.diag.trace.bothways import alone, both_ways
from weft.diag.trace.hops import Direction, Way
from weft.diag.trace.probe_report import tried_diagram, tried_lines
from weft.diag.trace.proving import prove
from weft.diag.trace.sequence import Stage, diagram, lines
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_line
from weft.model.value import replace
from weft.screen.documents import output_with, show_report
from weft.screen.groups import FROM, need_root

SIZE: Final = click.option(
    "--size",
    type=click.IntRange(SMALLEST, 65535),
    metavar="BYTES",
    callback=lambda _, __, given: given or 0,
    help="Size of the packet, from its IP header on. It must not be fragmented.",
)
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
    """Say what a packet from SRC to DST, and its answer, pass on this node, step by step, and where each ends.

    SRC and DST are addresses: of pods, nodes, or others. The way is computed from one look at the node, as its kernel
    would decide. With --probe, and a SRC of this node, three marked packets prove it: echo requests, or with a PORT
    requests for a connection (TCP), or with --udp datagrams. Where the packet goes on to another node, run the command
    there, too; in a lab, `weft lab trace` does so. Where the packet leaves the pod network, it says which rule
    masquerades it, and with --probe which source was seen at each device. With --size it says where a packet is too
    large, and with --probe finds the largest size that passes, by up to 66 more packets.

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
    """
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
    show_report(output, alone(ways), text)
    return 3 if any(way.end == "dropped" for _, way in ways.values()) else 0


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
