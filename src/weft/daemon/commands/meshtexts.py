"""What people read of a mesh: lines and tables of its state."""

from collections.abc import Iterable, Iterator, Sequence

from weft.model.node.meshstate import MeshOwner, MeshPeer, MeshRing, MeshState
from weft.model.text import counted, one_line, shortly, table


def status_lines(state: MeshState) -> Iterator[str]:
    """For people: what is, and behind `!` what is wrong."""
    ring, us = state.ring, next((peer for peer in state.peers if peer.us), None)
    yield f"peer     {state.id}, key {state.key[:16]}…"
    if ring is not None:
        blocks = f"{counted(ring.blocks, 'block')}{_unknown(ring)}"
        yield f"ring     {ring.id[:8]}, {counted(len(state.peers), 'peer')}, {blocks}"
        yield f"network  {ring.network}"
    if us is not None and us.subnets:
        reserve = f", and {us.blocks - 1} in reserve" if us.blocks > 1 else ""
        rest = f", {ring.resting} of them resting" if ring is not None and ring.resting else ""
        yield f"subnet   {' '.join(us.subnets)}{'' if state.usable else ', not to be used yet'}{reserve}{rest}"
    linked = [peer for peer in state.peers if peer.linked]
    others = max(0, len(state.peers) - 1)
    agreed = "knows what they know" if state.agreed else "does not know yet what they know"
    yield f"links    {len(linked)} with {counted(others, 'other peer')}{f'; this node {agreed}' if linked else ''}"
    for each, who in state.strangers.items():
        yield f"others   {', '.join(who)}, {f'of ring {each[:8]}' if each else 'without a ring'}"
    for address, why in state.unreached.items():
        yield f"no link  {address}: {why}"
    if state.removing:
        yield f"removal  of {', '.join(state.removing)} is waiting"
    yield from (f"! {problem}" for problem in (state.waits, state.unwritten) if problem is not None)


def peer_table(peers: Iterable[MeshPeer]) -> str:
    return table(("PEER", "LINK", "SUBNET", "WAY", "BLOCKS", "ADDRESS", "LINKED WITH"), map(_row, peers))


def _row(peer: MeshPeer) -> tuple[str, ...]:
    link = "this node" if peer.us else "up" if peer.linked else "none"
    addresses, links = " ".join(peer.addresses), ", ".join(peer.links)
    cells = (peer.id, link, " ".join(peer.subnets), peer.way, str(peer.blocks), addresses, links)
    return tuple(one_line(cell) or "-" for cell in cells)


def way_table(peers: Iterable[MeshPeer]) -> str:
    rows = (row for peer in peers for row in _way_rows(peer))
    return table(("PEER", "WAY", "PATH", "STATE", "LAST", "MTU", "WHY"), rows)


def _way_rows(peer: MeshPeer) -> Iterator[tuple[str, ...]]:
    way = f"{peer.way}; on {', '.join(peer.relays[1:])}" if len(peer.relays) > 1 else peer.way
    for path in peer.paths:
        last = "-" if path.answered is None else f"{shortly(path.answered)} ago"
        cells = (peer.id, way, path.kind, path.state, last, str(path.mtu) if path.mtu else "-", path.why)
        yield tuple(one_line(cell) or "-" for cell in cells)
    if not peer.paths:
        yield one_line(peer.id), "it has no subnet", "-", "-", "-", "-", "-"


def owner_table(ring: MeshRing, owners: Sequence[MeshOwner]) -> str:
    rows = [(one_line(each.id), " ".join(each.home) or "-", str(each.reserve)) for each in owners]
    text = table(("PEER", "HOME", "RESERVE"), rows)
    text += f"\n{counted(ring.blocks, 'block')}{_unknown(ring)}, {ring.resting} of this node's resting\n"
    for heir, gone in ring.removed.items():
        text += one_line(f"{heir} has what was of {', '.join(gone)}") + "\n"
    return text


def _unknown(ring: MeshRing) -> str:
    return f", the owners of {ring.unknown} unknown" if ring.unknown else ""
