"""Predicts what a packet of pods passes on a node: from the sight alone, as the kernel would decide. Pure.

It follows NAT, rules and tables of routing, the filtering rules of nf_tables, neighbours and FDB entries.
"""

from typing import Literal, NoReturn

from weft.diag.finding import setting
from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.routing import UNICAST, is_astray, is_own, link_of_pod, removing, route_to, routed, row
from weft.diag.trace import overlay
from weft.diag.trace.hops import LOOPBACK, NAT_ON_LEAVING, Addressed, Ending, Hop, Way
from weft.diag.trace.walk import OverError, Walk, kept
from weft.model.errors import Problem
from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING, PROTOCOL
from weft.model.kernel.reported import LinkInfo, RouteInfo
from weft.model.net import Ip
from weft.model.value import Value, replace


def leave_pod(walk: Walk, packet: Packet) -> Packet:
    link = link_of_pod(walk.sight, packet.source)
    if link is None:
        seen = "no bridge and no link of this node leads to it"
        walk.has_ipv6(packet.source, walk.sight.bridges, "pod", seen)
        walk.drop("pod", seen, Problem("CHECK-001", f"pod {packet.source}", seen))
    packet = replace(packet, iif=link.name)
    _is_port(walk, packet.source, link)
    # A frame that a bridge passes on from port to port is not seen at the bridge itself.
    walk.up(link, "from the pod by", "BRIDGE-006", seen_there=not _is_beside(walk.sight, packet))
    return packet


def _is_port(walk: Walk, pod: Ip, bridge: LinkInfo) -> None:
    """Drop what goes from or to a pod of a bridge whose link somebody has taken off the bridge."""
    ends = [name for name, end in walk.sight.pods.items() if pod in end.addresses]
    links = [link for link in walk.sight.links if link.name in ends]
    if bridge.kind != "bridge" or not links or any(link.master for link in links):
        return
    seen = f"the node's end of its link, {links[0].name}, is no port of bridge {bridge.name}"
    hint = f"ip link set {links[0].name} master {bridge.name}"
    walk.drop("port", seen, Problem("CHECK-001", f"pod {pod}", seen, hint=hint))


def _is_beside(sight: Sight, packet: Packet) -> bool:
    """True if it goes to a pod on the bridge that it came to: the sender asks that pod for its MAC, and no route."""
    link = link_of_pod(sight, packet.target)
    return _is_bridge_of(link, packet) and not is_own(sight, packet.target)


def _is_routed_back(sight: Sight, packet: Packet) -> bool:
    """True if the route of where NAT has sent it leads to the bridge that it came to."""
    route = route_to(sight, packet.target)
    link = None if route is None else sight.link(route.index)
    return _is_bridge_of(link, packet) and not is_own(sight, packet.target)


def _is_bridge_of(link: LinkInfo | None, packet: Packet) -> bool:
    return link is not None and link.kind == "bridge" and link.name == packet.iif


def _bridged(walk: Walk, packet: Packet) -> NoReturn:
    """End at another pod on the same bridge, without a route; with bridge netfilter the rules are asked."""
    name, original = BRIDGE_NETFILTER[packet.target.version], walk.original
    if walk.sight.settings.get(name) == "1":
        walk.filtered("forward", replace(packet, oif=packet.iif))
        walk.by_nat("postrouting", packet)
    elif original is not None and original.target != packet.source:
        seen = f"the bridge passes it on as from {packet.source}, and {packet.target} has asked {original.target}"
        hint = f"modprobe br_netfilter; sysctl -w {name.replace('/', '.')}=1"
        walk.drop("conntrack", seen, Problem("KERN-001", f"sysctl {name}", seen, hint=hint))
    _is_port(walk, packet.target, next(link for link in walk.sight.links if link.name == packet.iif))
    walk.passes("delivered", f"to {packet.target} on the same bridge")
    walk.over("delivered")


def bridged_by_nat(walk: Walk, packet: Packet) -> None:
    """End at a pod of the same bridge to which NAT has sent the packet; without bridge netfilter the node routes it.

    (br_nf_pre_routing_finish in net/bridge/br_netfilter_hooks.c)
    """
    if walk.sight.settings.get(BRIDGE_NETFILTER[packet.target.version]) != "1":
        return
    if not _is_routed_back(walk.sight, packet):
        return
    if packet.target == packet.source:
        _back_by_its_port(walk, packet)
    _bridged(walk, packet)


def _back_by_its_port(walk: Walk, packet: Packet) -> None:
    """A bridge sends nothing back by the port it came from, unless that port is in hairpin mode."""
    bridge = next(link for link in walk.sight.links if link.name == packet.iif)
    modes = {link.port.hairpin for link in walk.sight.links if link.master == bridge.index and link.port is not None}
    if modes == {False}:
        seen = "hairpin is off: a pod does not reach itself by its own Service"
        where, hint = f"ports of {bridge.name}", "'weft doctor' has the command for each port"
        walk.drop("hairpin", seen, Problem("BRIDGE-003", where, seen, expected="on", hint=hint))
    elif False in modes:
        walk.hops.append(Hop(what="hairpin", seen=f"on at some ports of {bridge.name} alone", passes=None))


