"""Meshes across NATs: who meets whom, and by whom the others go. Row N8 of the specification, in virtual time."""

from itertools import permutations
from random import Random

import pytest

from tests.support.mesh.nats import Nats
from tests.support.mesh.paths import BOTH, both
from weft.model.lease import WayKind
from weft.model.mesh import effects as do

SEALED: tuple[WayKind, ...] = ("direct",)
PUNCHED = 15.0  # seconds
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]


def reached(nats: Nats) -> bool:
    """Every pod reaches every pod."""
    return all(nats.arrives(one, other) for one, other in permutations(nats.world.nodes, 2))


def met(nats: Nats, one: str, other: str) -> bool:
    return all(nats.relay(*pair) == "" and nats.kind(*pair) == "direct" for pair in both(one, other))


def reasons(nats: Nats, one: str, other: str) -> set[str]:
    return {nats.reason(*pair) for pair in both(one, other)}


@pytest.mark.long
@pytest.mark.parametrize("kinds", [BOTH, SEALED], ids=["clear", "sealed"])
@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_n8_two_behind_nats_of_their_own_meet_in_time(seed: int, idle: bool, kinds: tuple[WayKind, ...]):
    nats = Nats(3, {"n1": "one", "n2": "other"}, seed=seed, kinds=kinds)
    if idle:
        nats.idle = {"n0", "n1", "n2"}
    assert nats.world.run(3, until=lambda: reached(nats))
    assert nats.relay("n1", "n2") == "n0"
    assert reasons(nats, "n1", "n2") == {"nat"}
    assert nats.world.run(PUNCHED, until=lambda: met(nats, "n1", "n2"))
    assert reasons(nats, "n1", "n2") == {""}
    for _ in range(600):
        nats.world.run(1)
        assert reached(nats)
        assert met(nats, "n1", "n2")


@pytest.mark.parametrize("kinds", [BOTH, SEALED], ids=["clear", "sealed"])
@pytest.mark.parametrize("behind", ["one", "hard"])
def test_n8_one_behind_a_nat_needs_nobody_to_reach_those_outside(behind: str, kinds: tuple[WayKind, ...]):
    nats = Nats(3, {"n1": behind}, kinds=kinds)
    assert nats.world.run(PUNCHED, until=lambda: reached(nats) and met(nats, "n0", "n1") and met(nats, "n1", "n2"))
    for _ in range(120):
        nats.world.run(1)
        assert reached(nats)
        assert met(nats, "n0", "n1")
    assert {nats.kind(*pair) for pair in both("n0", "n2")} == {kinds[0]}
    assert reasons(nats, "n0", "n1") == reasons(nats, "n1", "n2") == {""}, "no NAT lets vxlan pass"


@pytest.mark.long
@pytest.mark.parametrize("kinds", [BOTH, SEALED], ids=["clear", "sealed"])
@pytest.mark.parametrize("behind", ["hard other", "other"])
def test_n8_two_of_whom_one_is_behind_a_hard_nat_go_by_a_third_for_ever(behind: str, kinds: tuple[WayKind, ...]):
    nats = Nats(4, {"n1": "hard", "n2": behind}, kinds=kinds)
    assert nats.world.run(10, until=lambda: reached(nats) and reasons(nats, "n1", "n2") == {"nat-hard"})
    for _ in range(300):
        nats.world.run(1)
        assert reached(nats)
        assert nats.relay("n1", "n2") in {"n0", "n3"}


@pytest.mark.parametrize("kinds", [BOTH, SEALED], ids=["clear", "sealed"])
@pytest.mark.parametrize("nat", ["one", "hard"])
def test_two_behind_one_nat_meet_behind_it(nat: str, kinds: tuple[WayKind, ...]):
    nats = Nats(5, {"n1": nat, "n2": nat, "n3": "other"}, kinds=kinds)
    assert nats.world.run(30, until=lambda: reached(nats) and not any(nats.relay(*pair) for pair in both("n1", "n2")))
    assert {nats.kind(*pair) for pair in both("n1", "n2")} == {kinds[0]}
    assert nats.world.nodes["n1"].address == nats.session("n2", "n1").endpoint or kinds == BOTH


@pytest.mark.parametrize("old", [False, True])
def test_a_daemon_that_starts_again_behind_a_nat_changes_no_way(old: bool):
    """Its disk has not heard yet of what it knew of paths last, and perhaps says that it has not met the other."""
    nats = Nats(3, {"n1": "one", "n2": "other"}, seed=2)
    assert nats.world.run(30, until=lambda: met(nats, "n1", "n2"))
    nats.world.run(60)
    for _ in range(3):
        node = nats.world.nodes["n1"]
        late = node.core.recalled
        nats.world.kill("n1")
        fallen = do.PathFound(key=nats.world.nodes["n2"].key, kind="direct", fallen=True)
        node.late, node.paths = late, (fallen,) * old
        nats.world.start("n1")
        nats.world.run(2.0 * old)
        for _ in range(200):
            nats.world.run(0.1)
            assert met(nats, "n1", "n2")
            assert reached(nats)


def test_a_nat_that_starts_again_costs_half_a_minute():
    nats = Nats(3, {"n1": "one", "n2": "other"})
    assert nats.world.run(30, until=lambda: met(nats, "n1", "n2"))
    nats.world.run(60)
    nats.nats["one"].restart()
    assert nats.world.run(120, until=lambda: met(nats, "n1", "n2") and reached(nats))


@pytest.mark.long
@pytest.mark.parametrize("kinds", [BOTH, SEALED], ids=["clear", "sealed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_wherever_nodes_are_every_pod_reaches_every_pod_and_goes_on_to(seed: int, kinds: tuple[WayKind, ...]):
    chance = Random(seed)
    behind = {f"n{number}": chance.choice(["one", "other", "hard", "hard other"]) for number in range(2, 9)}
    nats = Nats(9, behind, seed=seed, kinds=kinds)
    nats.world.run(60)
    for _ in range(60):
        nats.world.run(1)
        assert reached(nats)
