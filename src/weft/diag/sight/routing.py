"""Which route a packet takes, by rules that choose a table. Pure."""

import shlex
from collections.abc import Iterable, Iterator
from ipaddress import ip_interface
from itertools import product
from typing import Final

from weft.diag.rules.matching import ECHO, Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import Peer
from weft.model.kernel.marks import LOCAL_TABLE, MAIN_TABLE, PROTOCOL
from weft.model.kernel.reported import (
    NUD_FAILED,
    NUD_INCOMPLETE,
    NUD_PERMANENT,
    LinkInfo,
    NeighbourInfo,
    RouteInfo,
    RuleInfo,
)
from weft.model.net import Ip, Net, within
from weft.model.value import Value

UNICAST: Final = 1  # RTN_UNICAST (linux/rtnetlink.h); others lead nowhere: blackhole, unreachable, prohibit
_NAMES: Final = {6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw"}
_THROW: Final = 9  # RTN_THROW: the next rule is asked
_LOOK_UP: Final = 1  # what a rule does: FR_ACT_TO_TBL (linux/fib_rules.h)
NO_ANSWER: Final = "does not answer"  # is in what is said of a neighbour that does not tell its MAC
_UNANSWERED: Final = NUD_INCOMPLETE | NUD_FAILED
_NOWHERE: Final = (6, 7, 8)  # FR_ACT_BLACKHOLE, FR_ACT_UNREACHABLE, FR_ACT_PROHIBIT


def is_own(sight: Sight, address: Ip) -> bool:
    return any(each.ip == address for each in sight.addresses)


def address_on(sight: Sight, index: int, version: int) -> Ip | None:
    """The node's own address of a family on a link, of the widest scope."""
    own = sorted(sight.addresses_of(index), key=lambda each: each.scope)
    return next((each.ip for each in own if each.ip.version == version), None)


def route_to(sight: Sight, address: Ip) -> RouteInfo | None:
    """The main table's route of the longest prefix, of several the one with the smallest metric."""
    return _longest(sight.routes, address)


def link_of_pod(sight: Sight, pod: Ip) -> LinkInfo | None:
    """The bridge that a pod is on, or its own link on the node: its packets come in there, whatever routes lead to it.

    A bridge that is down has its address, and no route. A link with another network, as an uplink, has no pod.
    """
    found: list[tuple[int, LinkInfo]] = []
    for link in (each for each in sight.links if each.kind in ("bridge", "veth")):
        own = [each for each in sight.addresses_of(link.index) if each.scope == 0 and each.ip.version == pod.version]
        nets = [
            ip_interface(f"{each.ip}/{each.prefixlen}").network for each in own if each.prefixlen < pod.max_prefixlen
        ]
        routes = [
            route.dst for route in sight.routes if (route.index, route.kind, route.via) == (link.index, UNICAST, None)
        ]
        if not nets or any(pod in net for net in nets):
            found += [(net.prefixlen, link) for net in (*nets, *routes) if pod in net]
    return max(found, key=lambda each: each[0], default=(0, None))[1]


class Choice(Value):
    """A route for a packet. `rule` chose its table; `doubt` may have chosen another."""

    route: RouteInfo | None
    rule: RuleInfo | None = None
    doubt: str = ""


def routed(sight: Sight, packet: Packet, *, bound: str = "") -> Choice:
    """The route of a packet, by all rules in their order (ip-rule(8)); its socket is `bound` to this link."""
    version, doubt = packet.target.version, ""
    if not sight.policies:  # not seen, or none of this family
        return Choice(route=route_to(sight, packet.target))
    own = (rule for rule in sight.policies if rule.family == version and rule.table != LOCAL_TABLE)
    for rule in sorted(own, key=lambda rule: rule.priority):
        met = _is_met(rule, packet, bound)
        if met is False:
            continue
        if met is None or rule.action not in (_LOOK_UP, *_NOWHERE):
            doubt = doubt or words(rule)
            continue
        if rule.action in _NOWHERE:
            return Choice(route=None, rule=rule, doubt=doubt)
        routes = (route for route in (*sight.routes, *sight.other_routes) if route.table == rule.table)
        route = _longest(routes, packet.target)
        if route is not None and route.kind != _THROW:
            return Choice(route=route, rule=rule, doubt=doubt)
    return Choice(route=None, doubt=doubt)


def words(rule: RuleInfo) -> str:
    """The words are those of `ip rule`."""
    parts = [f"{rule.priority}:", "not" if rule.invert else "", f"from {rule.src or 'all'}"]
    parts += [f"to {rule.dst}" if rule.dst else "", f"fwmark {rule.mark:#x}/{rule.mask:#x}" if rule.mask else ""]
    parts += [f"iif {rule.iif}" if rule.iif else "", f"oif {rule.oif}" if rule.oif else "", "…" if rule.more else ""]
    parts.append(f"lookup {rule.table}" if rule.action == _LOOK_UP else f"action {rule.action}")
    return " ".join(part for part in parts if part)


def _is_met(rule: RuleInfo, packet: Packet, bound: str) -> bool | None:
    """None where nothing decides."""
    asked = [
        rule.src is None or packet.source in rule.src,
        rule.dst is None or packet.target in rule.dst,
        not rule.iif or rule.iif == (packet.iif or "lo"),
        rule.oif in ("", bound),
        True if not rule.mask else None if packet.mark is None else packet.mark & rule.mask == rule.mark,
        None if rule.more else True,
    ]
    if False in asked:
        return rule.invert
    return None if None in asked else not rule.invert


def _longest(routes: Iterable[RouteInfo], address: Ip) -> RouteInfo | None:
    version, number, width = address.version, int(address), address.max_prefixlen
    fitting = []
    for route in routes:  # of a large cluster there are thousands, and `in` takes four times as long
        net = route.dst
        if net.version == version and (number ^ int(net.network_address)) >> width - net.prefixlen == 0:
            fitting.append(route)
    return min(fitting, key=lambda route: (-route.dst.prefixlen, route.priority), default=None)


def astray(sight: Sight, peer: Peer) -> Choice | None:
    """What leads packets for a peer's pods elsewhere than the route of its lease; None if they go by that.

    Packets of pods and of the node are asked, to a usual pod and to each range that a route or rule tells apart.
    """
    choices = (routed(sight, packet) for packet in _from_here(sight, peer))
    return next((each for each in choices if not each.doubt and is_astray(sight, peer, each.route)), None)


def stopped(sight: Sight, peer: Peer) -> Choice | None:
    """What keeps outer packets for a peer's node here; None if the kernel has a way there."""
    if peer.public is None or str(peer.public) in sight.ways:
        return None
    own = next((each.ip for each in sight.addresses if each.ip.version == peer.public.version), peer.public)
    choice = routed(sight, Packet(source=own, target=peer.public, protocol="udp"))
    leads = choice.route is not None and choice.route.kind == UNICAST
    return None if choice.doubt or leads else choice


def is_astray(sight: Sight, peer: Peer, chosen: RouteInfo | None) -> bool:
    """True if a route does not lead to a peer's pods, although the route of its lease would.

    One by a device of ours gets to a node whatever table has it, as does one by the peer's own address.
    """
    devices = {link.index for link in sight.devices}
    gateway = peer.public  # of flanneld's host-gw
    unicast = (each for each in sight.routes if each.kind == UNICAST)
    leases = (
        each
        for each in unicast
        if each.protocol == PROTOCOL or each.index in devices or (gateway is not None and each.via == gateway)
    )
    own = _longest(leases, peer.subnet.network_address + 2)
    if own is None or chosen == own:
        return False
    if chosen is None or chosen.kind != UNICAST:
        return True
    return chosen.index not in devices and (chosen.via is None or chosen.via != peer.public)


def _from_here(sight: Sight, peer: Peer) -> Iterator[Packet]:
    version, to = peer.subnet.version, peer.subnet.network_address
    subnet = next((each for each in sight.subnets if each.version == version), None)
    if subnet is None:
        return
    base = subnet.network_address
    bridge = next((link.name for link in sight.bridges), "")
    routes = (route.dst for route in (*sight.routes, *sight.other_routes))
    targets = {to + 2, *_inside(peer.subnet, routes), *_inside(peer.subnet, (rule.dst for rule in sight.policies))}
    sources = {base + 2, *_inside(subnet, (rule.src for rule in sight.policies))}
    for source, target in product(sorted(sources), sorted(targets)):
        yield Packet(source=source, target=target, protocol=ECHO[version], iif=bridge)
    yield Packet(source=base, target=peer.inner or to + 2, protocol=ECHO[version])


def _inside(subnet: Net, nets: Iterable[Net | None]) -> Iterator[Ip]:
    """The first addresses of those that are parts of a subnet."""
    for net in nets:
        if net is not None and net.prefixlen > subnet.prefixlen and within(net, subnet):
            yield net.network_address


def remedy(sight: Sight, choice: Choice) -> str:
    """The command removes the route of a choice, else the rule that decides."""
    if choice.route is not None:
        return removing(sight, choice.route)
    return "" if choice.rule is None else f"ip -{choice.rule.family} rule delete priority {choice.rule.priority}"


def removing(sight: Sight, route: RouteInfo) -> str:
    return f"ip -{route.dst.version} route delete {row(sight, route)}"


def row(sight: Sight, route: RouteInfo) -> str:
    """The words are those of `ip route`, with the table unless that is the main one."""
    link = sight.link(route.index)
    words = [*([_NAMES[route.kind]] if route.kind in _NAMES else []), str(route.dst)]
    words += ["via", str(route.via)] if route.via is not None else []
    words += ["dev", link.name] if link is not None and route.kind == UNICAST else []
    return shlex.join([*words, *(["table", str(route.table)] if route.table != MAIN_TABLE else [])])


def silent_neighbour(sight: Sight, node: Ip) -> str:
    """Say that the next machine on the way to a node does not tell its MAC; empty if it does.

    The kernel may have asked it some time ago: only packets tell it that the machine is back.
    """
    hop = _next_machine(sight, node)
    return "" if hop is None else unanswered(sight, *hop)


def fixed_neighbour(sight: Sight, node: Ip) -> str:
    """Say that the MAC of the next machine on the way to a node was set by somebody; empty if the kernel has asked."""
    hop = _next_machine(sight, node)
    entry = None if hop is None else _entry(sight, *hop)
    if hop is None or entry is None or not entry.state & NUD_PERMANENT:
        return ""
    return f"{hop[1]} has a permanent neighbour entry on {hop[0].name}, {entry.mac}"


def _next_machine(sight: Sight, node: Ip) -> tuple[LinkInfo, Ip] | None:
    link = link_towards(sight, node)
    if link is None:
        return None
    own = address_on(sight, link.index, node.version) or node
    route = routed(sight, Packet(source=own, target=node, protocol="udp"), bound=link.name).route
    return link, node if route is None or route.via is None or route.index != link.index else route.via


def _entry(sight: Sight, link: LinkInfo, address: Ip) -> NeighbourInfo | None:
    return next((each for each in sight.neighbours if (each.index, each.ip) == (link.index, address)), None)


def unanswered(sight: Sight, link: LinkInfo, address: Ip) -> str:
    """The text is empty if the address answers, or was not asked."""
    entry = _entry(sight, link, address)
    if entry is None or not entry.state & _UNANSWERED:
        return ""
    return f"{address} {NO_ANSWER} {'ARP' if address.version == 4 else 'neighbour discovery'} on {link.name}"


def link_towards(sight: Sight, node: Ip) -> LinkInfo | None:
    """Where no route leads there now, it is the link that has the node's network."""
    found = sight.link(sight.ways.get(str(node), 0))
    if found is not None:
        return found
    fitting = (a.index for a in sight.addresses if node in ip_interface(f"{a.ip}/{a.prefixlen}").network)
    return sight.link(next(fitting, 0))
