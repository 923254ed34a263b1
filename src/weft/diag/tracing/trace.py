"""Predicts what a packet of pods passes on a node: from the sight alone, as the kernel would decide. Pure.

Followed are the rules of NAT, as those of Services are, rules and tables of routing, the filtering rules of nf_tables,
neighbours and FDB entries.
"""

from typing import Final, Literal, NoReturn

from weft.diag.checks.mending import setting
from weft.diag.checks.owners import FIREWALLD, owner_of
from weft.diag.rules.matching import Packet
from weft.diag.rules.translating import behind
from weft.diag.rules.verdict import judge
from weft.diag.sight import Sight, peers
from weft.diag.tracing.hops import Addressed, End, Hop, Way
from weft.diag.tracing.routing import UNICAST, Choice, address_on, is_own, link_towards, route_to, routed, words
from weft.model.errors import Problem
from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING, MAIN_TABLE, PROTOCOL
from weft.model.kernel.reported import NO_CARRIER, LinkInfo, RouteInfo
from weft.model.net import Ip
from weft.model.value import Value, replace

_PERMANENT: Final = 0x80
_ITS_TASK: Final = "The node's daemon puts it there from the peer's lease: 'weft status' says what it knows of the peer"


class Entry(Value):
    """Where a packet comes from: a pod of this node, the node itself, or elsewhere: of a peer, by its public IP.

    `wrapped` is whether a peer sent it through the overlay.
    """

    kind: Literal["pod", "node", "remote"]
    remote: Ip | None = None
    wrapped: bool = True


class _OverError(Exception):
    """The packet's way on this node is over: `way` is how, without the hops."""

    def __init__(self, way: Way) -> None:
        super().__init__(way.end)
        self.way = way


def follow(sight: Sight, packet: Packet, entry: Entry, *, original: Packet | None = None) -> Way:
    """Follow a packet through a node, from where it enters until it is delivered, sent on or dropped.

    Of an answer `original` is the packet that it answers, as that came to this node: connection tracking knows it.
    """
    walk = _Walk(sight, original)
    try:
        walk.go(packet, entry)
    except _OverError as over:
        doubt = over.way.end != "dropped" and any(hop.passes is None for hop in walk.hops)
        end: End = "undecided" if doubt else over.way.end
        return replace(over.way, hops=tuple(walk.hops), end=end, packet=addressed(walk.packet))


def addressed(packet: Packet) -> Addressed:
    """A packet's addresses and ports."""
    return Addressed(
        source=str(packet.source),
        target=str(packet.target),
        source_port=packet.source_port,
        target_port=packet.target_port,
    )


