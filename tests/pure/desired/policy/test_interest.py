"""Whose pods a node reads: enough to decide every flow here as with all pods, whatever has happened before."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.desired.policy.test_agreement import packet
from tests.pure.reach import reached, reaches
from tests.support.policy.deciding import decided, values
from tests.support.policy.nftreader import Reader
from tests.support.policy.worlds import drawn, flows
from weft.desired.policy.interest import Interest
from weft.model.policy import ClusterPolicy, Namespace, Pod, Policy


def tell(interest: Interest, thing: Namespace | Pod | Policy | ClusterPolicy) -> None:
    if isinstance(thing, Namespace):
        interest.set_namespace(thing.name, thing)
    elif isinstance(thing, Pod):
        interest.set_pod(thing.id, thing if thing.node == "node1" and thing.counts else None)
    else:
        interest.set_policy(thing.id, thing)


def forget(interest: Interest, thing: Namespace | Pod | Policy | ClusterPolicy) -> None:
    if isinstance(thing, Namespace):
        interest.set_namespace(thing.name, None)
    elif isinstance(thing, Pod):
        interest.set_pod(thing.id, None)
    else:
        interest.set_policy(thing.id, None)


def interested(things) -> Interest:
    made = Interest()
    for each in things:
        tell(made, each)
    return made


def read(world, namespaces):
    """The world as a node knows it that reads the pods of these namespaces, and its own."""
    pods = [
        each
        for each in world["pods"]
        if each["spec"]["nodeName"] == "node1" or namespaces is None or each["metadata"]["namespace"] in namespaces
    ]
    return {**world, "pods": pods}


@pytest.mark.long
@reaches(fewer=0.2, all=0.05)
@given(st.integers(0, 2**32))
def test_what_is_read_is_enough_to_decide_every_flow_here(seed):
    random = Random(seed)
    world = drawn(random)
    meant = interested(values(world)).namespaces
    known = read(world, meant)
    if meant is None:
        reached("all")
    if len(known["pods"]) < len(world["pods"]):
        reached("fewer")
    whole, part = (Reader(decided(each).wanted.values()) for each in (world, known))
    for flow in flows(random, world, 60):
        assert part.passes(packet(flow)) == whole.passes(packet(flow)), flow


@reaches(gone=0.5)
@given(st.integers(0, 2**32))
def test_any_history_ends_in_the_same_namespaces(seed):
    random = Random(seed)
    wanted, former = ({thing.id: thing for thing in values(drawn(random))} for _ in range(2))
    events = list(former.values())
    random.shuffle(events)
    later = [*wanted.values(), *(former[name] for name in former.keys() - wanted.keys())]
    random.shuffle(later)
    interest = interested(events)
    for thing in later:
        if thing.id in wanted:
            tell(interest, thing)
        else:
            forget(interest, thing)
            reached("gone")
    assert interest.namespaces == interested(wanted.values()).namespaces
    for thing in wanted.values():
        forget(interest, thing)
    assert interest.namespaces == frozenset()