class Entry(Value):
    """Where a packet comes from. `remote` is a peer's public IP; it is `wrapped` if it came through the overlay."""

    kind: Literal["pod", "node", "remote"]
    remote: Ip | None = None
    wrapped: bool = True


def follow(sight: Sight, packet: Packet, entry: Entry, *, original: Packet | None = None) -> Way:
    """Follow a packet from where it enters until it is delivered, sent on or dropped.

    Connection tracking knows the `original`, the packet that an answer answers, as that came to this node.
    """
    walk = Walk(sight, packet, original)
    try:
        _go(walk, entry)
    except OverError as over:
        doubt = over.way.end != "dropped" and any(hop.passes is None for hop in walk.hops)
        end: Ending = "undecided" if doubt else over.way.end
        return replace(over.way, hops=tuple(walk.hops), end=end, packet=addressed(walk.packet))


def addressed(packet: Packet) -> Addressed:
    return Addressed(
        source=str(packet.source),
        target=str(packet.target),
        source_port=packet.source_port,
        target_port=packet.target_port,
    )


def _go(walk: Walk, entry: Entry) -> NoReturn:
    if entry.kind == "pod" and walk.packet.source == walk.packet.target:
        walk.hops += LOOPBACK
        walk.over("delivered")
    packet = _enter(walk, entry)
    own = is_own(walk.sight, packet.target)
    if own and entry.kind == "node":
        walk.quietly("output", replace(packet, oif="lo"))
    if own:
        packet = replace(packet, iif=packet.iif or "lo")
        walk.filtered("input", packet)
        walk.by_nat("input", packet)
        device = "lo" if entry.kind == "node" else ""
        walk.passes("delivered", f"{packet.target} is this node's own", device=device)
        walk.over("delivered")
    if entry.kind != "node":
        _forwarded(walk, packet)
    route, link = _routed(walk, packet)
    packet = replace(packet, oif=link.name)
    walk.fits(packet, route, link)
    walk.filtered("output" if entry.kind == "node" else "forward", packet)
    _send(walk, packet, route, link, entry)


def _enter(walk: Walk, entry: Entry) -> Packet:
    """Follow it behind NAT, where it is known whether it is for this node."""
    packet = walk.packet
    if entry.kind == "node":
        # It needs a route before NAT may change where it goes.
        if not is_own(walk.sight, packet.target) and routed(walk.sight, packet).route is None:
            _routed(walk, packet)
        return walk.by_nat("output", packet)
    if entry.kind == "pod":
        packet = leave_pod(walk, packet)
        if _is_beside(walk.sight, packet):
            _bridged(walk, packet)
    elif entry.remote is None:
        back = route_to(walk.sight, packet.source)
        link = None if back is None else walk.sight.link(back.index)
        packet = replace(packet, iif="" if link is None else link.name)
    else:
        packet = overlay.arrive(walk, packet, entry.remote, wrapped=entry.wrapped)
    walk.quietly("prerouting", packet)
    before, packet = packet, walk.by_nat("prerouting", packet)
    if entry.kind == "pod" and packet.target != before.target:
        bridged_by_nat(walk, packet)
    return packet


def _forwarded(walk: Walk, packet: Packet) -> None:
    version = packet.target.version
    # Links have one of their own in IPv4; in IPv6 none that counts, and none is in a sight.
    for name in (FORWARDING[version], f"net/ipv{version}/conf/{packet.iif}/forwarding"):
        if walk.sight.settings.get(name) == "0":
            problem = Problem("KERN-002", f"sysctl {name}", "it is 0", hint=str(setting(name, "1", "")))
            walk.drop("forwarding", f"{name} is 0", problem)


