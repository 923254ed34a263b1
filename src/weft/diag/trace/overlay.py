"""Into the tunnel between nodes, and out of it. Pure."""

from typing import Final, NoReturn

from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.routing import UNICAST, address_on, link_towards, removing, route_to, routed, row
from weft.diag.trace.hops import Hop
from weft.diag.trace.walk import Walk
from weft.model.errors import Problem
from weft.model.kernel.reported import NUD_PERMANENT, LinkInfo, RouteInfo
from weft.model.net import Ip
from weft.model.value import replace

_WRAPPED: Final = {4: 50, 6: 70}  # bytes around a packet: Ethernet's header, and those of VXLAN, UDP and IP
_ITS_TASK: Final = "The node's daemon puts it there from the peer's lease: 'weft status' says what it knows of the peer"


def arrive(walk: Walk, packet: Packet, remote: Ip, *, wrapped: bool) -> Packet:
    """Receive from node `remote`, in an outer packet where it is `wrapped` and the back end has a device."""
    sight = walk.sight
    carrier = _carrier(sight, packet) if wrapped else None
    by = link_towards(sight, remote)
    if by is not None:
        walk.up(by, "received by", "IFACE-002", carrier=True)
    if carrier is None:
        return replace(packet, iif="" if by is None else by.name)
    address = None if by is None else address_on(sight, by.index, remote.version)
    port = next((device.port for device in sight.vxlans if device.name == carrier.name), 0)
    if by is not None and address is not None and port:
        outer = Packet(
            source=remote,
            target=address,
            protocol="udp",
            iif=by.name,
            source_port=1,
            target_port=port,
            size=_outer_size(packet, remote),
        )
        walk.quietly("prerouting", outer, code="REACH-001")
        walk.filtered("input", outer, code="REACH-001")
    walk.up(carrier, "unwrapped by", "VTEP-003")
    return replace(packet, iif=carrier.name)


def _carrier(sight: Sight, packet: Packet) -> LinkInfo | None:
    """It has an address of the family beside the link-local one. Of several it is that by which answers go."""
    devices = sight.devices
    version = packet.target.version
    own = {each.index for each in sight.addresses if each.ip.version == version and each.scope == 0}
    found = [device for device in devices if device.index in own] or devices
    back = route_to(sight, packet.source)
    return min(found, key=lambda device: back is None or device.index != back.index, default=None)


def send(walk: Walk, packet: Packet, route: RouteInfo, link: LinkInfo) -> NoReturn:
    peer = next((each for each in peers(walk.sight) if packet.target in each.subnet), None)
    remote = None if peer is None else peer.hop
    if link.kind == "vxlan" and route.via is not None:
        remote = _behind(walk, route.via, link)
    if remote is None and link.kind == "ipip":
        remote = route.via
    if remote is None and link.kind != "vxlan" and walk.sight.daemon is None:
        walk.hops.append(Hop(what="peer", seen=f"{link.name} knows to which node", passes=None))
        walk.over("sent")
    if remote is None:
        seen = f"{link.name} knows no node that has {packet.target}"
        walk.drop("peer", seen, Problem("FDB-001", f"link {link.name}", seen, hint=_ITS_TASK))
    device = next((each for each in walk.sight.vxlans if each.name == link.name), None)
    carried = f"VXLAN {device.vni}, UDP port {device.port}" if device is not None else link.kind
    out = link_towards(walk.sight, remote)
    if out is None:
        seen = f"no route leads to {remote}"
        inside = (*walk.sight.devices, *walk.sight.bridges)
        others = (each for each in walk.sight.links if each not in inside and not (each.master or each.loopback))
        walk.has_ipv6(remote, others, "outer packet", seen)
        walk.drop("outer packet", seen, Problem("ROUTE-003", f"node {remote}", seen))
    own, asks = address_on(walk.sight, out.index, remote.version), remote
    if device is not None and own is not None:
        size = _outer_size(packet, remote)
        outer = Packet(source=own, target=remote, protocol="udp", oif=out.name, target_port=device.port, size=size)
        asks = _next(walk, outer, out)
        for hook in ("output", "postrouting"):
            walk.quietly(hook, outer, code="REACH-001")
        if size > out.mtu:
            walk.doubts("outer packet", _cut(outer, out))
    walk.up(out, "outer packet by", "IFACE-002", carrier=True, asks=asks)
    walk.passes("sent", f"to {remote} in {carried}")
    walk.over("sent", to=str(remote), carried=carried)


def _outer_size(packet: Packet, remote: Ip) -> int:
    return packet.size and packet.size + _WRAPPED[remote.version]


def _cut(outer: Packet, out: LinkInfo) -> Problem:
    seen = f"outer packets of {outer.size} bytes are too large for {out.name}, MTU {out.mtu}"
    seen += ": sent in fragments" if outer.source.version == 4 else ""
    hint = "Give the uplink the MTU that it had, or a smaller MTU in the network configuration's Backend"
    return Problem("MTU-001", f"link {out.name}", seen, hint=hint)


def _next(walk: Walk, outer: Packet, out: LinkInfo) -> Ip:
    choice = routed(walk.sight, outer, bound=out.name)
    walk.chosen(outer, choice, code="ROUTE-003")
    route = choice.route
    if route is not None and route.kind != UNICAST:
        seen = f"route {row(walk.sight, route)} drops it"
        problem = Problem("ROUTE-003", f"node {outer.target}", seen, hint=removing(walk.sight, route))
        walk.drop("outer packet", seen, problem)
    return outer.target if route is None or route.via is None or route.index != out.index else route.via


def _behind(walk: Walk, gateway: Ip, link: LinkInfo) -> Ip:
    sight = walk.sight
    neighbour = next((n for n in sight.neighbours if (n.index, n.ip) == (link.index, gateway)), None)
    if neighbour is None or neighbour.mac is None or not neighbour.state & NUD_PERMANENT:
        seen = f"{gateway} has no permanent entry on {link.name}"
        problem = Problem("FDB-001", f"neighbour {gateway}", seen, hint=_ITS_TASK)
        walk.drop("neighbour", seen, problem)
    walk.passes("neighbour", f"{gateway} is at {neighbour.mac}")
    entry = next((e for e in sight.fdb if (e.index, e.mac) == (link.index, neighbour.mac)), None)
    if entry is None or entry.remote is None:
        seen = f"no entry of {link.name} has {neighbour.mac}"
        walk.drop("FDB", seen, Problem("FDB-001", f"fdb {neighbour.mac}", seen, hint=_ITS_TASK))
    walk.passes("FDB", f"{neighbour.mac} is behind {entry.remote}")
    return entry.remote
