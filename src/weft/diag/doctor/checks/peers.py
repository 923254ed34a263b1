"""What leads to the other nodes: routes, entries, the uplink."""

from collections.abc import Iterator
from typing import Final

from weft.diag.finding import Check, Finding, setting
from weft.diag.sight.node import Peer, Sight, peers
from weft.diag.sight.routing import Choice, astray, remedy, row, words
from weft.model.errors import Problem
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.text import counted

_PERMANENT: Final = 0x80
_NAMED: Final = 10
_MOST: Final = 50  # peers that are asked about: what leads one astray, does so with most
_ITS_TASK: Final = "The node's daemon puts it there from the peer's lease: start it again, or see its log"


def _whole(sight: Sight) -> Iterator[Finding]:
    """Each route into a VXLAN device has its neighbour and FDB entry, and each neighbour its route.

    weftd says so itself of its peers.
    """
    if sight.daemon is not None:
        return
    indexes = {link.index for link in sight.devices if link.kind == "vxlan"}
    macs = {(each.index, each.ip): each.mac for each in sight.neighbours if each.state & _PERMANENT}
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
        yield Finding(problem=Problem(code="FDB-001", where=where, seen=seen, hint=_ITS_TASK))
    gateways = {(route.index, route.via) for route in sight.routes}
    for index, ip in macs:
        if index in indexes and (index, ip) not in gateways:
            seen, where = "no route leads there, and its neighbour entry is still here", f"the peer behind {ip}"
            yield Finding(problem=Problem(code="ROUTE-001", where=where, seen=seen, hint=_ITS_TASK))


def _astray(sight: Sight, uplink: str) -> list[tuple[Peer, str]]:
    """The peers that are reached by another link than the uplink, and by which."""
    found = ((peer, sight.link(sight.ways.get(str(peer.public), 0))) for peer in peers(sight))
    return [(peer, link.name) for peer, link in found if link is not None and link.name != uplink]


def _one_uplink(sight: Sight) -> Iterator[Finding]:
    """Peers are reached by the uplink that their packets come back to."""
    state = sight.daemon
    if state is None or state.uplink is None:
        return
    astray = _astray(sight, state.uplink.name)
    if astray:
        by = sorted({name for _, name in astray})
        seen = f"{counted(len(astray), 'peer')} of {len(state.peers)} are reached by {', '.join(by)}"
        hint = (
            f"If those links are the nodes' network, start weftd with --iface={by[0]};"
            f" else mend the route to {astray[0][0].public}"
        )
        problem = Problem(code="IFACE-001", where=f"uplink {state.uplink.name}", seen=seen, hint=hint)
        yield Finding(problem=problem, weight="warning")


def _backwards(sight: Sight) -> Iterator[Finding]:
    """Where the uplink drops what comes by another link than answers would go (rp_filter 1, RFC 3704 §2.2)."""
    state = sight.daemon
    if state is None or state.uplink is None:
        return
    name = f"net/ipv4/conf/{state.uplink.name}/rp_filter"
    # The stricter of the two counts, and 2, which asks for any way back, more than 1, which asks for the same link.
    highest = max(int(sight.settings.get(each, "0")) for each in ("net/ipv4/conf/all/rp_filter", name))
    astray = [
        peer for peer, _ in _astray(sight, state.uplink.name) if peer.public is not None and peer.public.version == 4
    ]
    if highest == 1 and astray:
        command = setting(name, "2", f"has {state.uplink.name} take packets for which any link leads back")
        whose = counted(len(astray), "peer")
        seen = f"it is strict, and answers to {whose} go by another link: what those send is dropped"
        hint = f"Mend the route to {astray[0].public}, or: {command}"
        problem = Problem(code="KERN-003", where=f"sysctl {name}", seen=seen, expected="2 or 0", hint=hint)
        yield Finding(problem=problem, fix=(command,))


def _elsewhere(sight: Sight) -> Iterator[Finding]:
    """What takes packets for peers' pods away from the routes of their leases: most often a rule that asks a table."""
    found: dict[Choice, list[Peer]] = {}
    for peer in peers(sight)[:_MOST]:
        choice = astray(sight, peer)
        if choice is not None:
            found.setdefault(choice, []).append(peer)
    for choice, led in found.items():
        rule = "" if choice.rule is None or choice.rule.table == MAIN_TABLE else f"rule '{words(choice.rule)}'"
        route = "" if choice.route is None else f"route {row(sight, choice.route)}"
        both = " and ".join(filter(None, (rule, route))) or "no route"
        seen = f"{both} {'take' if rule and route else 'takes'} them, not the route of {_its(led)}"
        hint = (
            "Leave the pod network out of what the program that made it routes (a VPN: of the routes that it accepts)"
        )
        if command := remedy(sight, choice):
            hint = f"{hint}; or, until that makes it again: {command}"
        where = f"packets to {', '.join(str(peer.subnet) for peer in led[:_NAMED])}"
        problem = Problem(code="ROUTE-002", where=where, seen=seen, hint=hint)
        yield Finding(problem=problem, weight="warning" if _all_answer(sight, led) else "fault")


def _all_answer(sight: Sight, led: list[Peer]) -> bool:
    answering = {each.peer for each in sight.probes if each.way == "overlay" and each.answered}
    return all(str(peer.subnet) in answering for peer in led)


def _its(led: list[Peer]) -> str:
    return "its lease" if len(led) == 1 else f"the leases of {counted(len(led), 'peer')}"


CHECKS: Final = (
    Check(
        name="ways",
        about="packets for peers' pods go by the routes of their leases",
        needs=("routes",),
        find=_elsewhere,
    ),
    Check(name="entries", about="routes to peers have their neighbour and FDB entries", needs=("routes",), find=_whole),
    Check(
        name="reverse-path",
        about="the uplink takes peers' packets by whatever link answers go",
        needs=("daemon", "links", "settings"),
        find=_backwards,
    ),
    Check(name="uplink", about="peers are reached by the uplink", needs=("daemon", "links"), find=_one_uplink),
)
