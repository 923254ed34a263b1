"""Obstacles of all kinds are put into two nodes without telling: traces and doctors say where packets end, and why.

The seed is printed and another one each time; set WEFT_SEED to repeat a run. No daemon of ours runs on these nodes.
"""

import os
import random

import pytest

from tests.campaign.obstacles.cases import CASES
from tests.campaign.obstacles.obstacle import Obstacle
from tests.campaign.obstacles.play import Played, drawn, play, played, put, table
from tests.campaign.obstacles.world import Backend
from weft.model.net import Family
from weft.model.value import replace

A_SLICE = 8  # of which two are harmless; the same each time
HOUR = 400  # of which 300 are obstacles


def test_a_few_obstacles_are_never_called_well():
    found = list(played("slice", A_SLICE))
    print(*found, table(found), sep="\n")
    hurt = [each for each in found if not each.harmless]
    assert all(each.faults for each in hurt if each.effect)
    assert sum(each.diagnosed for each in hurt) > len(hurt) / 2
    assert not any(each.effect or each.doctor for each in found if each.harmless)


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_an_hour_of_obstacles():
    seed = os.environ.get("WEFT_SEED") or str(random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    found = list(played(seed, HOUR))
    print(*found, table(found), sep="\n")
    hurt = [each for each in found if each.effect and not each.harmless]
    assert not [each for each in found if each.harmless and (each.effect or each.doctor)]
    assert not [each for each in hurt if not each.faults]
    assert sum(each.diagnosed for each in hurt) >= 0.8 * len(hurt)


@pytest.mark.parametrize("family, backend, obstacle", [pytest.param(*case, id=case[2].name) for case in CASES])
def test_what_was_named_wrongly_once_is_named(family: Family, backend: Backend, obstacle: Obstacle):
    found = put("case", obstacle, backend, family)
    assert found.effect
    assert found.traced, found
    assert found.diagnosed, found


def test_a_seed_draws_the_same_again():
    assert [drawn(f"s-{number}", harmless=False)[1] for number in range(50)] == [
        drawn(f"s-{number}", harmless=False)[1] for number in range(50)
    ]


def test_what_is_named_wrongly_or_called_well_is_counted():
    obstacle = Obstacle(name="x", place="node1", commands="true", cause="XFRM-001")
    named = Played(
        seed="s", backend="vxlan", family=4, harmless=False, obstacle=obstacle, effect=True, faults=1, placed=True,
        trace=("XFRM-001 node1: a policy",), doctor=("XFRM-001 node1: a policy",),
    )  # fmt: skip
    wrong = replace(named, trace=("FW-002 node1: a rule",), doctor=("FW-002 node1: a rule",))
    silent = replace(named, trace=("it arrives",), doctor=(), faults=0, arrives=True, placed=False)
    benign = replace(named, harmless=True, effect=False)
    said = table([named, wrong, silent, benign])
    assert "| place named by trace | 2 of 3 (67 %) |" in said
    assert "| cause named by doctor, on the node concerned | 1 of 3 (33 %) |" in said
    assert "| '0 faults' while packets are lost | 1 |" in said
    assert "| 'it arrives' while packets are lost | 1 |" in said
    assert "| benign changes with a finding | 1 of 1 |" in said


def test_a_fault_that_is_called_harmless_is_found(monkeypatch: pytest.MonkeyPatch):
    harm = Obstacle(name="x", place="node1", commands="ip link set cni0 down", cause="BRIDGE-006")
    monkeypatch.setattr(
        "tests.campaign.obstacles.play.drawn", lambda seed, *, harmless: (drawn(seed, harmless=harmless)[0], harm)
    )
    found = play("s", harmless=True)
    assert found.effect
    assert found.diagnosed
