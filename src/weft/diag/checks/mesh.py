"""A mesh: the ways to peers that could be better, the rings that it meets, and the passwords."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from weft.diag.finding import Finding, Weight, check, finding
from weft.diag.sight.node import Sight
from weft.model.text import counted, shortly
from weft.model.value import replace

_NAMED: Final = 10
_LATELY: Final = 3600.0  # seconds
_PORTS: Final = (
    "Let UDP ports 8472 (vxlan) and 51820 (WireGuard) pass in both directions, on both nodes and between them"
)
# Why a way is no better one, and what helps.
_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "port-filtered": ("no echo comes back by a better way", _PORTS),
    "one-way": (
        "the other node says that it gets no answer from this one",
        f"Run 'weft doctor' there, too. {_PORTS}",
    ),
    "mtu": (
        "larger packets are lost on the way, and nobody tells their sender",
        "A link between the two nodes has a smaller MTU than their uplinks: set that right",
    ),
    "no-endpoint": (
        "no address is known at which its WireGuard can be reached",
        "Give the node a --public-ip that others reach, or let UDP port 51820 of its router lead to it",
    ),
    "nat": (
        "both nodes are behind NATs, and have not met yet",
        "If they do not within half a minute, let UDP port 51820 of one of the two routers lead to its node",
    ),
    "nat-hard": (
        "both nodes are behind NATs, of which one takes another port for each destination",
        "Let UDP port 51820 of one of the two routers lead to its node",
    ),
    "no-kernel": (
        "one of the two nodes has no WireGuard",
        "Install the kernel's module (modprobe wireguard), or wireguard-go, on both nodes",
    ),
}


@check("detours", "packets to each peer of a mesh go by the best way", "daemon")
def _best_ways(sight: Sight) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for peer in () if sight.daemon is None else sight.daemon.peers:
        way, _, reason = peer.way.partition(": ")
        if reason:
            found[way, reason].append(peer.id)
    for (way, reason), led in found.items():
        names = f"{', '.join(led[:_NAMED])}{' and more' * (len(led) > _NAMED)}"
        where = f"peer {names}" if len(led) == 1 else f"{counted(len(led), 'peer')} ({names})"
        why, hint = _REASONS.get(reason, ("the daemon knows no better way", "See the daemon's log"))
        seen = f"packets go {way if way.startswith('via') else f'by {way}'}: {why} ({reason})"
        yield finding("MESH-008", where, seen, hint, weight="warning")


@check("rings", "this node meets no ring but its own", "daemon")
def _one_ring(sight: Sight) -> Iterator[Finding]:
    mesh = None if sight.daemon is None else sight.daemon.mesh
    if mesh is None or mesh.ring is None:
        return
    for ring, nodes in mesh.strangers.items():
        if ring not in ("", mesh.ring.id):
            seen = f"{', '.join(nodes[:_NAMED])} {'is' if len(nodes) == 1 else 'are'} in ring {ring[:8]}"
            hint = "Decide which ring stays, and type 'weft mesh adopt RING' on each node of the other one"
            yield finding("MESH-003", f"this node's ring, {mesh.ring.id[:8]}", seen, hint)


@check("passwords", "no node of the mesh has another password", "daemon")
def _one_password(sight: Sight) -> Iterator[Finding]:
    mesh = None if sight.daemon is None else sight.daemon.mesh
    if mesh is None:
        return
    weight: Weight = "warning" if any(peer.linked for peer in mesh.peers) else "fault"
    refusing = [why for why in mesh.unreached.values() if why.code == "MESH-002"]
    yield from (Finding(problem=why, weight=weight) for why in refusing[:_NAMED])


@check("mesh-faults", "the mesh was well in the last hour", "daemon")
def _lately(sight: Sight) -> Iterator[Finding]:
    """What a mesh mends by itself is soon over, and pods may have lost their addresses by it."""
    mesh = None if sight.daemon is None else sight.daemon.mesh
    newest = {
        (said.problem.code, said.problem.where): (said.problem, said.seconds)
        for said in (() if mesh is None else mesh.said)
        if said.problem is not None and said.problem.code != "MESH-003" and said.seconds < _LATELY
    }
    for problem, seconds in newest.values():
        yield Finding(problem=replace(problem, seen=f"{shortly(seconds)} ago: {problem.seen}"), weight="warning")


CHECKS: Final = (_best_ways, _one_ring, _one_password, _lately)
