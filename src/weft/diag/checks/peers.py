"""The other nodes: what leads to them, and whether they answer."""

from collections.abc import Iterator
from typing import Final

from weft.diag.checks.mending import setting
from weft.diag.checks.packetfilter import outer
from weft.diag.finding import Check, Finding
from weft.diag.rules.matching import Packet
from weft.diag.rules.verdict import judge
from weft.diag.sight import Peer, Probed, Sight, Way, peers
from weft.diag.tracing.routing import address_on
from weft.model.errors import Problem
from weft.model.text import counted

_NAMED: Final = 10
_PERMANENT: Final = 0x80
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


def _answer(sight: Sight) -> Iterator[Finding]:
    """Of peers that answer by the underlay and not inside, the way inside is broken; of others they are away."""
    probes = {(each.peer, each.way): each for each in sight.probes}
    heard = {version: _may_answer(sight, version) for version in (4, 6)}
    inside = [each for each in sight.probes if each.way == "overlay" and heard[each.address.version]]
    dead = [each for each in inside if not each.answered]
    inner = {each.peer for each in sight.probes if each.way == "overlay"}
    plain = [each for each in sight.probes if each.way == "underlay" and each.peer not in inner]
    away = [each for each in dead if _outside(probes, each) is False] + [each for each in plain if not each.answered]
    cut = [each for each in dead if _outside(probes, each)]
    eaten = [each for each in cut if _is_eaten(sight, probes, each)]
    cut = [each for each in cut if each not in eaten]
    narrow = [each for each in inside if each.answered and _fails(probes.get((each.peer, "large")))]
    if away and sight.strangers:
        senders = ", ".join(map(str, sight.strangers[:_NAMED]))
        seen = (
            f"{_names(away)}: no answer from the public IP,"
            f" and {_carried(sight)} receives datagrams from {senders}, which is no peer's"
        )
        hint = (
            "Nodes behind a NAT send from the NAT's address, and no connection from here reaches them."
            " Give them public IPs that others reach (--public-ip, --iface), or choose back end wireguard with"
            " PersistentKeepaliveInterval"
        )
        yield Finding(problem=Problem(code="NAT-001", where=counted(len(away), "peer"), seen=seen, hint=hint))
    elif away:
        seen = f"{_names(away)}: no answer, not even from the public IP"
        hint = (
            "The nodes are gone or cut off. A node that is gone leaves its lease until that expires,"
            " or until its Node object is deleted"
        )
        yield Finding(problem=Problem(code="LEASE-005", where=counted(len(away), "peer"), seen=seen, hint=hint))
    if cut:
        seen = f"{_names(cut)}: the public IP answers, and what is sent through the overlay is not answered"
        hint = (
            f"Something between drops {_carried(sight)}: a firewall there (run 'weft doctor' on that node),"
            " a cloud's security group, or the underlay itself; or the peer drops echo requests alone"
        )
        yield Finding(problem=Problem(code="REACH-001", where=counted(len(cut), "peer"), seen=seen, hint=hint))
    if eaten:
        port = f"UDP port {sight.ports[0]}"
        seen = f"{_names(eaten)}: {port} alone is dead, the next one of the same node answers"
        hint = (
            f"If no firewall of the peer drops {port} ('weft doctor' there names it), the network under the nodes uses"
            " that port itself, as some hypervisors do: choose another Port in the network configuration, for all nodes"
        )
        yield Finding(problem=Problem(code="REACH-002", where=counted(len(eaten), "peer"), seen=seen, hint=hint))
    if narrow:
        size = probes[narrow[0].peer, "large"].size
        seen = f"{_names(narrow)}: packets of {size} bytes, pods' MTU, are lost, small ones are not"
        hint = (
            "A link on the way is narrower than the uplink says: set its MTU right,"
            " or a smaller MTU in the network configuration's Backend"
        )
        yield Finding(problem=Problem(code="MTU-001", where=counted(len(narrow), "peer"), seen=seen, hint=hint))


def _is_eaten(sight: Sight, probes: dict[tuple[str, Way], Probed], one: Probed) -> bool:
    """Tell whether another port of the same node answers, and this node's own rules take what comes to the device's."""
    port = probes.get((one.peer, "port"))
    if port is None or not port.answered:
        return False
    peer = next((each for each in peers(sight) if str(each.subnet) == one.peer), None)
    packet = None if peer is None else outer(sight, peer, sight.ports[0])
    return packet is not None and judge(sight.rules, "input", packet).passes is not False


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


def _outside(probes: dict[tuple[str, Way], Probed], one: Probed) -> bool | None:
    """Whether a peer answers at its public IP; None if it was not asked there."""
    outside = probes.get((one.peer, "underlay"))
    return None if outside is None else outside.answered


def _fails(probe: Probed | None) -> bool:
    return probe is not None and not probe.answered


def _names(probes: list[Probed]) -> str:
    names = ", ".join(each.peer for each in probes[:_NAMED])
    return f"{names} and {len(probes) - _NAMED} more" if len(probes) > _NAMED else names


def _carried(sight: Sight) -> str:
    return f"UDP port {', '.join(map(str, sight.ports))}" if sight.ports else "the packets between the nodes"


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


CHECKS: Final = (
    Check(name="entries", about="routes to peers have their neighbour and FDB entries", needs=("routes",), find=_whole),
    Check(name="answers", about="peers answer, also to packets of pods' MTU", needs=("probes",), find=_answer),
    Check(
        name="reverse-path",
        about="the uplink takes peers' packets by whatever link answers go",
        needs=("daemon", "links", "settings"),
        find=_backwards,
    ),
    Check(name="uplink", about="peers are reached by the uplink", needs=("daemon", "links"), find=_one_uplink),
)
