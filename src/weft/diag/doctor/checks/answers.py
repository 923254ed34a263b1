"""Whether the other nodes answer; where one does not, what of it is proved, and no more."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from weft.diag.doctor.checks.packetfilter import judged_on_the_way
from weft.diag.finding import Check, Finding
from weft.diag.rules.matching import Packet
from weft.diag.rules.verdict import judge
from weft.diag.sight.node import Knocked, Peer, Probed, Sight, peers
from weft.diag.sight.routing import address_on, astray, silent_neighbour
from weft.model.errors import Problem
from weft.model.text import counted
from weft.model.value import replace

_NAMED: Final = 10
_NONE: Final = Knocked(peer="", rounds=())


_Kind = Literal["away", "gone", "rejected", "eaten", "cut", "mute", "narrow"]


def _answer(sight: Sight) -> Iterator[Finding]:
    """Of peers that answer by the underlay and not inside, the way inside is broken; of others they are away."""
    found = _sorted(sight)
    if away := found["away"]:
        yield _away(sight, away)
    if gone := found["gone"]:
        yield _finding("VTEP-004", gone, f"{_port(sight)} is refused there: nothing listens", _GONE)
    if rejected := found["rejected"]:
        hint = f"Have the firewall of these nodes, or between, accept {_port(sight)} from all nodes"
        yield _finding("REACH-001", rejected, f"a firewall rejects what is sent to {_port(sight)}", hint)
    if cut := found["cut"]:
        seen = "the public IP answers, and what is sent through the overlay is not answered"
        hint = (
            f"Something between drops {_carried(sight)}: a firewall there (run 'weft doctor' on that node),"
            " a cloud's security group, or the underlay itself; or the peer drops echo requests alone"
        )
        yield _finding("REACH-001", cut, seen, hint)
    if eaten := found["eaten"]:
        yield _eaten(sight, eaten)
    if mute := found["mute"]:
        yield _mute(sight, mute)
    if narrow := found["narrow"]:
        size = next(each.size for each in sight.probes if (each.peer, each.way) == (narrow[0].peer, "large"))
        hint = (
            "A link on the way is narrower than the uplink says: set its MTU right,"
            " or a smaller MTU in the network configuration's Backend"
        )
        seen = f"packets of {size} bytes, pods' MTU, are lost, small ones are not"
        yield _finding("MTU-001", narrow, seen, hint)


_GONE: Final = (
    "Run 'weft doctor' there: its node was rebooted, drained or cleaned up and no daemon runs, or its firewall rejects"
    " the port. If it shall not come back, its lease can go: it ends by itself, or with its Node object"
)


def _sorted(sight: Sight) -> dict[_Kind, list[Probed]]:
    """The peers that do not answer as they should, by what is known of each."""
    probes = {(each.peer, each.way): each for each in sight.probes}
    heard = {version: _may_answer(sight, version) for version in (4, 6)}
    knocks = {each.peer: each for each in sight.knocks}
    known = {str(each.subnet): each for each in peers(sight)}
    found: dict[_Kind, list[Probed]] = defaultdict(list)
    for one in sight.probes:
        peer = known.get(one.peer)
        if one.way == "underlay" and (one.peer, "overlay") not in probes and not one.answered:
            found["away"].append(one)
        if one.way != "overlay" or not heard[one.address.version]:
            continue
        if one.answered:
            large = probes.get((one.peer, "large"))
            if large is not None and not large.answered:
                found["narrow"].append(one)
            continue
        if peer is not None and astray(sight, peer) is not None:
            continue  # another check says where its packets go
        kind = _kind(sight, peer, knocks.get(one.peer, _NONE), probes.get((one.peer, "underlay")))
        if kind is not None:
            found[kind].append(one)
    return found


def _kind(sight: Sight, peer: Peer | None, knocked: Knocked, outside: Probed | None) -> _Kind | None:
    """What is known of a peer that does not answer inside the overlay."""
    if knocked.nobody_listens:
        return "gone"
    if knocked.is_rejected:
        return "rejected"
    if outside is None:
        return None
    if not outside.answered:  # then an echo through the overlay need not come back either
        return "mute" if knocked.is_there else "away"
    return "eaten" if knocked.is_silent and peer is not None and not _own_rules_drop(sight, peer) else "cut"


def _own_rules_drop(sight: Sight, peer: Peer) -> bool:
    """Tell whether this node's own rules drop what it sends to the device's port of a peer, or what that sends."""
    verdicts = [verdict for _, _, verdict in judged_on_the_way(sight, peer, sight.ports[0])]
    return not verdicts or any(verdict.passes is False for verdict in verdicts)


def _away(sight: Sight, away: Sequence[Probed]) -> Finding:
    if sight.strangers:
        senders = ", ".join(map(str, sight.strangers[:_NAMED]))
        seen = (
            f"no answer from the public IP, and {_carried(sight)} receives datagrams from {senders}, which is no peer's"
        )
        hint = (
            "Nodes behind a NAT send from the NAT's address, and no connection from here reaches them."
            " Give them public IPs that others reach (--public-ip, --iface), or choose back end wireguard with"
            " PersistentKeepaliveInterval"
        )
        return _finding("NAT-001", away, seen, hint)
    names = {each.peer for each in away}
    unheard = {word for peer in peers(sight) if str(peer.subnet) in names for word in [_silence(sight, peer)]}
    seen = "no answer, not even from the public IP"
    if unheard and "" not in unheard:
        seen = f"{seen}: {'; '.join(sorted(unheard)[:_NAMED])}"
    hint = (
        "The nodes are off or cut off, or drop echo requests. A node that is gone leaves its lease until that expires,"
        " or until its Node object is deleted"
    )
    return _finding("LEASE-005", away, seen, hint)


def _silence(sight: Sight, peer: Peer) -> str:
    return "" if peer.public is None else silent_neighbour(sight, peer.public)


def _mute(sight: Sight, mute: Sequence[Probed]) -> Finding:
    seen = f"the node is there (it refuses UDP port {sight.ports[0] + 1}), and answers no echo request"
    hint = (
        "Whether the overlay reaches it is not known: 'weft check' there tells. Have its firewall accept echo requests"
        " of nodes, and of the pod network"
    )
    return replace(_finding("REACH-001", mute, seen, hint), weight="warning")


def _eaten(sight: Sight, eaten: Sequence[Probed]) -> Finding:
    port = _port(sight)
    hint = (
        f"See on that node whether they arrive (tcpdump -ni any {port.lower()}), and what 'weft doctor' says there of"
        " its rules. If they do not, something between drops that port: a firewall, or a hypervisor that uses it itself"
    )
    if not any(each.way == "overlay" and each.answered for each in sight.probes):
        hint += ". Only if that cannot be changed, choose another Port in the network configuration, for all nodes"
    seen = f"no answer comes by {port}, and the port beside it is reached"
    return _finding("REACH-002", eaten, seen, hint)


def _finding(code: str, probes: Sequence[Probed], seen: str, hint: str) -> Finding:
    where = counted(len(probes), "peer")
    return Finding(problem=Problem(code=code, where=where, seen=f"{_names(probes)}: {seen}", hint=hint))


def _may_answer(sight: Sight, version: int) -> bool:
    """Tell whether this node's own firewall lets answers in; else their absence proves nothing."""
    peer = next(
        (each.address for each in sight.probes if each.way == "overlay" and each.address.version == version), None
    )
    for link in sight.devices if peer is not None else ():
        own = address_on(sight, link.index, version)
        protocol = "icmp" if version == 4 else "ipv6-icmp"
        if own is not None and peer is not None:
            answer = Packet(source=peer, target=own, protocol=protocol, iif=link.name, state="established")
            return judge(sight.rules, "input", answer).passes is not False
    return True


def _names(probes: Sequence[Probed]) -> str:
    names = ", ".join(each.peer for each in probes[:_NAMED])
    return f"{names} and {len(probes) - _NAMED} more" if len(probes) > _NAMED else names


def _port(sight: Sight) -> str:
    return f"UDP port {sight.ports[0]}"


def _carried(sight: Sight) -> str:
    return f"UDP port {', '.join(map(str, sight.ports))}" if sight.ports else "the packets between the nodes"


CHECKS: Final = (
    Check(name="answers", about="peers answer, also to packets of pods' MTU", needs=("probes",), find=_answer),
)