class _Walk:
    """A packet under way; each step adds hops, and the last one raises `_OverError`."""

    def __init__(self, sight: Sight, original: Packet | None) -> None:
        self.hops: list[Hop] = []
        self.packet: Packet
        self._sight = sight
        self._original = original

    def go(self, packet: Packet, entry: Entry) -> NoReturn:
        """All steps."""
        self.packet = packet
        if entry.kind == "remote":
            packet = self._arrive(packet, entry)
        elif entry.kind == "pod":
            packet = self._leave_pod(packet)
            self._bridged(packet)
        if entry.kind == "node":
            self._leave_node(packet)
            packet = self._by_nat("output", packet)
        else:
            self._quietly("prerouting", packet)
            packet = self._by_nat("prerouting", packet)
        if is_own(self._sight, packet.target):
            packet = replace(packet, iif=packet.iif or "lo")
            self._filtered("input", packet)
            self._by_nat("input", packet)
            self._pass("delivered", f"{packet.target} is this node's own")
            self._over("delivered")
        if entry.kind != "node":
            self._forwarded(packet)
        route, link = self._routed(packet)
        packet = replace(packet, oif=link.name)
        self._filtered("output" if entry.kind == "node" else "forward", packet)
        self._send(packet, route, link)

    def _leave_node(self, packet: Packet) -> None:
        """A packet of the node's own needs a route before NAT may change where it goes."""
        if not is_own(self._sight, packet.target) and routed(self._sight, packet).route is None:
            self._routed(packet)

    def _by_nat(self, hook: str, packet: Packet) -> Packet:
        """The packet behind the chains for NAT of a hook."""
        packet, hops = behind(self._sight, hook, packet, self._original)
        self.hops += hops
        self.packet = packet
        return packet

    def _pass(self, what: str, seen: str, device: str = "") -> None:
        self.hops.append(Hop(what=what, seen=seen, device=device))

    def _drop(self, what: str, seen: str, problem: Problem) -> NoReturn:
        self.hops.append(Hop(what=what, seen=seen, passes=False))
        raise _OverError(Way(hops=(), end="dropped", problem=problem))

    def _over(self, end: End, to: str = "", carried: str = "") -> NoReturn:
        raise _OverError(Way(hops=(), end=end, to=to, carried=carried))

    def _leave_pod(self, packet: Packet) -> Packet:
        route = route_to(self._sight, packet.source)
        link = None if route is None else self._sight.link(route.index)
        if link is None or link.kind not in ("bridge", "veth"):
            seen = "no bridge and no link of this node leads to it"
            self._drop("pod", seen, Problem(code="CHECK-001", where=f"pod {packet.source}", seen=seen))
        packet = replace(packet, iif=link.name)
        # A frame that a bridge passes on from port to port is not seen at the bridge itself.
        self._up(link, "from the pod by", "BRIDGE-006", seen_there=not self._is_bridged(packet))
        return packet

    def _is_bridged(self, packet: Packet) -> bool:
        """Tell whether a packet is for another pod on the same bridge."""
        route = route_to(self._sight, packet.target)
        link = None if route is None else self._sight.link(route.index)
        if link is None or link.kind != "bridge" or link.name != packet.iif:
            return False
        return not is_own(self._sight, packet.target)

    def _bridged(self, packet: Packet) -> None:
        """To another pod on the same bridge no route leads; rules are asked where bridge netfilter is on."""
        if not self._is_bridged(packet):
            return
        name, original = BRIDGE_NETFILTER[packet.target.version], self._original
        if self._sight.settings.get(name) == "1":
            self._filtered("forward", replace(packet, oif=packet.iif))
            self._by_nat("postrouting", packet)
        elif original is not None and original.target != packet.source:
            seen = f"the bridge passes it on as from {packet.source}, and {packet.target} has asked {original.target}"
            hint = f"modprobe br_netfilter; sysctl -w {name.replace('/', '.')}=1"
            self._drop("conntrack", seen, Problem(code="KERN-001", where=f"sysctl {name}", seen=seen, hint=hint))
        self._pass("delivered", f"to {packet.target} on the same bridge")
        self._over("delivered")

    def _arrive(self, packet: Packet, entry: Entry) -> Packet:
        """From another node in an outer packet, where the back end has a device; else by the way back."""
        sight, remote = self._sight, entry.remote
        if remote is None:
            back = route_to(sight, packet.source)
            link = None if back is None else sight.link(back.index)
            return replace(packet, iif="" if link is None else link.name)
        carrier = self._carrier(packet) if entry.wrapped else None
        by = link_towards(sight, remote)
        if by is not None:
            self._up(by, "received by", "IFACE-002", carrier=True)
        if carrier is None:
            return replace(packet, iif="" if by is None else by.name)
        address = None if by is None else address_on(sight, by.index, remote.version)
        port = next((device.port for device in sight.vxlans if device.name == carrier.name), 0)
        if by is not None and address is not None and port:
            outer = Packet(source=remote, target=address, protocol="udp", iif=by.name, source_port=1, target_port=port)
            self._quietly("prerouting", outer)
            self._filtered("input", outer, code="REACH-001")
        self._up(carrier, "unwrapped by", "VTEP-003")
        return replace(packet, iif=carrier.name)

    def _carrier(self, packet: Packet) -> LinkInfo | None:
        """The device by which packets of a family come: the one that has an address of it."""
        devices = self._sight.devices
        version = packet.target.version
        own = (device for device in devices if address_on(self._sight, device.index, version) is not None)
        return next(own, devices[0] if devices else None)

    def _up(self, link: LinkInfo, what: str, code: str, *, carrier: bool = False, seen_there: bool = True) -> None:
        """A link that must be up; one between nodes must have a `carrier`, too."""
        if not link.up:
            hint = f"ip link set {link.name} up"
            problem = Problem(code=code, where=f"link {link.name}", seen="it is down", hint=hint)
            self._drop(what, f"{link.name} is down", problem)
        if carrier and link.operstate in NO_CARRIER:
            problem = Problem(
                code=code, where=f"link {link.name}", seen="it has no carrier", hint="See its cable or peer"
            )
            self._drop(what, f"{link.name} has no carrier", problem)
        self._pass(what, f"{link.name}, MTU {link.mtu}", device=link.name if seen_there else "")

    def _forwarded(self, packet: Packet) -> None:
        version = packet.target.version
        # Links have one of their own in IPv4; in IPv6 none that counts, and none is in a sight.
        for name in (FORWARDING[version], f"net/ipv{version}/conf/{packet.iif}/forwarding"):
            if self._sight.settings.get(name) == "0":
                hint = str(setting(name, "1", ""))
                problem = Problem(code="KERN-002", where=f"sysctl {name}", seen="it is 0", hint=hint)
                self._drop("forwarding", f"{name} is 0", problem)

    def _chosen(self, packet: Packet, choice: Choice, *, code: str = "ROUTE-001") -> None:
        """What rules say of a packet that choose a table, where that is not the main one."""
        if choice.doubt:
            seen = f"undecided: the rule '{choice.doubt}' may choose another table"
            self.hops.append(Hop(what="policy", seen=seen, passes=None))
        if choice.rule is None or choice.rule.table == MAIN_TABLE:
            return
        seen = f"rule {words(choice.rule)}"
        if choice.route is None or choice.route.kind != UNICAST:
            hint = f"'ip rule delete priority {choice.rule.priority}' removes it"
            self._drop("policy", seen, Problem(code=code, where=f"way of {packet}", seen=seen, hint=hint))
        self._pass("policy", seen)

    def _routed(self, packet: Packet) -> tuple[RouteInfo, LinkInfo]:
        choice = routed(self._sight, packet)
        self._chosen(packet, choice)
        route = choice.route
        if route is not None and route.hops:
            ways = ", ".join(str(hop.via or self._sight.link(hop.index)) for hop in route.hops)
            self.hops.append(
                Hop(what="route", seen=f"{route.dst} by one of {ways}; the first is followed", passes=None)
            )
            route = replace(route, via=route.hops[0].via, index=route.hops[0].index)
        link = None if route is None else self._sight.link(route.index)
        if route is None or route.kind != UNICAST or link is None:
            seen = f"none leads to {packet.target}" if route is None else f"{route.dst} leads nowhere"
            hint = "No lease is served that has it: 'weft status' says which peers there are"
            where = f"route to {packet.target}"
            self._drop("route", seen, Problem(code="ROUTE-001", where=where, seen=seen, hint=hint))
        via = "" if route.via is None else f" via {route.via}"
        whose = ", weft's for a lease" if route.protocol == PROTOCOL else ""
        self._pass("route", f"{route.dst}{via} dev {link.name}{whose}")
        return route, link

    def _filtered(self, hook: str, packet: Packet, *, code: str = "FW-002") -> None:
        what = f"rules at {hook}"
        if "rules" in self._sight.unseen:
            self.hops.append(Hop(what=what, seen=f"not seen: {self._sight.unseen['rules']}", passes=None))
            return
        verdict = judge(self._sight.rules, hook, packet)
        if verdict.passes is False:
            seen = f"dropped by {verdict.by}"
            owner = None if verdict.place is None else owner_of(self._sight.rules, verdict.place)
            whose = "the program that made it" if owner is None else owner.name
            hint = f"Have {whose} accept this; an accept elsewhere does not help"
            code = "FW-001" if owner is FIREWALLD and code == "FW-002" else code
            problem = Problem(code=code, where=f"{hook} of {packet}", seen=seen, hint=hint)
            self._drop(what, f"{packet}: {seen}", problem)
        seen = "accepted" if verdict.passes else f"undecided: {verdict.by}"
        self.hops.append(Hop(what=what, seen=f"{packet}: {seen}", passes=verdict.passes))

    def _quietly(self, hook: str, packet: Packet, *, code: str = "FW-002") -> None:
        """As `_filtered`, at a hook where few have rules: a hop only if it says something."""
        if judge(self._sight.rules, hook, packet).passes is not True:
            self._filtered(hook, packet, code=code)

    def _send(self, packet: Packet, route: RouteInfo, link: LinkInfo) -> NoReturn:
        inside = link in self._sight.devices
        self._quietly("postrouting", packet)
        packet = self._by_nat("postrouting", packet)
        self._up(link, "out by", "VTEP-003" if inside else "BRIDGE-006" if link.kind == "bridge" else "IFACE-002")
        if inside:
            self._send_inside(packet, route, link)
        at_home = any(packet.target in subnet for subnet in self._sight.subnets)
        if at_home and (route.via is not None or self._is_elsewhere(link)):
            seen = f"{route.dst} leads to {route.via or link.name}, and {packet.target} is for a pod of this node"
            hint = f"ip route delete {route.dst} dev {link.name}"
            where = f"route {route.dst}"
            self._drop("delivery", seen, Problem(code="ROUTE-002", where=where, seen=seen, hint=hint))
        if route.via is not None or (not at_home and link.kind != "bridge"):
            to = route.via or packet.target
            self._pass("sent", f"to {to} by {link.name}")
            self._over("sent", to=str(to))
        self._pass("delivered", f"to {packet.target} behind {link.name}")
        self._over("delivered")

    def _is_elsewhere(self, link: LinkInfo) -> bool:
        """Tell whether a link is of another network than this node's pods: it has addresses, and none of theirs."""
        own = [a.ip for a in self._sight.addresses_of(link.index) if a.scope == 0]
        return bool(own) and not any(ip in subnet for ip in own for subnet in self._sight.subnets)

    def _send_inside(self, packet: Packet, route: RouteInfo, link: LinkInfo) -> NoReturn:
        """Into the overlay: to which node, and wrapped in what."""
        peer = next((each for each in peers(self._sight) if packet.target in each.subnet), None)
        remote = None if peer is None else peer.public
        if link.kind == "vxlan" and route.via is not None:
            remote = self._behind(route.via, link)
        if remote is None and link.kind == "ipip":
            remote = route.via
        if remote is None and link.kind != "vxlan" and self._sight.daemon is None:
            self.hops.append(Hop(what="peer", seen=f"{link.name} knows to which node", passes=None))
            self._over("sent")
        if remote is None:
            seen = f"{link.name} knows no node that has {packet.target}"
            self._drop("peer", seen, Problem(code="FDB-001", where=f"link {link.name}", seen=seen, hint=_ITS_TASK))
        device = next((each for each in self._sight.vxlans if each.name == link.name), None)
        carried = f"VXLAN {device.vni}, UDP port {device.port}" if device is not None else link.kind
        out = link_towards(self._sight, remote)
        if out is None:
            seen = f"no route leads to {remote}"
            self._drop("outer packet", seen, Problem(code="REACH-001", where=f"node {remote}", seen=seen))
        self._up(out, "outer packet by", "IFACE-002", carrier=True)
        own = address_on(self._sight, out.index, remote.version)
        if device is not None and own is not None:
            outer = Packet(source=own, target=remote, protocol="udp", oif=out.name, target_port=device.port)
            self._chosen(outer, routed(self._sight, outer, bound=out.name), code="REACH-001")
            for hook in ("output", "postrouting"):
                self._quietly(hook, outer, code="REACH-001")
        self._pass("sent", f"to {remote} in {carried}")
        self._over("sent", to=str(remote), carried=carried)

    def _behind(self, gateway: Ip, link: LinkInfo) -> Ip:
        """The node behind which a VXLAN device's gateway is."""
        sight = self._sight
        neighbour = next((n for n in sight.neighbours if (n.index, n.ip) == (link.index, gateway)), None)
        if neighbour is None or neighbour.mac is None or not neighbour.state & _PERMANENT:
            seen = f"{gateway} has no permanent entry on {link.name}"
            problem = Problem(code="FDB-001", where=f"neighbour {gateway}", seen=seen, hint=_ITS_TASK)
            self._drop("neighbour", seen, problem)
        self._pass("neighbour", f"{gateway} is at {neighbour.mac}")
        entry = next((e for e in sight.fdb if (e.index, e.mac) == (link.index, neighbour.mac)), None)
        if entry is None or entry.remote is None:
            seen = f"no entry of {link.name} has {neighbour.mac}"
            self._drop("FDB", seen, Problem(code="FDB-001", where=f"fdb {neighbour.mac}", seen=seen, hint=_ITS_TASK))
        self._pass("FDB", f"{neighbour.mac} is behind {entry.remote}")
        return entry.remote
