"""Which prefixes the uplink reaches without a gateway, from a snapshot's routes.

DirectRouting asks this of every peer on the event path, where asking the kernel would be too slow.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from typing import TypeVar

from weft.desired.uplink import UNICAST
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import RouteInfo
from weft.model.net import Net

NetT = TypeVar("NetT", IPv4Network, IPv6Network)


def onlink_prefixes(snapshot: Snapshot, index: int) -> tuple[Net, ...]:
    """The prefixes for which the main table's route leads out of link `index` with no gateway, IPv4 first.

    What a longer route sends elsewhere is cut out of the shorter one, so that membership alone is the answer:
    the kernel would find a route without a gateway for each address in the result, and for no other.
    """
    best = _best_routes(snapshot.routes).values()
    onlink = [route.dst for route in best if _is_onlink(route, index)]
    elsewhere = [route.dst for route in best if not _is_onlink(route, index)]
    return (
        *_cut([net for net in onlink if isinstance(net, IPv4Network)], elsewhere, IPv4Network),
        *_cut([net for net in onlink if isinstance(net, IPv6Network)], elsewhere, IPv6Network),
    )


def _best_routes(routes: Iterable[RouteInfo]) -> dict[Net, RouteInfo]:
    """Of several routes to one destination the kernel takes the lowest metric, the first among equals."""
    best: dict[Net, RouteInfo] = {}
    for route in routes:
        if (route.table, route.tos) == (MAIN_TABLE, 0):
            have = best.get(route.dst)
            if have is None or route.priority < have.priority:
                best[route.dst] = route
    return best


def _is_onlink(route: RouteInfo, index: int) -> bool:
    return route.kind == UNICAST and route.via is None and not route.hops and route.index == index


def _cut(nets: Iterable[NetT], elsewhere: Iterable[Net], kind: type[NetT]) -> list[NetT]:
    holes = [hole for hole in elsewhere if isinstance(hole, kind)]
    found = {piece for net in nets for piece in _without(net, [hole for hole in holes if hole.subnet_of(net)])}
    return sorted(found)


def _without(net: NetT, holes: Iterable[NetT]) -> list[NetT]:
    pieces = [net]
    for hole in holes:
        around = [piece for piece in pieces if hole.subnet_of(piece)]
        # A piece inside the hole goes as a whole; one around it is split.
        pieces = [piece for piece in pieces if piece not in around and not piece.subnet_of(hole)]
        pieces += [part for piece in around for part in piece.address_exclude(hole)]
    return pieces
