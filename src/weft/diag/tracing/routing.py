"""Which route a packet takes, by rules that choose a table; the machine's own addresses are told by `is_own`. Pure."""

from collections.abc import Iterable
from ipaddress import ip_interface
from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.sight import Sight
from weft.model.kernel.reported import LinkInfo, RouteInfo, RuleInfo
from weft.model.net import Ip
from weft.model.value import Value

UNICAST: Final = 1  # RTN_UNICAST (linux/rtnetlink.h); others lead nowhere: blackhole, unreachable, prohibit
_THROW: Final = 9  # RTN_THROW: the next rule is asked
_LOCAL_TABLE: Final = 255  # RT_TABLE_LOCAL
_LOOK_UP: Final = 1  # what a rule does: FR_ACT_TO_TBL (linux/fib_rules.h)
_NOWHERE: Final = (6, 7, 8)  # FR_ACT_BLACKHOLE, FR_ACT_UNREACHABLE, FR_ACT_PROHIBIT


def is_own(sight: Sight, address: Ip) -> bool:
    """Tell whether an address is one of the node's."""
    return any(each.ip == address for each in sight.addresses)


def address_on(sight: Sight, index: int, version: int) -> Ip | None:
    """The node's own address of a family on a link, rather than one that counts there alone; None if it has none."""
    own = sorted(sight.addresses_of(index), key=lambda each: each.scope)
    return next((each.ip for each in own if each.ip.version == version), None)


def route_to(sight: Sight, address: Ip) -> RouteInfo | None:
    """The main table's route of the longest prefix, of those that with the smallest metric; None if there is none."""
    return _longest(sight.routes, address)


class Choice(Value):
    """A route for a packet, None if there is none. `rule` chose its table; `doubt` may have chosen another."""

    route: RouteInfo | None
    rule: RuleInfo | None = None
    doubt: str = ""


def routed(sight: Sight, packet: Packet, *, bound: str = "") -> Choice:
    """The route of a packet, by all rules in their order (ip-rule(8)); `bound` is the link to which its socket is."""
    version, doubt = packet.target.version, ""
    if not sight.policies:  # not seen, or none of this family
        return Choice(route=route_to(sight, packet.target))
    own = (rule for rule in sight.policies if rule.family == version and rule.table != _LOCAL_TABLE)
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
    """A rule as `ip rule` prints it, where its fields are told."""
    parts = [f"{rule.priority}:", "not" if rule.invert else "", f"from {rule.src or 'all'}"]
    parts += [f"to {rule.dst}" if rule.dst else "", f"fwmark {rule.mark:#x}/{rule.mask:#x}" if rule.mask else ""]
    parts += [f"iif {rule.iif}" if rule.iif else "", f"oif {rule.oif}" if rule.oif else "", "…" if rule.more else ""]
    parts.append(f"lookup {rule.table}" if rule.action == _LOOK_UP else f"action {rule.action}")
    return " ".join(part for part in parts if part)


def _is_met(rule: RuleInfo, packet: Packet, bound: str) -> bool | None:
    """Tell whether a rule is for a packet; None where that can't be told."""
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
    fitting = [route for route in routes if route.dst.version == address.version and address in route.dst]
    return min(fitting, key=lambda route: (-route.dst.prefixlen, route.priority), default=None)


def link_towards(sight: Sight, node: Ip) -> LinkInfo | None:
    """The link by which a node is reached, or where no route leads there now, the one that has its network."""
    found = sight.link(sight.ways.get(str(node), 0))
    if found is not None:
        return found
    fitting = (a.index for a in sight.addresses if node in ip_interface(f"{a.ip}/{a.prefixlen}").network)
    return sight.link(next(fitting, 0))
