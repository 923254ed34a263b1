"""The other nodes: what leads to them, and whether they answer; of one that does not, what is proved and no more."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from weft.diag.checks.packets import is_unexplained
from weft.diag.finding import Finding, check, finding, setting
from weft.diag.sight.node import Knocked, Peer, Probed, Sight, peers
from weft.diag.sight.routing import (
    Choice,
    astray,
    fixed_neighbour,
    remedy,
    route_to,
    row,
    silent_neighbour,
    stopped,
    words,
)
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import NUD_PERMANENT
from weft.model.text import counted, some_of
from weft.model.value import replace

_NAMED: Final = 10
_MOST: Final = 50  # peers that are asked about: what leads one astray, does so with most
_ITS_TASK: Final = (
    "This node's daemon makes routes and entries from the peer's lease: restart the daemon, or see its log"
)

_UNASKED: Final = Knocked(peer="", device="silent", beside="silent")


_Kind = Literal["away", "gone", "rejected", "eaten", "cut", "mute", "narrow"]


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


@check("answers", "peers answer, also to packets of pods' MTU", "probes")
def _answer(sight: Sight) -> Iterator[Finding]:
    """If a peer answers by the underlay alone, the way inside is broken; otherwise the peer is away."""
    found = _sorted(sight)
    if away := found["away"]:
        yield _away(sight, away)
    if gone := found["gone"]:
        yield _finding("VTEP-004", gone, f"{_port(sight)} is refused there: nothing listens", _GONE)
    if rejected := found["rejected"]:
        hint = f"Have the firewall on these nodes, or one between, accept {_port(sight)} from all nodes"
        yield _finding("REACH-001", rejected, f"a firewall rejects what is sent to {_port(sight)}", hint)
    if cut := found["cut"]:
        seen = "the public IP answers, but what is sent through the overlay is not answered"
        hint = (
            f"Something between drops {_carried(sight)}: a firewall there (run 'weft doctor' on that node),"
            " a cloud's security group, or the underlay itself; or the peer drops nothing but echo requests"
        )
        yield _finding("REACH-001", cut, seen, hint)
    if eaten := found["eaten"]:
        yield _eaten(sight, eaten)
    if mute := found["mute"]:
        yield _mute(sight, mute)
    if narrow := found["narrow"]:
        size = next(each.size for each in sight.probes if (each.peer, each.way) == (narrow[0].peer, "large"))
        hint = (
            "A link on the way has a smaller MTU than the uplink: set that link's MTU right;"
            " or set a smaller MTU in the network configuration's Backend, and restart weftd"
        )
        yield _finding("MTU-001", narrow, f"packets of {size} bytes, pods' MTU, are lost, but small ones are not", hint)


_GONE: Final = (
    "Run 'weft doctor' there: either the node was rebooted, drained or cleaned up, and no daemon runs; or its firewall"
    " rejects the port. If the node is gone for good, you need do nothing: its lease ends by itself, or with its Node"
    " object"
)


def _sorted(sight: Sight) -> dict[_Kind, list[Probed]]:
    probes = {(each.peer, each.way): each for each in sight.probes}
    knocks = {each.peer: each for each in sight.knocks}
    known = {str(each.subnet): each for each in peers(sight)}
    seen = _explained(sight)
    found: dict[_Kind, list[Probed]] = defaultdict(list)
    for one in sight.probes:
        peer = known.get(one.peer)
        if one.peer in seen or (peer is not None and stopped(sight, peer) is not None):
            continue  # another check says why nothing gets there
        if one.way == "underlay" and (one.peer, "overlay") not in probes and not one.answered:
            found["away"].append(one)
        if one.way != "overlay":
            continue
        if one.answered:
            large = probes.get((one.peer, "large"))
            if large is not None and not large.answered and not _is_measured(sight, one):
                found["narrow"].append(one)
            continue
        if peer is not None and astray(sight, peer) is not None:
            continue  # another check says where its packets go
        kind = _kind(sight, knocks.get(one.peer, _UNASKED), probes.get((one.peer, "underlay")))
        if kind is not None:
            found[kind].append(one)
    return found


def _is_measured(sight: Sight, one: Probed) -> bool:
    """By a mesh, whose kernel tells pods the MTU: then it is no loss."""
    route = route_to(sight, one.address)
    return route is not None and route.mtu > 0


def _explained(sight: Sight) -> set[str]:
    """The peers of which a trace has seen what loses packets, or that this node does; all, if it reaches none."""
    lost = () if sight.proof is None else sight.proof.lost
    found = {each.peer for each in lost if not is_unexplained(each)} - {""}
    overlay = [each for each in sight.probes if each.way == "overlay"]
    alone = bool(found) and not any(each.answered for each in overlay)
    return {each.peer for each in overlay} if alone else found


def _kind(sight: Sight, knocked: Knocked, outside: Probed | None) -> _Kind | None:
    if knocked.device != "silent":
        return "gone" if knocked.device == "refused" else "rejected"
    if outside is None:
        return None
    is_there = knocked.beside == "refused"
    if not outside.answered:  # then an echo through the overlay need not come back either
        return "mute" if is_there else "away"
    # Without packets of pods that were traced it may be this node that drops them.
    return "eaten" if is_there and sight.proof is not None else "cut"


def _away(sight: Sight, away: Sequence[Probed]) -> Finding:
    if sight.strangers:
        senders = ", ".join(map(str, sight.strangers[:_NAMED]))
        seen = (
            f"no answer from the public IP, and {_ports(sight)} receives datagrams from addresses that are no peer's:"
            f" {senders}"
        )
        hint = (
            "Nodes behind a NAT send from the NAT's address, and no connection from here reaches them."
            " Give them public IPs that others reach (--public-ip, --iface), or choose back end wireguard with"
            " PersistentKeepaliveInterval"
        )
        return _finding("NAT-001", away, seen, hint)
    names = {each.peer for each in away}
    publics = {peer.public for peer in peers(sight) if str(peer.subnet) in names and peer.public is not None}
    fixed = sorted(filter(None, (fixed_neighbour(sight, public) for public in publics)))
    if fixed:
        seen = f"no answer, not even from the public IP, and {'; '.join(fixed[:_NAMED])}"
        hint = (
            "If that MAC is wrong, nothing arrives. To have the kernel ask for it: ip neighbour delete ADDRESS dev LINK"
        )
        return _finding("NEIGH-002", away, seen, hint)
    seen, causes = "no answer, not even from the public IP", "are off or cut off, or drop echo requests"
    unheard = {silent_neighbour(sight, public) for public in publics}
    if unheard and "" not in unheard:
        seen = f"{seen}: {'; '.join(sorted(unheard)[:_NAMED])}"
        causes = "are off, or cut off from this link"
    until = "it expires or the node's Node object is deleted"
    if sight.daemon is not None and sight.daemon.mesh is not None:
        until = "you type 'weft mesh rmpeer' with its name; 'weft mesh peers' lists them"
    hint = f"The nodes {causes}. The lease of a node that is gone stays until {until}"
    return _finding("LEASE-005", away, seen, hint)


def _mute(sight: Sight, mute: Sequence[Probed]) -> Finding:
    seen = f"the node is up (it says 'port unreachable' for UDP port {sight.ports[0] + 1}), but answers no echo request"
    hint = (
        "Whether the overlay reaches it is not known: run 'weft check' there to find out. Have its firewall accept"
        " echo requests from the nodes and from the pod network"
    )
    return replace(_finding("REACH-001", mute, seen, hint), weight="warning")


def _eaten(sight: Sight, eaten: Sequence[Probed]) -> Finding:
    port = _port(sight)
    hint = (
        f"See on that node whether this node's datagrams arrive (tcpdump -ni any {port.lower()}), and what"
        " 'weft doctor' says there of its rules. If they do not arrive, something between drops that port: a firewall,"
        " or a hypervisor that uses the port itself"
    )
    if not any(each.way == "overlay" and each.answered for each in sight.probes):
        hint += ". Only if that cannot be changed, choose another Port in the network configuration, for all nodes"
    return _finding("REACH-002", eaten, f"nothing comes back from {port}, but the port next to it is reached", hint)


def _finding(code: str, probes: Sequence[Probed], seen: str, hint: str) -> Finding:
    names = some_of([each.peer for each in probes], _NAMED)
    where = f"peer {names}" if len(probes) == 1 else f"{len(probes)} peers ({names})"
    return finding(code, where, seen, hint)


def _port(sight: Sight) -> str:
    return f"UDP port {sight.ports[0]}"


def _ports(sight: Sight) -> str:
    return f"UDP port {', '.join(map(str, sight.ports))}" if sight.ports else "this node"


def _carried(sight: Sight) -> str:
    return f"packets to {_ports(sight)}" if sight.ports else "the packets between the nodes"


CHECKS: Final = (_elsewhere, _stopped, _whole, _backwards, _one_uplink, _answer)
