"""What this node knows of its mesh, for people: `weft mesh`, status and metrics."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import Final

from weft.cluster.mesh.leases import via, way_kind
from weft.cluster.mesh.peer import Peer
from weft.mesh.core import Core
from weft.mesh.ring import Tokens
from weft.model.lease import Way, WayKind
from weft.model.mesh.effects import Hop
from weft.model.mesh.records import Member, peer_id, short
from weft.model.node.meshstate import MeshPath, MeshPeer, MeshRing, MeshState, PathState
from weft.model.value import replace

_BARRED: Final[Mapping[WayKind, str]] = {"vxlan": "takes nothing in clear", "direct": "has no WireGuard"}
_STATES: Final[Mapping[bool | None, tuple[PathState, str]]] = {
    True: ("answers", ""),
    False: ("silent", "no echo comes back"),
    None: ("unknown", "no echo was sent, or the first is on its way"),
}


class Report:
    def __init__(self, peer: Peer, refused: Mapping[str, int]) -> None:
        self._peer = peer
        self._refused = refused

    def __call__(self) -> MeshState | None:
        """None before the disk was read."""
        peer, core = self._peer, self._peer.core
        if core is None:
            return None
        ring = core.ring
        linked = {hello.key for hello in core.links.values()} if ring is not None else set[bytes]()
        strangers: dict[str, list[str]] = {}
        for hello in peer.strangers:
            name = peer_id(hello.name, hello.key)
            strangers.setdefault("" if hello.ring is None else hello.ring.hex(), []).append(name)
        tokens = None if ring is None else Tokens(ring.layout, core.tokens)
        names = {short(member.key): peer_id(member.name, member.key) for member in core.members.values()}
        proposal = peer.kept.proposal
        linked_at = {each for member in core.members.values() if member.key in linked for each in member.endpoints}
        dialled = {*core.dialled} - linked_at
        return MeshState(
            id=peer.id,
            key=peer.key.hex(),
            ring=None if ring is None or tokens is None else self._ring(tokens, names),
            usable=peer.own.usable,
            agreed=peer.others.agreed,
            peers=(
                *(
                    self._peer_state(member, tokens, names, linked=member.key in linked)
                    for member in sorted(core.members.values(), key=lambda member: (member.name, member.key))
                ),
                *self._recordless(tokens, core.members),
            ),
            strangers=strangers,
            unreached={address: why for address, why in peer.unreached.items() if address in dialled},
            waits=peer.own.waits,
            removing=() if proposal is None else tuple(self._id(key) for key in proposal.names),
            unwritten=peer.saving.unwritten,
            refused=dict(self._refused),
            ways=Counter(way_kind(peer.book.hop(member)) for member in peer.book.members.values()),
            moves=dict(peer.book.moves),
            said=peer.said.newest,
        )

    def _ring(self, tokens: Tokens, names: dict[int, str]) -> MeshRing:
        kept, layout = self._peer.kept, tokens.layout
        removed: dict[str, list[str]] = {}
        for removal in kept.removals:
            removed.setdefault(self._id(removal.heir), []).append(names.get(short(removal.key), removal.key[:4].hex()))
        given = sum(tokens.count(owner) for owner in tokens.owners)
        ring = kept.ring
        return MeshRing(
            id="" if ring is None else ring.id.hex(),
            network=layout.net_conf,
            blocks=layout.blocks - layout.first,
            unknown=layout.blocks - layout.first - given,
            resting=sum(stop - start for start, stop in kept.resting),
            removed=removed,
        )

    def _recordless(self, tokens: Tokens | None, members: Collection[bytes]) -> Iterator[MeshPeer]:
        """Owners of blocks whose records are lost."""
        if tokens is not None:
            for key in sorted(tokens.owners - {*members, self._peer.key}):
                id_ = self._id(key)
                yield MeshPeer(id=id_, name=id_, key=key.hex(), us=False, linked=False, blocks=tokens.count(key))

    def _peer_state(self, member: Member, tokens: Tokens | None, names: dict[int, str], *, linked: bool) -> MeshPeer:
        made = MeshPeer(
            id=peer_id(member.name, member.key),
            name=member.name,
            key=member.key.hex(),
            us=member.key == self._peer.key,
            linked=linked,
            subnets=self._peer.book.subnets(member.home),
            blocks=0 if tokens is None else tokens.count(member.key),
            addresses=member.endpoints,
            links=tuple(names.get(each, f"{each:08x}") for each in member.links),
        )
        core, book = self._peer.core, self._peer.book
        if core is None or member.key not in book.members:
            return made
        hop, relays = book.hop(member), core.way(member.key)[:-1]
        return replace(
            made,
            way=str(Way(kind=hop.kind, via=via(hop), mtu=hop.mtu, reason=hop.reason)),
            relays=tuple(map(self._id, relays)),
            paths=tuple(self._paths(core, member, hop)),
        )

    def _paths(self, core: Core, member: Member, hop: Hop) -> Iterator[MeshPath]:
        now, own = self._peer.now(), core.members.get(self._peer.key)
        permitted = {path.kind: path for path in core.paths_to(member.key)}
        for kind, text in _BARRED.items():
            path = permitted.get(kind)
            if path is None:
                ours = own is not None and not _can(own, kind)
                yield MeshPath(kind=kind, state="barred", why=f"{'this node' if ours else 'it'} {text}")
                continue
            taken = (hop.next.key, hop.kind) == (member.key, kind)
            state, why = _STATES[path.usable]
            yield MeshPath(
                kind=kind,
                state="taken" if taken else state,
                why=why,
                answered=None if path.answered == -inf else round(now - path.answered, 1),
                mtu=path.mtu,
            )

    def _id(self, key: bytes) -> str:
        core = self._peer.core
        member = None if core is None else core.members.get(key)
        return key[:4].hex() if member is None else peer_id(member.name, key)


def _can(member: Member, kind: WayKind) -> bool:
    return member.clear if kind == "vxlan" else bool(member.tunnels)
