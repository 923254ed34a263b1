"""Events in any order leave the objects of a decision from nothing, and say which keys they touch."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from tests.support.policy.deciding import SETTINGS, attachments, decided, values
from tests.support.policy.worlds import drawn, policy
from weft.desired.policy.decide import PolicyDecider


def touched(before, after):
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@reaches(changed=0.9, gone=0.5)
@given(st.integers(0, 2**32))
def test_any_history_ends_in_the_same_objects(seed):
    random = Random(seed)
    world = drawn(random)
    other = drawn(random)
    if not world["policies"]:
        world["policies"] = [policy(random, 0, world["namespaces"])]
    # What another world says first is changed or removed by what this one says: names are the same.
    wanted = {thing.id: thing for thing in values(world)}
    former = {thing.id: thing for thing in values(other)}
    here, was_here = attachments(world), attachments(other)
    events = [("put", thing) for thing in former.values()] + list(was_here.items())
    random.shuffle(events)
    later = [("put", thing) for thing in wanted.values()] + list(here.items())
    later += [("gone", name) for name in former.keys() - wanted.keys()]
    later += [(key, None) for key in was_here.keys() - here.keys()]
    random.shuffle(later)

    decider = PolicyDecider(SETTINGS)
    for what, thing in events + later:
        before = dict(decider.wanted)
        if what == "put":
            keys = decider.change([thing])
        elif what == "gone":
            keys = decider.change(gone=[thing])
            reached("gone")
        elif thing is None:
            keys = decider.detached(what)
        else:
            keys = decider.attached(what, thing)
        assert touched(before, decider.wanted) <= keys
        reached("changed")
    assert decider.wanted == decided(world).wanted
