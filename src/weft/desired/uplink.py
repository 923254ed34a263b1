"""Which interface carries the traffic between nodes: the look-ups of flannel.md §7.1–7.3, over a snapshot.

A look-up finds an interface, with the addresses that finding it has settled, or says why it did not. Nothing
here asks the kernel; the one answer that only the kernel has (`--iface-can-reach`) is passed in.
"""

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from weft.config.options import Options
from weft.config.re2 import Pattern
from weft.desired.inputs import Uplink
from weft.model.kernel.marks import ALIAS, MAIN_TABLE
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo
from weft.model.net import Ip
from weft.model.value import Value

# rtm_type of linux/rtnetlink.h.
UNICAST: Final = 1
LOCAL: Final = 2


class Found(Value):
    """An interface, the addresses that finding it has settled, and why no other interface is the one."""

    link: LinkInfo
    v4: IPv4Address | None = None
    v6: IPv6Address | None = None
    not_others: str


class NotFoundError(Exception):
    pass


class Question(Value):
    """What is known and wanted. `reach` is the kernel's route to `--iface-can-reach`, None if it has none.

    `in_use` is the uplink of before, None at a start.
    """

    options: Options
    snapshot: Snapshot
    v4: bool
    v6: bool
    reach: RouteInfo | None = None
    in_use: Uplink | None = None

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(version for version, wanted in ((4, self.v4), (6, self.v6)) if wanted)


LookUp = Callable[[], Found]


def look_ups(question: Question) -> Iterator[tuple[str, LookUp]]:
    """Give the look-ups in the order of flannel.md §7.1, each with what it is called in messages.

    When all of them fail, an uplink that is in use stays: a name or a default route that went away breaks nothing.
    """
    yield from _asked_for(question)
    if question.in_use is not None:
        yield "the uplink in use", partial(_by_use, question, question.in_use)


def _asked_for(question: Question) -> Iterator[tuple[str, LookUp]]:
    options = question.options
    for name in options.iface:
        yield f"--iface={name}", partial(_by_name, question, name)
    for pattern in options.iface_regex:
        look_up = partial(_by_pattern, question, pattern) if pattern.pattern else partial(_by_default_route, question)
        yield f"--iface-regex={pattern.pattern}", look_up
    if options.iface_can_reach is not None:
        yield f"--iface-can-reach={options.iface_can_reach}", partial(_by_reach, question, options.iface_can_reach)
    if options.iface or options.iface_regex or options.iface_can_reach is not None:
        return
    # A public address alone makes us look for the interface that owns it.
    where_v4, where_v6 = options.public_where
    if options.public_ip is not None:
        yield f"{where_v4}={options.public_ip}", partial(_by_name, question, str(options.public_ip))
    elif options.public_ipv6 is not None:
        yield f"{where_v6}={options.public_ipv6}", partial(_by_name, question, str(options.public_ipv6))
    else:
        yield "default route", partial(_by_default_route, question)


def usable(snapshot: Snapshot, index: int, version: int) -> list[AddressInfo]:
    """The addresses of an interface that nodes may use, best first (flannel.md §7.3); ties in kernel order."""
    fit = [
        address
        for address in snapshot.addresses_of(index)
        if address.ip.version == version
        and not (address.ip.is_loopback or address.ip.is_multicast or address.ip.is_unspecified)
        and not (address.deprecated or address.dad_failed)
    ]
    return sorted(fit, key=lambda address: (address.ip.is_link_local, not address.permanent, address.temporary))


def is_ours(snapshot: Snapshot, link: LinkInfo) -> bool:
    """A tunnel must not run through itself."""
    return link.alias.startswith(ALIAS) or ("link", link.name) in snapshot.ours


def _candidates(question: Question) -> list[LinkInfo]:
    links = (link for link in question.snapshot.links if not is_ours(question.snapshot, link))
    return sorted(links, key=lambda link: link.index)


def _by_name(question: Question, name: str) -> Found:
    if not name:
        return _by_default_route(question)
    try:
        address = ip_address(name)
    except ValueError:
        address = None
    if address is not None:
        return _by_address(question, address)
    link = next((link for link in question.snapshot.links if link.name == name), None)
    if link is None:
        raise NotFoundError("no interface has this name")
    if is_ours(question.snapshot, link):
        raise NotFoundError("this interface is weft's own")
    return Found(link=link, not_others="not the one named")


def _by_use(question: Question, uplink: Uplink) -> Found:
    """Whatever the name of the interface is now, as long as it has our addresses."""
    link = next((link for link in _candidates(question) if link.index == uplink.index), None)
    if link is None:
        raise NotFoundError(f"{uplink.name} is gone")
    lost = lost_address(question.snapshot, uplink)
    if lost is not None:
        raise NotFoundError(f"{link.name} has lost {lost}")
    return Found(link=link, v4=uplink.v4, v6=uplink.v6, not_others="not in use")