def _routed(walk: Walk, packet: Packet) -> tuple[RouteInfo, LinkInfo]:
    choice = routed(walk.sight, packet)
    walk.chosen(packet, choice)
    route = choice.route
    if route is not None and route.hops:
        ways = ", ".join(str(hop.via or walk.sight.link(hop.index)) for hop in route.hops)
        walk.hops.append(Hop(what="route", seen=f"{route.dst} by one of {ways}; the first is followed", passes=None))
        route = replace(route, via=route.hops[0].via, index=route.hops[0].index)
    link = None if route is None else walk.sight.link(route.index)
    at_home = any(packet.target in subnet for subnet in walk.sight.subnets)  # where a wider route may be a peer's, too
    if route is None or route.kind != UNICAST or link is None:
        seen = f"none leads to {packet.target}" if route is None else f"{route.dst} leads nowhere"
        hint = "No lease is served that has it: 'weft status' says which peers there are"
        outside = _is_outside(walk.sight, packet.target)
        if route is None and not outside:
            walk.has_ipv6(packet.target, walk.sight.bridges if at_home else walk.sight.devices, "route", seen)
        if not outside and (down := next((each for each in walk.sight.devices if not each.up), None)) is not None:
            gone = f"it is down, and with it went the route to {packet.target}"
            hint = f"ip link set {down.name} up, and restart the daemon, which makes its routes again"
            walk.drop("route", seen, Problem("VTEP-003", f"link {down.name}", gone, hint=hint))
        if outside:
            hint = "This node has no default route either" if route is None else removing(walk.sight, route)
        walk.drop("route", seen, Problem("ROUTE-001", f"route to {packet.target}", seen, hint=hint))
    peer = None if at_home else next((each for each in peers(walk.sight) if packet.target in each.subnet), None)
    if peer is not None and is_astray(walk.sight, peer, route):
        seen = f"route {row(walk.sight, route)} takes it, not the route of the lease of {peer.subnet}"
        hint = f"Leave the pod network out of what made it, or: {removing(walk.sight, route)}"
        walk.doubts("route", Problem("ROUTE-002", f"packets to {peer.subnet}", seen, hint=hint))
        return route, link
    whose = ""
    if peer is not None and route.protocol == PROTOCOL:
        whose = f", made by weft from the lease of {peer.public or peer.subnet}{peer.way and f', {peer.way}'}"
    walk.passes("route", f"{row(walk.sight, route)}{whose}")
    return route, link


def _is_outside(sight: Sight, address: Ip) -> bool:
    return not any(address in net for net in (*sight.networks_of_pods, *sight.subnets))


def _leaves_as_it_is(walk: Walk, packet: Packet) -> None:
    """No rule translates its source: its answer may not find the way."""
    by = kept(walk.sight, packet)
    if by is None:
        return
    words = f"{by} spares its target" if by else "no rule translates it"
    seen = f"{packet.source} stays as it is: {words}"
    if any(packet.target == peer.public for peer in peers(walk.sight)):  # a node knows the way to pods
        walk.hops.append(Hop(what=NAT_ON_LEAVING, seen=seen))
        return
    env = walk.sight.subnet_env
    hint = "Where the network outside has no route to the pods it can't answer them"
    if not by and env is not None:
        by_daemon = "weftd's masquerade rules are gone, which it puts back; or others come first: 'weft doctor'"
        by_plugin = "The daemon runs without --ip-masq, and no plugin masquerades: ipMasq in the CNI configuration"
        hint = f"{hint}. {by_daemon if env.ip_masq else by_plugin}"
    where = f"packets to {packet.target}"
    suspect = Problem("NFT-002", where, f"they leave as from {packet.source}: {words}", hint=hint)
    walk.hops.append(Hop(what=NAT_ON_LEAVING, seen=seen, suspect=suspect))


def _send(walk: Walk, packet: Packet, route: RouteInfo, link: LinkInfo, entry: Entry) -> NoReturn:
    inside = link in walk.sight.devices
    walk.quietly("postrouting", packet)
    before, packet = packet, walk.by_nat("postrouting", packet)
    leaves = not inside and link.kind != "bridge" and packet.state == "new" and packet.source == before.source
    if leaves and entry.kind == "pod" and _is_outside(walk.sight, packet.target) and not packet.target.is_multicast:
        _leaves_as_it_is(walk, before)
    code = "VTEP-003" if inside else "BRIDGE-006" if link.kind == "bridge" else "IFACE-002"
    walk.up(link, "out by", code, asks=None if inside else route.via or packet.target)
    if inside:
        overlay.send(walk, packet, route, link)
    at_home = any(packet.target in subnet for subnet in walk.sight.subnets)
    if at_home and (route.via is not None or _is_elsewhere(walk.sight, link)):
        seen = f"{route.dst} leads to {route.via or link.name}, and {packet.target} is for a pod of this node"
        walk.drop("delivery", seen, Problem("ROUTE-002", f"route {route.dst}", seen, hint=removing(walk.sight, route)))
    if at_home:
        _is_port(walk, packet.target, link)
    to = route.via or packet.target
    if route.via is not None or (not at_home and link.kind != "bridge"):
        walk.passes("sent", f"to {to} by {link.name}")
        walk.over("sent", to=str(to))
    walk.passes("delivered", f"to {packet.target} behind {link.name}")
    walk.over("delivered")


def _is_elsewhere(sight: Sight, link: LinkInfo) -> bool:
    """True if it has addresses, and none of this node's pods."""
    own = [a.ip for a in sight.addresses_of(link.index) if a.scope == 0]
    return bool(own) and not any(ip in subnet for ip in own for subnet in sight.subnets)
