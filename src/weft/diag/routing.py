"""Which route a packet takes, by the main table alone: the machine's own addresses are told by `is_own`. Pure."""

from ipaddress import ip_interface
from typing import Final

from weft.diag.sight import Sight
from weft.model.net import Ip
from weft.model.reported import LinkInfo, RouteInfo

UNICAST: Final = 1  # RTN_UNICAST (linux/rtnetlink.h); others lead nowhere: blackhole, unreachable, prohibit


def is_own(sight: Sight, address: Ip) -> bool:
    """Tell whether an address is one of the node's."""
    return any(each.ip == address for each in sight.addresses)


def address_on(sight: Sight, index: int, version: int) -> Ip | None:
    """The node's own address of a family on a link; None if it has none."""
    return next((each.ip for each in sight.addresses_of(index) if each.ip.version == version), None)


def route_to(sight: Sight, address: Ip) -> RouteInfo | None:
    """The route of the longest prefix, and of those the one with the smallest metric; None if there is none."""
    fitting = [route for route in sight.routes if route.dst.version == address.version and address in route.dst]
    return min(fitting, key=lambda route: (-route.dst.prefixlen, route.priority), default=None)


def link_towards(sight: Sight, node: Ip) -> LinkInfo | None:
    """The link by which a node is reached, or where no route leads there now, the one that has its network."""
    found = sight.link(sight.ways.get(str(node), 0))
    if found is not None:
        return found
    fitting = (a.index for a in sight.addresses if node in ip_interface(f"{a.ip}/{a.prefixlen}").network)
    return sight.link(next(fitting, 0))
