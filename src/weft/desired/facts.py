"""This machine, as far as the network cares: uplink, addresses, what is on-link (flannel.md §7).

Pure: a snapshot and settings go in, values come out, with one line for people that says what was chosen and why
nothing else was.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeVar

from weft.config.netconf import IpT, NetConf
from weft.config.options import Options
from weft.desired.inputs import Facts, Uplink
from weft.desired.uplink import UNICAST, Found, NotFoundError, Question, is_ours, look_ups, lost_address, usable
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import NO_CARRIER, LinkInfo, RouteInfo
from weft.model.net import Net
from weft.model.text import some_of

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


_CODE: Final = "IFACE-001"
# A node may have a thousand pods' links: the line names so many others and counts the rest.
_NAMED: Final = 8


def select(
    options: Options,
    snapshot: Snapshot,
    *,
    v4: bool,
    v6: bool,
    reach: RouteInfo | None = None,
    in_use: Uplink | None = None,
) -> tuple[Facts, str]:
    """Choose the uplink and our addresses for the wanted families; the text is the line for the log.

    `reach` is the kernel's route to `options.iface_can_reach` (None if it has none), `in_use` the uplink of before.
    Raises `ConfigError` with a problem for each look-up that failed, and what interfaces there are.
    """
    question = Question(options=options, snapshot=snapshot, v4=v4, v6=v6, reach=reach, in_use=in_use)
    failed: list[Problem] = []
    for flag, look_up in look_ups(question):
        try:
            found = look_up()
            link = found.link
            v4_address = _address(question, link, found.v4, version=4, kind=IPv4Address) if v4 else None
            v6_address = _address(question, link, found.v6, version=6, kind=IPv6Address) if v6 else None
            if not link.mtu:
                raise NotFoundError(f"{link.name} has MTU 0")
        except NotFoundError as error:
            failed.append(Problem(code=_CODE, where=flag, seen=str(error)))
            continue
        facts = Facts(
            uplink=Uplink(name=link.name, index=link.index, mtu=link.mtu, v4=v4_address, v6=v6_address),
            public_v4=(options.public_ip or v4_address) if v4 else None,
            public_v6=(options.public_ipv6 or v6_address) if v6 else None,
            onlink=onlink_prefixes(snapshot, link.index),
        )
        return facts, _explain(question, facts, found, flag=flag, failed=failed)
    *others, last = failed
    told = next((f"correct the {each}, or " for each in options.public_where if not each.startswith("--")), "")
    name = f"{told}name the interface with --iface"
    hint = f"{name[0].upper()}{name[1:]}. This node has: {_inventory(snapshot)}."
    raise ConfigError(*others, Problem(code=_CODE, where=last.where, seen=last.seen, hint=hint))


def ailing(uplink: Uplink, snapshot: Snapshot) -> Problem | None:
    """What keeps packets from the uplink that is in use: it is gone or down, or has lost its carrier or our address."""
    link = snapshot.link(uplink.index)
    if link is None:
        seen = "it is gone"
    elif not link.up:
        seen = "it is down"
    elif link.operstate in NO_CARRIER:
        seen = "it has no carrier"
    elif (lost := lost_address(snapshot, uplink)) is not None:
        seen = f"it has lost {lost}"
    else:
        return None
    hint = "Routes and devices are left as they are; weftd goes on as soon as the interface is back"
    expected = "an interface that is up and has the address that peers were told"
    return Problem(code="IFACE-002", where=f"uplink {uplink.name}", seen=seen, expected=expected, hint=hint)


def overlaps(netconf: NetConf, facts: Facts) -> tuple[Problem, ...]:
    """Find what would break the underlay: subnets that nodes may get and that lie where the nodes themselves are."""
    return tuple(
        Problem(
            code="ADDR-001",
            where=f"net-conf: {name}",
            seen=f"{pool.first} to {pool.last} overlap {net}, where {facts.uplink.name} reaches the nodes",
            expected="pod subnets apart from the nodes' own network",
            hint=f"Choose another {name}, or bounds (SubnetMin, SubnetMax) that leave {net} out.",
        )
        for name, pool in (("Network", netconf.v4), ("IPv6Network", netconf.v6))
        if pool is not None
        for net in facts.onlink
        if net.version == pool.network.version
        # A default route without a gateway makes everything on-link and says nothing about where nodes are.
        and net.prefixlen
        and _meet(net, int(pool.first), int(pool.last) + (1 << (net.max_prefixlen - pool.subnet_len)) - 1)
    )


def _meet(net: Net, low: int, high: int) -> bool:
    return int(net.network_address) <= high and int(net.broadcast_address) >= low


def _address(question: Question, link: LinkInfo, settled: IpT | None, *, version: int, kind: type[IpT]) -> IpT:
    if settled is not None:
        return settled
    fit = usable(question.snapshot, link.index, version)
    best = next((address.ip for address in fit if isinstance(address.ip, kind)), None)
    if best is None:
        raise NotFoundError(f"{link.name} has no usable IPv{version} address")
    return best


def _explain(question: Question, facts: Facts, found: Found, *, flag: str, failed: Sequence[Problem]) -> str:
    uplink = facts.uplink
    own = [str(address) for address in (uplink.v4, uplink.v6) if address is not None]
    text = f"uplink {uplink.name} (index {uplink.index}, MTU {uplink.mtu}) with {', '.join(own)}, by {flag}"
    public = [
        str(seen)
        for seen, address in ((facts.public_v4, uplink.v4), (facts.public_v6, uplink.v6))
        if seen is not None and seen != address
    ]
    if public:
        text += f"; peers are told {', '.join(public)}"
    parts = [f"{problem.where}: {problem.seen}" for problem in failed] + _others(question, found)
    return f"{text}; not: {'; '.join(parts)}" if parts else text


def _others(question: Question, found: Found) -> list[str]:
    """Those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for link in question.snapshot.links:
        if link.index != found.link.index:
            reasons.setdefault(_why_not(question, found, link), []).append(_with_addresses(question.snapshot, link))
    return [f"{_some(names)} ({reason})" for reason, names in reasons.items()]


def _why_not(question: Question, found: Found, link: LinkInfo) -> str:
    if is_ours(question.snapshot, link):
        return "made by weft"
    for version in question.versions:
        if not usable(question.snapshot, link.index, version):
            return f"no usable IPv{version} address"
    return found.not_others


def _inventory(snapshot: Snapshot) -> str:
    return _some([_with_addresses(snapshot, link) for link in snapshot.links if not is_ours(snapshot, link)])


def _with_addresses(snapshot: Snapshot, link: LinkInfo) -> str:
    return " ".join((link.name, *(f"{each.ip}/{each.prefixlen}" for each in snapshot.addresses_of(link.index))))


def _some(names: Sequence[str]) -> str:
    return some_of(names, _NAMED) or "none"
