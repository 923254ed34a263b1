"""Out of a pod, and from pod to pod of one bridge. Pure."""

from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.routing import is_own, route_to
from weft.diag.trace.hops import Hop
from weft.diag.trace.walk import Walk
from weft.model.errors import Problem
from weft.model.kernel.marks import BRIDGE_NETFILTER
from weft.model.value import replace


def leave_pod(walk: Walk, packet: Packet) -> Packet:
    """Out of a pod: by a bridge, or by a link of its own."""
    route = route_to(walk.sight, packet.source)
    link = None if route is None else walk.sight.link(route.index)
    if link is None or link.kind not in ("bridge", "veth"):
        seen = "no bridge and no link of this node leads to it"
        walk.drop("pod", seen, Problem(code="CHECK-001", where=f"pod {packet.source}", seen=seen))
    packet = replace(packet, iif=link.name)
    # A frame that a bridge passes on from port to port is not seen at the bridge itself.
    walk.up(link, "from the pod by", "BRIDGE-006", seen_there=not _is_bridged(walk.sight, packet))
    return packet


def _is_bridged(sight: Sight, packet: Packet) -> bool:
    """Tell whether a packet is for a pod on the bridge by which it came."""
    route = route_to(sight, packet.target)
    link = None if route is None else sight.link(route.index)
    if link is None or link.kind != "bridge" or link.name != packet.iif:
        return False
    return not is_own(sight, packet.target)


def bridged(walk: Walk, packet: Packet) -> None:
    """A packet to another pod on the same bridge needs no route. With bridge netfilter the rules are asked."""
    if not _is_bridged(walk.sight, packet):
        return
    name, original = BRIDGE_NETFILTER[packet.target.version], walk.original
    if walk.sight.settings.get(name) == "1":
        walk.filtered("forward", replace(packet, oif=packet.iif))
        walk.by_nat("postrouting", packet)
    elif original is not None and original.target != packet.source:
        seen = f"the bridge passes it on as from {packet.source}, and {packet.target} has asked {original.target}"
        hint = f"modprobe br_netfilter; sysctl -w {name.replace('/', '.')}=1"
        walk.drop("conntrack", seen, Problem(code="KERN-001", where=f"sysctl {name}", seen=seen, hint=hint))
    walk.passes("delivered", f"to {packet.target} on the same bridge")
    walk.over("delivered")


def bridged_by_nat(walk: Walk, packet: Packet) -> None:
    """With bridge netfilter the bridge itself passes on what NAT has sent to a pod of the same bridge.

    Without bridge netfilter the node routes it. (br_nf_pre_routing_finish in net/bridge/br_netfilter_hooks.c)
    """
    if walk.sight.settings.get(BRIDGE_NETFILTER[packet.target.version]) != "1":
        return
    if packet.target == packet.source and _is_bridged(walk.sight, packet):
        _back_by_its_port(walk, packet)
    bridged(walk, packet)


def _back_by_its_port(walk: Walk, packet: Packet) -> None:
    """A bridge sends nothing back out of the port it came from, unless that port is in hairpin mode."""
    bridge = next(link for link in walk.sight.links if link.name == packet.iif)
    modes = {link.port.hairpin for link in walk.sight.links if link.master == bridge.index and link.port is not None}
    if modes == {False}:
        seen = "hairpin is off: a pod does not reach itself by its own Service"
        where, hint = f"ports of {bridge.name}", "'weft doctor' has the command for each port"
        walk.drop("hairpin", seen, Problem(code="BRIDGE-003", where=where, seen=seen, expected="on", hint=hint))
    elif False in modes:
        walk.hops.append(Hop(what="hairpin", seen=f"on at some ports of {bridge.name} alone", passes=None))
