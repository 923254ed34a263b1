"""A packet's way through this node and that of its answer, from where each enters. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address

from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.routing import is_own, link_of_pod
from weft.diag.trace.hops import Direction, Way, Ways
from weft.diag.trace.predict import Entry, addressed, follow
from weft.model.value import replace


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


def alone(ways: Mapping[Direction, tuple[Packet, Way]]) -> Ways:
    return {direction: way for direction, (_, way) in ways.items()}
