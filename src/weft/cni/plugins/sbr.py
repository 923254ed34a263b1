"""sbr: what a container sends from an interface's address leaves by that interface (cni.md §6.5).

For each address a rule `from ADDRESS lookup TABLE` and a table of its own, into which the interface's routes move from
the main table. All of it is in the container's namespace and ends with it.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import ip_network
from itertools import count
from typing import Annotated, Final

from weft.cni.attachment import veth
from weft.cni.attachment.interface import RTPROT_BOOT, reason
from weft.cni.sdk.startup import Call, Plugin, about
from weft.kernel.rtnetlink import route
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.attachment import Cidr, IpConfig, Result
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import LinkInfo, RouteInfo, RuleInfo
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire import cniresult
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

NAME: Final = "sbr"

_LARGEST_TABLE: Final = 0xFFFFFFFF
_FIRST_TABLE: Final = 100
_MAIN_PRIORITY: Final = 32766
_NOT_CHAINED: Final = "This plugin must be called as chained plugin"
_DEFAULTS: Final = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


class SbrKeys(Value):
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


class SbrConf(Value):
    """`table` None: a free one for each address; `gateways` are by family, 4 or 6."""

    table: int | None = None
    gateways: dict[int, Ip] = field(default_factory=dict)
    source_hints: bool = False


def parse(config: Object) -> SbrConf:
    keys = decode_or_fail(SbrKeys, config, failed="failed to parse network configuration")
    if keys.table is not None and not 0 < keys.table <= _LARGEST_TABLE:
        raise failure(f"invalid table {keys.table} (must be between 1 and {_LARGEST_TABLE})")
    found: dict[int, Ip] = {}
    for gateway in keys.gateways:
        other = found.setdefault(gateway.version, gateway)
        if other != gateway:
            raise failure(f"more than one IPv{gateway.version} gateway: {other} and {gateway}")
    return SbrConf(table=keys.table, gateways=found, source_hints=keys.source_hints)


class Source(Value):
    address: Cidr
    table: int
    priority: int
    gateway: Ip | None = None
    routes: tuple[int, ...] = ()


def addresses_of(result: Result, ifname: str) -> tuple[IpConfig, ...]:
    """One whose index says nothing is taken for the interface's own, as upstream does."""
    return tuple(ip for ip in result.ips if _owner(result, ip) in ("", ifname))


def _owner(result: Result, ip: IpConfig) -> str:
    if ip.interface is None or not 0 <= ip.interface < len(result.interfaces):
        return ""
    return result.interfaces[ip.interface].name


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
                gateway=conf.gateways.get(family, ip.gateway),
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


def _add(call: Call) -> bytes:
    conf = parse(call.config)
    result = call.previous(_NOT_CHAINED)
    if not result.ips:
        raise failure(f"No IP addresses supplied on interface: {call.ifname}")
    container = call.container()
    link = container.rtnl.link(call.ifname)
    if link is None:
        raise failure(f"Cannot find network interface {call.ifname}: Link not found")
    _route_by_source(call, container.rtnl, link, conf, result)
    return cniresult.render(result, call.version)


def _route_by_source(call: Call, rtnl: Rtnl, link: LinkInfo, conf: SbrConf, result: Result) -> None:
    listed = rtnl.route_messages(index=link.index)
    routes = [route.parse_route(body) for body in listed]
    sources = plan(
        addresses_of(result, call.ifname),
        conf,
        routes=routes,
        rules=rtnl.rules(),
        used={one.table for one in rtnl.routes(0)},
    )
    with ExitStack() as undo:
        for source in sources:
            ip = source.address.ip
            wanted = RuleInfo(family=ip.version, priority=source.priority, table=source.table, src=ip_network(ip))
            _do(rtnl, f"add rule for {ip}", route.add_rule(wanted))
            undo.callback(rtnl.batch, [route.delete_rule(wanted)])
            for number in source.routes:
                _do(rtnl, f"copy route {routes[number].dst}", route.copy_route(listed[number], source.table))
            if source.gateway is not None:
                # Last, because it counts more than a default route that was copied.
                default = route.add_route(
                    _DEFAULTS[source.gateway.version],
                    via=source.gateway,
                    index=link.index,
                    table=source.table,
                    protocol=RTPROT_BOOT,
                    mode="replace",
                )
                _do(rtnl, f"add default route to {source.gateway}", default)
        if conf.table is None:
            _clear_main(rtnl, link, conf, sources, routes)
        undo.pop_all()


