"""What sbr is asked, which table routes which address, and which routes go there (cni.md §6.5)."""

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Final

from weft.model.attachment import Cidr, IpConfig, Result
from weft.model.kernel.reported import RouteInfo, RuleInfo
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

_LARGEST_TABLE: Final = 0xFFFFFFFF
_FIRST_TABLE: Final = 100
_MAIN_PRIORITY: Final = 32766


class SbrConf(Value):
    table: Annotated[
        int | None,
        Key(
            "table",
            "The table for all addresses. Only rules that lead to it are made: its routes are yours.",
            default="a free one from 100 on for each address, with the interface's routes",
        ),
    ] = None
    gateways: Annotated[
        tuple[Ip, ...],
        Key("gateways", "Gateways of the tables' default routes instead of the addresses', at most one per family."),
    ] = ()
    source_hints: Annotated[
        bool,
        Key(
            "addSourceHints",
            "Keep the routes to the interface's subnets in the main table, with the address as source.",
        ),
    ] = False

    def gateway_for(self, ip: IpConfig) -> Ip | None:
        own = (gateway for gateway in self.gateways if gateway.version == ip.address.version)
        return next(own, ip.gateway)


def parse(config: Object) -> SbrConf:
    conf = decode_or_fail(SbrConf, config, failed="failed to parse network configuration")
    if conf.table is not None and not 0 < conf.table <= _LARGEST_TABLE:
        raise failure(f"invalid table {conf.table} (must be between 1 and {_LARGEST_TABLE})")
    found: dict[int, Ip] = {}
    for gateway in conf.gateways:
        other = found.setdefault(gateway.version, gateway)
        if other != gateway:
            raise failure(f"more than one IPv{gateway.version} gateway: {other} and {gateway}")
    return conf


class Source(Value):
    address: Cidr
    table: int
    priority: int
    gateway: Ip | None = None
    routes: tuple[int, ...] = ()


def addresses_of(result: Result, ifname: str) -> tuple[IpConfig, ...]:
    """One whose index says nothing is taken for the interface's own, as upstream does."""
    there = dict(enumerate(interface.name for interface in result.interfaces))
    return tuple(ip for ip in result.ips if there.get(-1 if ip.interface is None else ip.interface, "") in ("", ifname))


def plan(
    ips: Sequence[IpConfig], conf: SbrConf, *, routes: Sequence[RouteInfo], rules: Sequence[RuleInfo], used: set[int]
) -> tuple[Source, ...]:
    """`used` are tables with routes. With a table of the operator's own there are rules alone."""
    taken_tables = used | {rule.table for rule in rules}
    tables = (table for table in count(_FIRST_TABLE) if table not in taken_tables)
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
                gateway=conf.gateway_for(ip),
                routes=tuple(number for number, route in enumerate(routes) if _serves(route, ip.address)),
            )
        )
    return tuple(found)


def _serves(route: RouteInfo, address: Cidr) -> bool:
    if route.dst.version != address.version:
        return False
    near: list[Ip] = [ip for ip in (route.src, route.via, *(hop.via for hop in route.hops)) if ip is not None]
    return not near or any(ip in address.network for ip in near)


def is_subnet(route: RouteInfo, address: Cidr) -> bool:
    return route.dst == address.network and route.via is None and not route.hops


def rules_of(rules: Sequence[RuleInfo], addresses: Sequence[Ip]) -> list[RuleInfo]:
    hosts = {(ip, ip.max_prefixlen) for ip in addresses}
    return [rule for rule in rules if rule.src and (rule.src.network_address, rule.src.prefixlen) in hosts]
