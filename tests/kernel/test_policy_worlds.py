"""What arrives in drawn worlds is what the reference allows: all protocols, both families, bridged and routed pods.

The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.policy.arriving import wrong
from tests.support.policy.site import Site
from tests.support.policy.worlds import drawn
from weft.model.kernel.policytable import PolicyChain, PolicyElement
from weft.model.value import replace


@pytest.fixture(scope="module", params=["bridge", "ptp"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(request.param, stack)


def agree(site, worlds):
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance, all_counts = random.Random(seed), Counter()
    for number in range(worlds):
        world = drawn(chance)
        found, counts = wrong(site, world, chance)
        assert not found, (number, world)
        all_counts += counts
    assert min(all_counts[right] for right in (True, False)) > sum(all_counts.values()) / 20, all_counts


def test_what_arrives_is_what_is_allowed(site):
    agree(site, 20)


@pytest.mark.soak
def test_what_arrives_is_what_is_allowed_for_long(site):
    agree(site, 1500)


def accepting(objects):
    """An accept too many, in each class."""
    classes = {thing.verdict for thing in objects.values() if isinstance(thing, PolicyElement) and thing.verdict}
    return {
        key: replace(thing, rules=("accept", *thing.rules))
        if isinstance(thing, PolicyChain) and thing.name in classes
        else thing
        for key, thing in objects.items()
    }


def lacking(prefix, objects):
    """A set of each name without an element."""
    elements = [key for key in objects if key[0] == "polelement" and str(key[2]).startswith(prefix)]
    return {key: thing for key, thing in objects.items() if key not in elements[:1]}


@pytest.mark.parametrize("site", ["bridge"], indirect=True)
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(accepting, id="an accept too many"),
        pytest.param(lambda objects: lacking("peers", objects), id="a peer too few"),
        pytest.param(lambda objects: lacking("bound", objects), id="a sender too few"),
        pytest.param(lambda objects: lacking("in4", objects), id="a pod too few"),
    ],
)
def test_a_fault_is_seen(site, spoil):
    chance = random.Random(7)
    assert any(wrong(site, drawn(chance), chance, spoil, seconds=0.1)[0] for _ in range(12))
