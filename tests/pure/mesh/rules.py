"""Peers that keep to the rules of `weft.mesh` and nothing else, and every history of a few of them.

A peer is a value; what it does is a function of it and of what it hears, so a history is searched by states. Messages
may be delivered in any order, or never; a peer that is killed loses what it has not kept. All that a core does beside
(links, floods, digests, repeats) only chooses among these steps.
"""

from collections.abc import Iterable
from functools import cache

from weft.mesh.grants import Giver, grant, objection, parting, take, witnesses
from weft.mesh.removal import Bound, Removals, ended, inherited, late, missing
from weft.mesh.ring import Tokens, founded
from weft.model.mesh.messages import Ack, Grant, Promise
from weft.model.mesh.records import Layout, Removal, Token
from weft.model.value import Value, replace


def removals_of(all_: Iterable[Removal]) -> Removals:
    known = Removals()
    for removal in all_:
        known.merge(removal)
    return known


class Peer(Value):
    """What it keeps; `given` and `promised` are in memory alone. `members`: key, over and done of each."""

    key: bytes
    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()
    members: tuple[tuple[bytes, int, int], ...] = ()
    promise: Promise | None = None
    proposal: Promise | None = None
    promised: frozenset[bytes] = frozenset()
    number: int = 0
    home: int | None = None
    settled: bool = False
    waiting: Grant | None = None
    asks: frozenset[bytes] = frozenset()
    given: tuple[Grant, ...] = ()

    @property
    def bound(self) -> Bound:
        return Bound(me=self.key, promise=self.promise, proposal=self.proposal, number=self.number)

    def over(self, key: bytes | None) -> dict[str, int]:
        found = [(over, done) for member, over, done in self.members if member == key]
        return {"over": found[0][0], "done": found[0][1]} if found else {"over": 0, "done": 0}

    @property
    def known(self) -> set[bytes]:
        return {member for member, _, _ in self.members} | {token.owner for token in self.tokens}