def lost_address(snapshot: Snapshot, uplink: Uplink) -> Ip | None:
    """None if the interface has all of them."""
    there = {address.ip for address in snapshot.addresses_of(uplink.index)}
    return next((ip for ip in (uplink.v4, uplink.v6) if ip is not None and ip not in there), None)


def _owner(question: Question, address: Ip) -> LinkInfo:
    owners = {each.index for each in question.snapshot.addresses if each.ip == address}
    for link in _candidates(question):
        if link.index in owners:
            return link
    raise NotFoundError(f"no interface has the address {address}")


def _by_address(question: Question, address: Ip) -> Found:
    link = _owner(question, address)
    v4 = address if isinstance(address, IPv4Address) and question.v4 else None
    v6 = address if isinstance(address, IPv6Address) and question.v6 else None
    public = question.options.public_ipv6
    if question.v4 and question.v6 and public is not None and public != address:
        # In dual stack the public IPv6 address must be of this interface, and then is the one in use. Q-46: an
        # IPv6 address as the name works without it; a public one that no interface has is then that of a NAT.
        try:
            other = _owner(question, public)
        except NotFoundError:
            if v4 is not None:
                raise
            other = None
        if other is not None and other.index != link.index:
            where = question.options.public_where[1]
            raise NotFoundError(f"{address} belongs to {link.name}, but {where}={public} to {other.name}")
        v6 = v6 if other is None else public
    return Found(link=link, v4=v4, v6=v6, not_others=f"does not have {address}")


def _by_pattern(question: Question, pattern: Pattern) -> Found:
    for link in _candidates(question):
        # Each interface starts afresh: an address of another one must not leak into the result.
        matched = {
            version: next(
                (each.ip for each in usable(question.snapshot, link.index, version) if pattern.search(str(each.ip))),
                None,
            )
            for version in question.versions
        }
        if all(matched.values()):
            v4, v6 = matched.get(4), matched.get(6)
            return Found(
                link=link,
                v4=v4 if isinstance(v4, IPv4Address) else None,
                v6=v6 if isinstance(v6, IPv6Address) else None,
                not_others="no match, or a later one",
            )
    for link in _candidates(question):
        if pattern.search(link.name):
            return Found(link=link, not_others="no match, or a later one")
    both = " in both families" if len(question.versions) > 1 else ""
    raise NotFoundError(f"neither an address{both} nor a name matches")


def _by_reach(question: Question, target: Ip) -> Found:
    route = question.reach
    if route is None or route.kind not in (UNICAST, LOCAL):
        raise NotFoundError("the kernel has no route there")
    if route.kind == LOCAL:
        raise NotFoundError("this is an address of this node itself; give that of another machine")
    link = question.snapshot.link(_way_out(route))
    if link is None:
        raise NotFoundError("the route there has no interface")
    if is_ours(question.snapshot, link):
        raise NotFoundError(f"the route there leads through {link.name}, which is weft's own")
    src = route.src
    return Found(
        link=link,
        v4=src if isinstance(src, IPv4Address) and question.v4 else None,
        v6=src if isinstance(src, IPv6Address) and question.v6 else None,
        not_others=f"not on the way to {target}",
    )


def _by_default_route(question: Question) -> Found:
    links = {version: _default_link(question, version) for version in question.versions}
    first, *rest = links.values()
    if any(link.index != first.index for link in rest):
        raise NotFoundError(f"the default routes differ: {links[4].name} for IPv4, {links[6].name} for IPv6")
    return Found(link=first, not_others="no default route, or one with a higher metric")


def _default_link(question: Question, version: int) -> LinkInfo:
    """The interface of the default route that the kernel itself would take: the one with the lowest metric.

    flannel takes the first in the kernel's order and refuses those with several next hops (flannel.md §12.3 item 9).
    """
    links = {link.index: link for link in _candidates(question)}
    routes = [
        route
        for route in question.snapshot.routes
        if route.dst.version == version
        and not route.dst.prefixlen
        and (route.kind, route.table, route.tos) == (UNICAST, MAIN_TABLE, 0)
        and _way_out(route) in links
    ]
    if not routes:
        raise NotFoundError(f"there is no IPv{version} default route")
    return links[_way_out(min(routes, key=lambda route: route.priority))]


def _way_out(route: RouteInfo) -> int:
    """The interface of a route; of several next hops the one with the greatest weight, the first among equals."""
    if not route.hops:
        return route.index
    return max(route.hops, key=lambda hop: hop.weight).index
