"""sbr on the machine (cni.md §6.5).

For each address it makes a rule `from ADDRESS lookup TABLE` and a table of its own, into which the interface's routes
move from the main table. All of it is in the container's namespace and ends with it.
"""

from contextlib import ExitStack
from ipaddress import ip_network
from typing import Final

from weft.cni.attachment import veth
from weft.cni.attachment.interface import RTPROT_BOOT, reason
from weft.cni.plugins.sbr.conf import SbrConf, Source, addresses_of, is_subnet, parse, plan, rules_of
from weft.cni.sdk.startup import Call, Plugin, about
from weft.kernel.rtnetlink import route
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.attachment import Cidr, Result
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import LinkInfo, RouteInfo, RuleInfo
from weft.model.net import Ip
from weft.wire import cniresult
from weft.wire.cni import failure

NAME: Final = "sbr"

_NOT_CHAINED: Final = "This plugin must be called as chained plugin"
_DEFAULTS: Final = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


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
            _check_default(rtnl, ip.address, tables, conf.gateway_for(ip))


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
