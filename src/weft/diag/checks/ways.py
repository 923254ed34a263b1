"""What leads to the other nodes: routes, rules, neighbour and FDB entries, and the uplink."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from weft.diag.finding import Finding, check, finding, setting
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import Peer, peers
from weft.diag.sight.routing import (
    Choice,
    astray,
    remedy,
    row,
    stopped,
    words,
)
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import NUD_PERMANENT
from weft.model.text import counted

_NAMED: Final = 10
_MOST: Final = 50  # peers that are asked about: what leads one astray, does so with most
_ITS_TASK: Final = (
    "This node's daemon makes routes and entries from the peer's lease: restart the daemon, or see its log"
)


@check("entries", "routes to peers have their neighbour and FDB entries", "routes")
def _whole(sight: Sight) -> Iterator[Finding]:
    """Each route into a VXLAN device has its neighbour and FDB entry, and each neighbour its route.

    weftd says so itself of its peers.
    """
    if sight.daemon is not None:
        return
    indexes = {link.index for link in sight.devices if link.kind == "vxlan"}
    macs = {(each.index, each.ip): each.mac for each in sight.neighbours if each.state & NUD_PERMANENT}
    known = {(entry.index, entry.mac) for entry in sight.fdb}
    for route in sight.routes:
        if route.index not in indexes or route.via is None:
            continue
        link, mac = sight.link(route.index), macs.get((route.index, route.via))
        where = f"route {route.dst} via {route.via} dev {link.name if link else route.index}"
        if mac is None:
            seen = "its gateway has no neighbour entry"
        elif (route.index, mac) not in known:
            seen = f"no FDB entry says behind which node {mac} is"
        else:
            continue
        yield finding("FDB-001", where, seen, _ITS_TASK)
    yield from _one_family(sight)
    gateways = {(route.index, route.via) for route in sight.routes}
    for index, ip in macs:
        if index in indexes and (index, ip) not in gateways:
            seen, where = "its neighbour entry is here, but its route is missing", f"the peer behind {ip}"
            yield finding("ROUTE-001", where, seen, _ITS_TASK)


def _one_family(sight: Sight) -> Iterator[Finding]:
    """Nodes of two families have peers in both: routes of one go with an address or a link."""
    reached = {peer.subnet.version for peer in peers(sight)}
    for subnet in sight.subnets:
        if reached and subnet.version not in reached:
            seen = f"no route leads to any peer's, although peers are reached by IPv{next(iter(reached))}"
            hint = "They go when the uplink loses its address: see 'ip address'. Then restart the daemon"
            yield finding("ROUTE-001", f"pods of IPv{subnet.version}", seen, hint)


def _astray(sight: Sight, uplink: str) -> list[tuple[Peer, str]]:
    found = ((peer, sight.link(sight.ways.get(str(peer.public), 0))) for peer in peers(sight))
    return [(peer, link.name) for peer, link in found if link is not None and link.name != uplink]


@check("uplink", "peers are reached through the uplink", "daemon", "links")
def _one_uplink(sight: Sight) -> Iterator[Finding]:
    state = sight.daemon
    if state is None or state.uplink is None:
        return
    astray = _astray(sight, state.uplink.name)
    if astray:
        by = sorted({name for _, name in astray})
        are = "is" if len(astray) == 1 else "are"
        seen = f"{len(astray)} of {counted(len(state.peers), 'peer')} {are} reached through {', '.join(by)}"
        hint = (
            f"If that is the link to the nodes' network, start weftd with --iface={by[0]};"
            f" else mend the route to {astray[0][0].public}"
        )
        yield finding("IFACE-001", f"uplink {state.uplink.name}", seen, hint, weight="warning")


@check(
    "reverse-path",
    "the uplink takes peers' packets, whichever link answers go through",
    "daemon",
    "links",
    "settings",
    each_minute=True,
)
def _backwards(sight: Sight) -> Iterator[Finding]:
    """Where the uplink drops what comes by another link than answers would go (rp_filter 1, RFC 3704 §2.2)."""
    state = sight.daemon
    if state is None or state.uplink is None:
        return
    everywhere, here = (f"net/ipv4/conf/{name}/rp_filter" for name in ("all", state.uplink.name))
    # The kernel takes the larger of the two: 2, which asks for any way back, before 1, which asks for the same link.
    of_all, of_link = (int(sight.settings.get(each, "0")) for each in (everywhere, here))
    astray = [
        peer for peer, _ in _astray(sight, state.uplink.name) if peer.public is not None and peer.public.version == 4
    ]
    if max(of_all, of_link) == 1 and astray:
        command = setting(here, "2", f"has {state.uplink.name} take packets for which any link leads back")
        strict, expected = (here, "2 or 0") if of_link else (everywhere, f"0, or 2 at {here}")
        if of_all and of_link:
            expected = f"2, or 0 here and at {everywhere}"
        sent = f"what {counted(len(astray), 'peer')} {'sends' if len(astray) == 1 else 'send'}"
        answers = f"answers to {'it' if len(astray) == 1 else 'them'} go through another link"
        seen = f"it is 1 (strict): {sent} is dropped, because {answers}"
        hint = f"Mend the route to {astray[0].public}, or run: {command}"
        yield finding("KERN-003", f"sysctl {strict}", seen, hint, expected=expected, fix=(command,))


@check("ways", "packets for peers' pods follow the routes of their leases", "routes")
def _elsewhere(sight: Sight) -> Iterator[Finding]:
    for choice, led in _by_choice(sight, astray):
        rule, route = _names(sight, choice)
        one = len(led) == 1
        has = "peer's lease has" if one else "peers' leases have"
        seen = f"no route takes them, although the {has} one"
        hint = "'ip rule' shows which tables are asked: put back the rule that leads to the table of that route"
        if command := remedy(sight, choice):
            lease = "route of the peer's lease" if one else f"routes of the leases of {len(led)} peers"
            seen = f"they follow {' and '.join(filter(None, (rule, route)))}, instead of the {lease}"
            made = "the rule" if choice.route is None else "the route"
            hint = (
                f"Have the program that made {made} leave out the pod network (with a VPN: in the routes that it"
                f" accepts). To remove {made} until that program makes it again: {command}"
            )
        where = f"packets to {', '.join(str(peer.subnet) for peer in led[:_NAMED])}"
        yield finding("ROUTE-002", where, seen, hint, weight="warning" if _all_answer(sight, led) else "fault")


@check("outer-ways", "packets to peers' nodes find a way", "links", "routes")
def _stopped(sight: Sight) -> Iterator[Finding]:
    """The kernel was asked for a way, and has none."""
    for choice, kept in _by_choice(sight, stopped):
        nodes = ", ".join(dict.fromkeys(str(peer.public) for peer in kept[:_NAMED]))
        seen, hint = "no route leads there", "Mend the uplink's routes: weft leaves them to the machine's own network"
        if command := remedy(sight, choice):
            rule, route = _names(sight, choice)
            seen = f"the kernel drops them, by {route or rule}"
            hint = f"Have the program that made it leave out the nodes. To remove it: {command}"
        yield finding("ROUTE-003", f"packets to {nodes}", seen, hint)


def _by_choice(sight: Sight, ask: Callable[[Sight, Peer], Choice | None]) -> Iterator[tuple[Choice, list[Peer]]]:
    found: dict[Choice, list[Peer]] = defaultdict(list)
    for peer in peers(sight)[:_MOST]:
        if (choice := ask(sight, peer)) is not None:
            found[choice].append(peer)
    yield from found.items()


def _names(sight: Sight, choice: Choice) -> tuple[str, str]:
    """Of the rule, unless it is the main table's, and of the route."""
    rule = "" if choice.rule is None or choice.rule.table == MAIN_TABLE else f"rule '{words(choice.rule)}'"
    return rule, "" if choice.route is None else f"route {row(sight, choice.route)}"


def _all_answer(sight: Sight, led: list[Peer]) -> bool:
    answering = {each.peer for each in sight.probes if each.way == "overlay" and each.answered}
    return all(str(peer.subnet) in answering for peer in led)


CHECKS: Final = (_elsewhere, _stopped, _whole, _backwards, _one_uplink)
