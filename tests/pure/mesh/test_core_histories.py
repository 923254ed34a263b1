"""Every history of a few cores, up to a depth; and what is found when a fault is planted in the core.

`begun` are steps as `coresearch` names them: `b waits` is time passing at b until it does something. What needs more
peers or more steps than cores can be searched for is planted in the rules alone (`test_histories`).
"""

import pytest

from tests.pure.mesh.coresearch import CoreSearch
from tests.pure.mesh.search import Found, Limits, explore
from weft.mesh import estate, ring
from weft.mesh.grants import Giver
from weft.model.mesh.records import Layout
from weft.model.value import replace

_TWO = "gossip a→b, want b→a, grant a→b, gossip b→a"
_THREE = _TWO + ", gossip a→c, want c→a, grant a→c, note c→b, ack b→c"
_DEAD = _THREE + ", a dies, b waits, c waits, gossip c→b"


def searched(blocks: int, limits: Limits, depth: int, begun: str = "") -> Found:
    return explore(CoreSearch(Layout(net_conf="{}", blocks=blocks, first=0), limits), depth, begun)


CASES = {
    "joins": (4, Limits(peers=3), "", 10, 16),
    "a death": (4, Limits(peers=3, deaths=1, removals=2, kills=1), _TWO, 6, 9),
    "a removal": (6, Limits(peers=3, deaths=1, removals=2, kills=1), _DEAD, 7, 11),
    "cut off": (4, Limits(peers=3, cuts=2, removals=1), _TWO, 6, 9),
    "four": (3, Limits(peers=4, deaths=1, removals=1), "", 4, 6),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_history_of_cores_gives_a_block_to_two(case):
    blocks, limits, begun, depth, _ = case
    found = searched(blocks, limits, depth, begun)
    assert found.why == "", found.trail
    assert found.depth == depth


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_longer_history_of_cores_either(case):
    blocks, limits, begun, _, depth = case
    found = searched(blocks, limits, depth, begun)
    assert found.why == "", found.trail
    assert found.depth == depth


# --- What happens without one of the rules


def no_witness(patch):
    patch.setattr(estate, "witnesses", lambda _made, _removals: frozenset())


def lower_version(patch):
    patch.setattr(ring, "_wins", lambda token, run: (token.version, token.owner) != (run.version, run.owner))


def home_given(patch):
    giver = estate.Estate._giver

    def homeless(self) -> Giver:
        return replace(giver(self), home=None)

    patch.setattr(estate.Estate, "_giver", homeless)
    patch.setattr("weft.mesh.grants.share", lambda tokens, giver: tokens.runs(giver.bound.me)[0])


def anothers_run(patch):
    """The last block is given, though it may be of another."""
    patch.setattr("weft.mesh.grants.share", lambda tokens, _giver: (tokens.layout.blocks - 1, tokens.layout.blocks))


@pytest.mark.parametrize(
    "fault, limits, begun, depth",
    [
        (no_witness, Limits(peers=3, deaths=1, removals=1), _TWO + ", gossip a→c, want c→a, grant a→c", 8),
        (lower_version, Limits(peers=3), "", 7),
        (home_given, Limits(peers=3), "gossip a→b", 4),
        (anothers_run, Limits(peers=3), _TWO, 9),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_that_is_planted_is_found(fault, limits, begun, depth, monkeypatch):
    fault(monkeypatch)
    assert searched(6, limits, depth, begun).why


class Unkept(CoreSearch):
    """What is sent leaves before it is on disk."""

    def __init__(self, layout: Layout, limits: Limits) -> None:
        super().__init__(layout, limits)
        self.before: dict[int, int] = {}

    def step(self, what, number, *more):
        after, letters, rekeyed = super().step(what, number, *more)
        if letters and after != number:
            self.before.setdefault(after, number)
        return after, letters, rekeyed

    def _killed(self, world, at):
        number = world.peers[at]
        peers = list(world.peers)
        peers[at] = self.before.get(number, number)
        return super()._killed(world._replace(peers=tuple(peers)), at)


def test_what_is_sent_before_it_is_on_disk_is_found():
    layout, limits = Layout(net_conf="{}", blocks=6, first=0), Limits(peers=3, kills=1)
    begun = "gossip a→b, want b→a"
    found = explore(Unkept(layout, limits), 8, begun)
    assert found.why, found
    assert "a is killed" in found.trail
    assert explore(CoreSearch(layout, limits), len(found.trail), begun).why == ""