def _clear_main(
    rtnl: Rtnl, link: LinkInfo, conf: SbrConf, sources: tuple[Source, ...], routes: list[RouteInfo]
) -> None:
    """A route that no address may take (of another family, say) stays, while upstream's loses it."""
    for one in (routes[number] for number in sorted({number for source in sources for number in source.routes})):
        hint = next((source.address for source in sources if is_subnet(one, source.address)), None)
        if conf.source_hints and hint is not None:
            if one.src is None:
                message = route.add_route(
                    one.dst,
                    index=link.index,
                    table=MAIN_TABLE,
                    scope=one.scope,
                    src=hint.ip,
                    priority=one.priority,
                    protocol=one.protocol,
                    mode="replace",
                )
                _do(rtnl, f"add source hint to {one.dst}", message)
            continue
        message = route.delete_route(
            one.dst, via=one.via, index=one.index, table=MAIN_TABLE, priority=one.priority, protocol=one.protocol
        )
        _do(rtnl, f"delete route {one.dst}", message)


def _do(rtnl: Rtnl, what: str, message: Message) -> None:
    for error in rtnl.batch([message]).values():
        raise failure(f"Failed to {what}: {reason(error)}") from error


def _delete(call: Call) -> None:
    container = call.container_if_any()
    if container is None:
        return
    link = veth.own_end(call, later=True)
    if link is None and container.rtnl.link(call.ifname) is not None:
        return
    refused: list[NetlinkError] = []
    for unwanted in rules_of(container.rtnl.rules(), _addresses(call, container.rtnl, link)):
        refused += container.rtnl.batch([route.delete_rule(unwanted)]).values()
    for error in refused:
        raise failure(f"Failed to delete rule: {reason(error)}") from error


def _addresses(call: Call, rtnl: Rtnl, link: LinkInfo | None) -> list[Ip]:
    found: list[Ip] = []
    if link is not None:
        found += [seen.ip for seen in rtnl.addresses(link.index)]
    previous = call.previous_if_any() or Result()
    return found + [ip.address.ip for ip in addresses_of(previous, call.ifname)]


def _check(call: Call) -> None:
    conf = parse(call.config)
    previous = call.previous(_NOT_CHAINED)
    rtnl = call.container().rtnl
    rules = rtnl.rules()
    for ip in addresses_of(previous, call.ifname):
        tables = {one.table for one in rules_of(rules, [ip.address.ip])}
        if not tables or (conf.table is not None and conf.table not in tables):
            expected = "a table of its own" if conf.table is None else f"table {conf.table}"
            there = ", ".join(f"table {table}" for table in sorted(tables)) or "no rule"
            raise failure(f"Failed to find rule for source {ip.address.ip}", f"expected {expected}, there is {there}")
        if conf.table is None:
            _check_default(rtnl, ip.address, tables, conf.gateways.get(ip.address.version, ip.gateway))


def _check_default(rtnl: Rtnl, address: Cidr, tables: set[int], gateway: Ip | None) -> None:
    if gateway is None:
        return
    family = address.version
    routes = [one for table in tables for one in rtnl.routes(table, family=family)]
    if not any(one.dst == _DEFAULTS[family] and one.via == gateway for one in routes):
        listed = ", ".join(map(str, sorted(tables)))
        why = f"expected a default route by {gateway} in table {listed}, there is none"
        raise failure(f"Failed to find default route for source {address.ip}", why)


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, check=_check, about=about(NAME))
