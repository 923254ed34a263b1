"""What the firewall does with packets that pods need: asked of its rules, with packets that stand for all."""

from collections.abc import Iterator
from typing import Final

from weft.diag.finding import Check, Finding
from weft.diag.matching import Packet
from weft.diag.sight import Peer, Sight, peers
from weft.diag.verdict import judge
from weft.model.errors import Problem
from weft.model.net import Ip, Net

_SOME_PORT: Final = 40000
_HTTP: Final = 80
_FIREWALLD: Final = "firewalld"
_KINDS: Final = ("tun", "wireguard")
_PORTS: Final = {"tun": 8285, "wireguard": 51820}  # flannel.md §6: their usual ones


def _forwarded(sight: Sight) -> Iterator[Finding]:
    """A new connection between a pod of this node and one of a peer, in either direction, and the peer's answer."""
    said = set[str]()
    for packet in _between_pods(sight):
        verdict = judge(sight.rules, "forward", packet)
        if verdict.passes is False and verdict.by not in said:
            said.add(verdict.by)
            yield _dropped(packet, verdict.by, sight)


def _between_pods(sight: Sight) -> Iterator[Packet]:
    if not sight.bridges:
        return
    bridge = sight.bridges[0].name
    for subnet in sight.subnets:
        other = next((peer for peer in peers(sight) if peer.subnet.version == subnet.version), None)
        if other is None:
            continue
        out = _way_out(sight, other)
        here, there = _pod(subnet), _pod(other.subnet)
        for source, target, iif, oif in ((here, there, bridge, out), (there, here, out, bridge)):
            yield Packet(
                source=source,
                target=target,
                protocol="tcp",
                iif=iif,
                oif=oif,
                source_port=_SOME_PORT,
                target_port=_HTTP,
            )


def _pod(subnet: Net) -> Ip:
    return subnet.network_address + 2  # the first that is a pod's


def _way_out(sight: Sight, peer: Peer) -> str:
    route = next((route for route in sight.routes if route.dst == peer.subnet), None)
    link = sight.devices[0] if sight.devices else None if route is None else sight.link(route.index)
    return "" if link is None else link.name


def _dropped(packet: Packet, by: str, sight: Sight) -> Finding:
    networks = ", ".join(map(str, sight.networks_of_pods))
    where, seen = f"forwarding {packet}", f"dropped by {by}"
    if _FIREWALLD in by:
        commands = tuple(
            f"firewall-cmd --permanent --zone=trusted --add-source={network}" for network in sight.networks_of_pods
        )
        hint = f"Have firewalld trust the pod network: {'; '.join(commands)}; firewall-cmd --reload"
        problem = Problem(code="FW-001", where=where, seen=seen, expected="accepted", hint=hint)
        return Finding(problem=problem, fix=(*commands, "firewall-cmd --reload"))
    hint = f"An accept elsewhere does not help: have that program's own rules accept {networks}"
    return Finding(problem=Problem(code="FW-002", where=where, seen=seen, expected="accepted", hint=hint))


def _received(sight: Sight) -> Iterator[Finding]:
    """A datagram of each peer's address to the port of the devices, on the link by which the peer is reached."""
    said = set[str]()
    for peer in peers(sight):
        own = next((a.ip for a in sight.addresses if peer.public and a.ip.version == peer.public.version), None)
        link = sight.link(sight.ways.get(str(peer.public), 0))
        if peer.public is None or own is None or link is None:
            continue
        own = next((a.ip for a in sight.addresses_of(link.index) if a.ip.version == peer.public.version), own)
        for port in _ports(sight):
            packet = Packet(
                source=peer.public,
                target=own,
                protocol="udp",
                iif=link.name,
                source_port=_SOME_PORT,
                target_port=port,
            )
            verdict = judge(sight.rules, "input", packet)
            if verdict.passes is False and verdict.by not in said:
                said.add(verdict.by)
                hint = f"Peers' packets end here. Have it accept UDP port {port} from the nodes"
                where, seen = f"receiving {packet}", f"dropped by {verdict.by}"
                problem = Problem(code="REACH-001", where=where, seen=seen, expected="accepted", hint=hint)
                yield Finding(problem=problem)


def _ports(sight: Sight) -> list[int]:
    kinds = {link.kind for link in sight.devices}
    own = {device.port for device in sight.vxlans if sight.link(device.name) in sight.devices}
    return sorted(own | {_PORTS[kind] for kind in _KINDS if kind in kinds})


CHECKS: Final = (
    Check(
        name="forward-rules",
        about="the firewall forwards packets between pods of this node and of others",
        needs=("rules", "networks"),
        find=_forwarded,
    ),
    Check(name="input-rules", about="the firewall takes peers' datagrams", needs=("rules",), find=_received),
)
