"""Whether the other nodes answer; of one that does not, what is proved and no more."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from weft.diag.checks.packets import is_unexplained
from weft.diag.finding import Finding, check, finding
from weft.diag.sight.node import Knocked, Probed, Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.routing import (
    astray,
    fixed_neighbour,
    route_to,
    silent_neighbour,
    stopped,
)
from weft.model.text import some_of
from weft.model.value import replace

_NAMED: Final = 10
_UNASKED: Final = Knocked(peer="", device="silent", beside="silent")

_Kind = Literal["away", "gone", "rejected", "eaten", "cut", "mute", "narrow"]


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


CHECKS: Final = (_answer,)
