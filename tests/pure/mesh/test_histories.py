"""Every history of a few peers, up to a depth: with the rules as they are none goes wrong, and without any one it does.

`begun` and a trail are steps as `search` names them: `note c→b` is peer c asking b to be its witness.
"""

import pytest

from tests.pure.mesh.rules import Peer, Rules
from tests.pure.mesh.search import Limits, search
from weft.mesh import ring
from weft.mesh.removal import Removals
from weft.model.mesh.messages import Grant
from weft.model.mesh.records import Layout, Token
from weft.model.value import replace

THREE = Layout(net_conf="{}", blocks=3, first=0)
FOUR = Layout(net_conf="{}", blocks=4, first=0)

JOINS = Limits(peers=3)
DEATHS = Limits(peers=3, deaths=1, kills=1, removals=2)
ERRORS = Limits(peers=3, removals=2, living=True)
LEAVES = Limits(peers=3, removals=1, living=True, leaves=1)
FOURS = Limits(peers=4, removals=1, living=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "layout, limits, depth",
    [(FOUR, JOINS, 9), (FOUR, DEATHS, 7), (FOUR, ERRORS, 6), (FOUR, LEAVES, 6), (THREE, FOURS, 5)],
    ids=["joins", "deaths", "errors", "leaves", "fours"],
)
def test_no_history_gives_a_block_to_two(layout, limits, depth):
    found = search(Rules(layout), limits, depth)
    assert found.why == "", found.trail
    assert found.depth == depth


@pytest.mark.soak
@pytest.mark.parametrize(
    "layout, limits, depth",
    [(FOUR, JOINS, 12), (FOUR, DEATHS, 10), (FOUR, ERRORS, 10), (FOUR, LEAVES, 9), (THREE, FOURS, 8)],
    ids=["joins", "deaths", "errors", "leaves", "fours"],
)
def test_no_longer_history_either(layout, limits, depth):
    found = search(Rules(layout), limits, depth)
    assert found.why == "", found.trail
    assert found.depth == depth


# --- What happens without one of the rules


class Majority(Rules):
    def missing(self, peer, proposal):
        known = peer.known - set(proposal.names)
        enough = 2 * (len(peer.promised) + 1) > len(known)
        return frozenset() if enough else super().missing(peer, proposal)


class NoWitness(Rules):
    def asks(self, made: Grant, removals: Removals) -> frozenset[bytes]:  # noqa: ARG002
        return frozenset()


class NewWitness(Rules):
    def noted(self, peer: Peer, made: Grant) -> Peer | None:
        after = super().noted(replace(peer, settled=True), made)
        return after and replace(after, settled=peer.settled)


class NoPromise(Rules):
    """All that are asked agree, and go on as before."""

    def asked(self, peer, asked):
        after, ack = super().asked(peer, asked)
        return (peer if after.promise == asked else after), ack


class NotFrozen(Rules):
    """A promise keeps from other promises, and from nothing else."""

    def merged(self, peer, tokens, removals=()):
        after = super().merged(replace(peer, promise=None), tokens, removals)
        return self.freed(replace(after, promise=peer.promise))


class Unbound(Rules):
    """A taker does not take over its giver's promise."""

    def granted(self, peer: Peer, made: Grant) -> Peer:
        return super().granted(peer, replace(made, promise=None))


class Unkept(Rules):
    """A grant is sent before it is on disk."""

    def killed(self, peer: Peer) -> Peer:
        return super().killed(replace(peer, tokens=peer.given[0].ring) if peer.given else peer)


class Careless(Rules):
    """The end of the ring is given away, though it may be of another."""

    def wanted(self, peer: Peer, taker: bytes) -> tuple[Peer, Grant]:
        after, made = super().wanted(peer, taker)
        if made.refused:
            return peer, made
        end = self.ring(peer.tokens).written(taker, self.layout.blocks - 1, self.layout.blocks)
        return self.merged(after, (end,)), replace(made, tokens=(end,), home=end.start)


class Homeless(Rules):
    """A giver gives its home."""

    def wanted(self, peer: Peer, taker: bytes) -> tuple[Peer, Grant]:
        after, made = super().wanted(peer, taker)
        if made.refused or peer.home is None:
            return after, made
        home = self.ring(peer.tokens).written(taker, peer.home, peer.home + 1)
        return self.merged(peer, (home,)), replace(made, tokens=(home,), home=peer.home)


_TWO = "want b→a, grant a→b"
_THREE = _TWO + ", want c→b, want c→a, grant a→c, note c→b, noted b→c"
_ALL = _TWO + ", want c→a, grant a→c, note c→b, noted b→c"


@pytest.mark.long
@pytest.mark.parametrize(
    "rules, limits, begun, depth",
    [
        (Majority, Limits(peers=4, removals=1, living=True), "gossip b→a, want c→a", 5),
        (NoWitness, Limits(peers=3, removals=1, living=True), "", 6),
        (NewWitness, Limits(peers=4, removals=1, living=True), _TWO + ", want c→a, want d→a, grant a→d", 7),
        (NoPromise, Limits(peers=3, removals=1, living=True), "", 7),
        (NotFrozen, Limits(peers=3, removals=1, living=True), _THREE, 6),
        (Unbound, Limits(peers=4, removals=1, living=True), _ALL + ", a proposes b, ask a→c, want d→c", 5),
        (Unkept, Limits(peers=3, kills=1), "", 7),
        (Careless, JOINS, "", 7),
        (Homeless, JOINS, "", 7),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_rule_is_needed(rules, limits, begun, depth):
    layout = replace(FOUR, blocks=6)
    found = search(rules(layout), limits, depth, begun=begun)
    assert found.why, found
    assert search(Rules(layout), limits, found.depth, begun=begun).why == ""


def test_a_lower_version_is_seen(monkeypatch):
    def wins(token: Token, run: Token) -> bool:
        return (token.version, token.owner) != (run.version, run.owner)

    monkeypatch.setattr(ring, "_wins", wins)
    assert "went back" in search(Rules(FOUR), JOINS, 6).why
