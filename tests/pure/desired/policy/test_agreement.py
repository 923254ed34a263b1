"""Explain, the wanted objects read as nft would, and the reference agree on every flow of drawn worlds."""

from ipaddress import ip_address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from tests.support.policy import reference
from tests.support.policy.deciding import decided, expected, is_here, judging
from tests.support.policy.nftreader import NUMBERS, Packet, Reader
from tests.support.policy.worlds import drawn, flows
from weft.desired.policy.judge import judged
from weft.desired.policy.verdict import Asked


def packet(flow):
    return Packet(flow, iifname="cni0" if is_here(flow[0]) else "flannel.1")


@pytest.mark.long
@reaches(refused=0.3, allowed_by_policy=0.3)
@given(st.integers(0, 2**32))
def test_drawn_worlds(seed):
    random = Random(seed)
    world = drawn(random)
    reader = Reader(decided(world).wanted.values())
    for flow in flows(random, world, 60):
        right = expected(world, flow)
        assert reader.passes(packet(flow)) == right, flow
        restricted = world["policies"] and any(is_here(each) for each in flow[:2])
        if restricted:
            reached("allowed_by_policy" if right else "refused")


@reaches(cut=0.3, kept=0.3)
@given(st.integers(0, 2**32))
def test_open_connections_are_judged_as_their_first_packet_would_be_now(seed):
    random = Random(seed)
    world = drawn(random)
    open_now = decided(world).connections(frozenset)
    for flow in flows(random, world, 60):
        source, target, protocol, port = flow
        ends = (ip_address(each).packed for each in (source, target))
        forbidden = open_now.forbids(*ends, NUMBERS.get(protocol.lower(), 1), port)
        assert forbidden != expected(world, flow), flow
        if world["policies"] and any(is_here(each) for each in flow[:2]):
            reached("cut" if forbidden else "kept")


@reaches(refused=0.3, allowed_by_policy=0.3)
@given(st.integers(0, 2**32))
def test_explain(seed):
    random = Random(seed)
    world = drawn(random)
    known = judging(world)
    for source, target, protocol, port in flows(random, world, 60):
        ends = known.at(ip_address(source)), known.at(ip_address(target))
        found = judged(Asked(source=ends[0], target=ends[1], protocol=protocol.lower(), port=port), known)
        flow = source, target, protocol, port
        assert [side.allowed for side in found.sides] == [reference.leaves(world, flow), reference.enters(world, flow)]
        if any(side.policies for side in found.sides):
            reached("allowed_by_policy" if found.allowed else "refused")
        assert all(bool(side.change) != side.allowed for side in found.sides)
