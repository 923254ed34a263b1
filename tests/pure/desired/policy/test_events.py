"""Events in any order and slices, with restarts between: what is wanted, what the kernel holds, and each moment."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from tests.support.policy.deciding import SETTINGS as WITHOUT_A_NAME
from tests.support.policy.deciding import attachments, decided, is_here, values
from tests.support.policy.nftreader import Packet, Reader
from tests.support.policy.worlds import drawn, flows, policy
from weft.desired.policy.decide import PolicyDecider
from weft.kernel.netfilter.policies import stages
from weft.model.value import replace
from weft.plan.diff import Put, diff

SETTINGS = replace(WITHOUT_A_NAME, node="node1")  # pods are expected


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
    assert decider.wanted == decided(world, SETTINGS).wanted


class Node:
    """A daemon that is told events, and the kernel, which outlives it."""

    def __init__(self):
        self.kernel = {}
        self.things, self.attached = {}, {}
        self.decider = PolicyDecider(SETTINGS)

    def hear(self, event):
        """A thing or the id of one that is gone; a pair of an attachment's name and what is attached, or None."""
        match event:
            case (str(key), None):
                self.attached.pop(key, None)
                return self.decider.detached(key)
            case (str(key), attached):
                self.attached[key] = attached
                return self.decider.attached(key, attached)
            case tuple():
                del self.things[event]
                return self.decider.change(gone=[event])
        self.things[event.id] = event
        return self.decider.change([event])

    def restart(self, random):
        self.decider, events = PolicyDecider(SETTINGS), [*self.things.values(), *self.attached.items()]
        for event in random.sample(events, len(events)):
            self.hear(event)
        hold(self.kernel, diff(self.decider.wanted, self.kernel))


def hold(kernel, steps):
    for step in steps:
        if isinstance(step, Put):
            kernel[step.object.key] = step.object
        else:
            del kernel[step.object.key]


def slices(random, events):
    while events:
        size = random.randrange(1, len(events) + 1)
        yield events[:size]
        events = events[size:]


@pytest.mark.long
@settings(max_examples=50)
@reaches(stopped=0.5)
@given(st.integers(0, 2**32))
def test_the_kernel_holds_what_is_decided_from_nothing_whatever_was_stopped_in_the_middle(seed):
    random, node = Random(seed), Node()
    for world in [drawn(random) for _ in range(4)]:
        things, here = {thing.id: thing for thing in values(world)}, attachments(world)
        events = [*things.values(), *(node.things.keys() - things.keys()), *here.items()]
        events += [(key, None) for key in node.attached.keys() - here.keys()]
        random.shuffle(events)
        for part in slices(random, events):
            keys = {key for event in part for key in node.hear(event)}
            made = list(stages(diff(node.decider.wanted, node.kernel, keys=keys)))
            stops = random.random() < 0.3
            for stage in made[: random.randrange(len(made) + 1)] if stops else made:
                hold(node.kernel, stage)
            if stops:
                node.restart(random)
                reached("stopped")
        assert node.kernel == decided(world, SETTINGS).wanted


@pytest.mark.long
@settings(max_examples=50)
@reaches(several=0.9, changed=0.9)
@given(st.integers(0, 2**32))
def test_at_no_moment_of_a_change_a_packet_is_judged_otherwise_than_before_and_after(seed):
    random = Random(seed)
    former, world = drawn(random), drawn(random)
    before, after = decided(former, SETTINGS).wanted, decided(world, SETTINGS).wanted
    some = [*flows(random, former, 20), *flows(random, world, 20)]
    packets = [(flow, Packet(flow, iifname="cni0" if is_here(flow[0]) else "flannel.1")) for flow in some]

    def judged(objects):
        reader = Reader(objects.values())
        return [reader.passes(packet) for _, packet in packets]

    ends, kernel = (judged(before), judged(after)), dict(before)
    if ends[0] != ends[1]:
        reached("changed")
    made = list(stages(diff(after, before)))
    if len(made) > 1:
        reached("several")
    for stage in made:
        hold(kernel, stage)
        for (flow, _), *allowed, now in zip(packets, *ends, judged(kernel), strict=True):
            assert now in allowed, flow
    assert kernel == after