class Rules:
    """The steps of one peer. A test that plants a fault overrides one of them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cache  # noqa: B019 - one search, one object
    def ring(self, tokens: tuple[Token, ...]) -> Tokens:
        """Never changed: who changes it makes one of its own."""
        return Tokens(self.layout, tokens)

    def founder(self, key: bytes) -> Peer:
        return Peer(key=key, tokens=(founded(self.layout, key),), members=((key, 0, 0),), home=0, settled=True)

    def merged(self, peer: Peer, tokens: tuple[Token, ...], removals: tuple[Removal, ...] = ()) -> Peer:
        """Tokens as far as no promise freezes them, removals with their claims at once, and what follows."""
        ring, known = Tokens(self.layout, peer.tokens), removals_of(peer.removals)
        for removal in removals:
            if known.merge(removal) is not None:
                ring.merge(removal.tokens)
        ring.merge(tokens, peer.bound.frozen)
        ring.merge(late(ring, known, peer.key))
        numbers = (removal.number for removal in known)
        peer = replace(peer, tokens=tuple(ring), removals=tuple(known), number=max(peer.number, *numbers, 0))
        if known.is_removed(peer.key):  # it begins anew, as another
            return replace(peer, settled=False, home=None, waiting=None, proposal=None, promise=None)
        return self.freed(peer)

    def freed(self, peer: Peer) -> Peer:
        known = removals_of(peer.removals)
        promise = peer.promise
        if promise is not None and ended(promise, known, **peer.over(promise.proposer)):
            peer = replace(peer, promise=None)
        if peer.proposal is not None and any(known.is_removed(name) for name in peer.proposal.names):
            peer = self.withdrawn(peer)
        return peer

    def heard(self, peer: Peer, other: Peer) -> Peer:
        """All that the other knows, by gossip."""
        best = {key: (over, done) for key, over, done in peer.members}
        for key, over, done in other.members:
            best[key] = max(best.get(key, (0, 0)), (over, done))
        peer = replace(peer, members=tuple(sorted((key, *numbers) for key, numbers in best.items())))
        return self.merged(peer, other.tokens, other.removals)

    # --- Grants

    def giver(self, peer: Peer) -> Giver:
        return Giver(bound=peer.bound, home=peer.home, settled=peer.settled)

    def wanted(self, peer: Peer, taker: bytes) -> tuple[Peer, Grant]:
        before = next((one for one in peer.given if one.taker == taker), None)
        made = grant(self.ring(peer.tokens), self.giver(peer), taker, removals_of(peer.removals), given=before)
        if made.refused:
            return peer, made
        others = tuple(one for one in peer.given if one.taker != taker)
        return replace(self.merged(peer, made.tokens), given=(*others, made)), made

    def leaves(self, peer: Peer, taker: bytes) -> tuple[Peer, Grant | None]:
        """Everything in one grant: what is left of it is then in one message."""
        made = parting(self.ring(peer.tokens), self.giver(peer), taker)
        if not made:
            return peer, None
        whole = replace(made[0], tokens=tuple(token for one in made for token in one.tokens))
        return replace(self.merged(peer, whole.tokens), home=None, settled=False), whole

    def granted(self, peer: Peer, made: Grant) -> Peer:
        if peer.waiting is not None or (made.home is None) != peer.settled:
            return peer
        met = self.merged(peer, made.ring)
        removals, promiser = removals_of(met.removals), made.promise and made.promise.proposer
        taken = take(made, self.ring(met.tokens), met.bound, removals, **met.over(promiser))
        if taken.refused:
            return met
        number = max(met.number, taken.promise.number if taken.promise else 0)
        met = self.merged(replace(met, promise=taken.promise, number=number), made.tokens)
        asks = self.asks(made, removals)
        if met.settled or not asks:
            return replace(met, settled=True, home=made.home if met.home is None else met.home)
        return replace(met, waiting=replace(made, ring=(), promise=None), asks=asks)

    def asks(self, made: Grant, removals: Removals) -> frozenset[bytes]:
        return witnesses(made, removals)

    def noted(self, peer: Peer, made: Grant) -> Peer | None:
        """The witness; None if it refuses."""
        if not peer.settled or objection(made, self.ring(peer.tokens), peer.bound, removals_of(peer.removals)):
            return None
        return self.merged(peer, made.tokens)

    def witnessed(self, peer: Peer, made: Grant) -> Peer:
        if peer.waiting != made:
            return peer
        return replace(peer, waiting=None, asks=frozenset(), settled=True, home=made.home)

    # --- Removals

    def proposes(self, peer: Peer, names: tuple[bytes, ...]) -> Peer:
        proposal = Promise(proposer=peer.key, number=peer.number + 1, names=names)
        return self.completed(replace(peer, proposal=proposal, number=peer.number + 1, promised=frozenset()))

    def withdrawn(self, peer: Peer) -> Peer:
        assert peer.proposal is not None
        return replace(self.over(peer, peer.proposal.number), proposal=None, promised=frozenset())

    def over(self, peer: Peer, number: int, done: int | None = None) -> Peer:
        others = [member for member in peer.members if member[0] != peer.key]
        mine = (peer.key, number, peer.over(peer.key)["done"] if done is None else done)
        return replace(peer, members=tuple(sorted([*others, mine])))

    def asked(self, peer: Peer, asked: Promise) -> tuple[Peer, Ack]:
        answer = peer.bound.answer(asked, removals_of(peer.removals))
        if answer.refused:
            return peer, Ack(refused=answer.refused, holder=answer.holder, number=peer.number)
        peer = replace(peer, promise=asked, number=max(asked.number, peer.number))
        return peer, Ack(tokens=peer.tokens, removals=peer.removals, peers=tuple(sorted(peer.known)))

    def answered(self, peer: Peer, source: bytes, asked: Promise, ack: Ack) -> Peer:
        if peer.proposal != asked:
            return peer
        if ack.refused:
            return self.withdrawn(replace(peer, number=max(peer.number, ack.number)))
        strangers = tuple((key, 0, 0) for key in ack.peers if key not in {member for member, _, _ in peer.members})
        peer = replace(peer, promised=peer.promised | {source}, members=tuple(sorted((*peer.members, *strangers))))
        peer = self.merged(peer, ack.tokens, ack.removals)
        return peer if peer.proposal is None else self.completed(peer)

    def missing(self, peer: Peer, proposal: Promise) -> frozenset[bytes]:
        return missing(proposal, peer.known, peer.promised, removals_of(peer.removals))

    def completed(self, peer: Peer) -> Peer:
        proposal = peer.proposal
        assert proposal is not None
        if self.missing(peer, proposal):
            return peer
        made = tuple(inherited(proposal, self.ring(peer.tokens), removals_of(peer.removals)))
        peer = self.over(replace(peer, proposal=None, promised=frozenset()), proposal.number, proposal.number)
        return self.merged(peer, (), made)

    def killed(self, peer: Peer) -> Peer:
        return replace(peer, given=(), promised=frozenset())

    def uses(self, peer: Peer) -> set[int]:
        """The blocks on which it relies: its home, and those that it may give away."""
        if not peer.settled:
            return set()
        home = set() if peer.home is None else {peer.home}
        return home.union(*(range(start, stop) for start, stop in self.ring(peer.tokens).runs(peer.key)))
