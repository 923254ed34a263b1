"""Which address of an interface is routed by which table, and which routes go there (cni.md §6.5)."""

from collections.abc import Iterator, Sequence
from typing import Final

from weft.model.attachment import Cidr, IpConfig, Result
from weft.model.kernel.reported import RouteInfo, RuleInfo
from weft.model.net import Ip
from weft.model.value import Value, field

_FIRST_TABLE: Final = 100
_MAIN_PRIORITY: Final = 32766


class SbrConf(Value):
    """What sbr is asked. `table` None: a free one for each address; `gateways` are by family, 4 or 6."""

    table: int | None = None
    gateways: dict[int, Ip] = field(default_factory=dict)
    source_hints: bool = False


class Source(Value):
    """Packets from `address` are routed by `table`. `routes` are positions in the list of the interface's routes."""

    address: Cidr
    table: int
    priority: int
    gateway: Ip | None = None
    routes: tuple[int, ...] = ()


def addresses_of(result: Result, ifname: str) -> tuple[IpConfig, ...]:
    """Return the addresses of an interface. One whose index says nothing is taken for its own, as upstream does."""
    return tuple(ip for ip in result.ips if _owner(result, ip) in ("", ifname))


def _owner(result: Result, ip: IpConfig) -> str:
    if ip.interface is None or not 0 <= ip.interface < len(result.interfaces):
        return ""
    return result.interfaces[ip.interface].name


def plan(
    ips: Sequence[IpConfig], conf: SbrConf, *, routes: Sequence[RouteInfo], rules: Sequence[RuleInfo], used: set[int]
) -> tuple[Source, ...]:
    """Return what to make for each address: `routes` are the interface's in the main table, `used` tables with routes.

    With a table of the operator's own there are rules alone: its routes are his.
    """
    tables = _free_tables(used | {rule.table for rule in rules})
    found: list[Source] = []
    for ip in ips:
        family = ip.address.version
        # As the kernel would: before the first rule that there is, and so before those made for earlier addresses.
        taken = [rule.priority for rule in rules if rule.family == family and rule.priority]
        taken += [source.priority for source in found if source.address.version == family]
        priority = min(taken, default=_MAIN_PRIORITY) - 1
        if conf.table is not None:
            found.append(Source(address=ip.address, table=conf.table, priority=priority))
            continue
        found.append(
            Source(
                address=ip.address,
                table=next(tables),
                priority=priority,
                gateway=conf.gateways.get(family, ip.gateway),
                routes=tuple(number for number, route in enumerate(routes) if _serves(route, ip.address)),
            )
        )
    return tuple(found)


def _free_tables(used: set[int]) -> Iterator[int]:
    table = _FIRST_TABLE
    while True:
        if table not in used:
            yield table
        table += 1


def _serves(route: RouteInfo, address: Cidr) -> bool:
    """Tell whether packets from an address may take a route: its source or gateway is near, or it has neither."""
    if route.dst.version != address.version:
        return False
    near: list[Ip] = [ip for ip in (route.src, route.via, *(hop.via for hop in route.hops)) if ip is not None]
    return not near or any(ip in address.network for ip in near)


def is_subnet(route: RouteInfo, address: Cidr) -> bool:
    """Tell whether a route is the way to an address's own subnet."""
    return route.dst == address.network and route.via is None and not route.hops


def rules_of(rules: Sequence[RuleInfo], addresses: Sequence[Ip]) -> list[RuleInfo]:
    """Return the rules whose source is one of these addresses and nothing wider."""
    hosts = {(ip, ip.max_prefixlen) for ip in addresses}
    return [rule for rule in rules if rule.src and (rule.src.network_address, rule.src.prefixlen) in hosts]
