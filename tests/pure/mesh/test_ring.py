"""Tokens: whatever comes in whatever order and pieces, the ring is what the highest versions say, block by block."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from weft.mesh.ring import NOBODY, Tokens, founded
from weft.model.mesh.records import VERSIONS, Layout, Token

LAYOUT = Layout(net_conf="{}", blocks=18, first=2)
A, B, C = b"a", b"b", b"c"


def token(start, stop, owner, version):
    return Token(start=start, stop=stop, owner=owner, version=version)


runs = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)
tokens = st.builds(
    lambda run, owner, version: token(*run, owner, version), runs, st.sampled_from([A, B, C]), st.integers(1, 4)
)
rings = st.lists(tokens, max_size=8)


def by_block(given):
    """The same in the simplest way: for each block the highest version, then the lower key."""
    best = {}
    for one in given:
        for block in range(max(one.start, LAYOUT.first), min(one.stop, LAYOUT.blocks)):
            best[block] = min(best.get(block, (0, NOBODY)), (-one.version, one.owner))
    return {block: (owner, -version) for block, (version, owner) in best.items()}


def blocks(ring):
    return {block: (one.owner, one.version) for one in ring for block in range(one.start, one.stop)}


@given(rings)
def test_a_ring_is_what_its_tokens_say_block_by_block(given):
    ring = Tokens(LAYOUT, given)
    known = by_block(given)
    assert blocks(ring) == known
    pairs = list(ring)
    assert all(one.start < one.stop for one in pairs)
    neighbours = itertools.pairwise(pairs)
    assert all(one.stop < two.start or (one.owner, one.version) != (two.owner, two.version) for one, two in neighbours)
    owners = [owner for owner, _ in known.values()]
    assert set(ring.owners) == set(owners)
    for owner in (A, B, C):
        assert ring.count(owner) == owners.count(owner)
        assert ring.of(owner) == [one for one in ring if one.owner == owner]
        mine = {block for block in known if known[block][0] == owner}
        assert {block for start, stop in ring.runs(owner) for block in range(start, stop)} == mine
        assert all(start - 1 not in mine and stop not in mine for start, stop in ring.runs(owner))
    for block in range(-1, 21):
        found = ring.at(block)
        assert (found and (found.owner, found.version)) == known.get(block)


@given(rings, rings, rings)
def test_merge_is_commutative_associative_and_idempotent(one, two, three):
    ring = Tokens(LAYOUT, [*one, *two])
    assert list(ring) == list(Tokens(LAYOUT, [*two, *one]))
    assert not ring.merge(list(ring)).new
    left, right = Tokens(LAYOUT, list(ring)), Tokens(LAYOUT, one)
    left.merge(Tokens(LAYOUT, three))
    right.merge(list(Tokens(LAYOUT, [*two, *three])))
    assert list(left) == list(right)


@given(rings, rings)
def test_a_merge_says_what_it_changed(before, incoming):
    ring = Tokens(LAYOUT, before)
    old, copy = set(ring), Tokens(LAYOUT, before)
    change = ring.merge(incoming)
    unknown = {one for one in change.gone if one.owner == NOBODY}
    assert set(change.gone) - unknown == old - set(ring)
    assert {one for one in change.new if one.owner != NOBODY} == set(ring) - old
    assert set(copy) == old
    for key in (A, B, C):
        lost = {block for one in change.lost(key) for block in range(one.start, one.stop)}
        assert lost == {
            block for block, (owner, _) in blocks(copy).items() if owner == key and blocks(ring)[block][0] != key
        }


@given(rings, rings, st.sets(st.sampled_from([A, B, C])))
def test_blocks_of_frozen_owners_stay(before, incoming, frozen):
    ring = Tokens(LAYOUT, before)
    old = blocks(ring)
    ring.merge(incoming, frozen)
    for block, (owner, version) in old.items():
        if owner in frozen:
            assert blocks(ring)[block] == (owner, version)


@given(rings, tokens)
def test_what_is_accepted_wins_for_all_its_blocks(before, one):
    ring = Tokens(LAYOUT, before)
    accepted = ring.accepts(one)
    old = blocks(ring)
    inside = LAYOUT.first <= one.start < one.stop <= LAYOUT.blocks
    assert accepted == (
        inside
        and all(
            block not in old or old[block][1] < one.version or old[block] == (one.owner, one.version)
            for block in range(one.start, one.stop)
        )
    )
    if inside:
        ring.merge([one])
        assert not accepted or all(
            blocks(ring)[block] == (one.owner, one.version) for block in range(one.start, one.stop)
        )


def test_what_an_owner_writes_beats_what_was_there():
    ring = Tokens(LAYOUT, [token(2, 6, A, 1), token(6, 8, A, 7)])
    given = ring.written(B, 4, 8)
    assert given == token(4, 8, B, 8)
    ring.merge([given])
    assert list(ring) == [token(2, 4, A, 1), token(4, 8, B, 8)]


def test_a_founder_has_every_block_that_may_be_given():
    ring = Tokens(LAYOUT, [founded(LAYOUT, A)])
    assert ring.runs(A) == [(2, 18)]
    assert ring.layout is LAYOUT


def test_a_version_that_none_could_exceed_is_ignored():
    ring = Tokens(LAYOUT, [token(2, 6, A, VERSIONS)])
    assert not ring.accepts(token(2, 6, A, VERSIONS))
    assert list(ring) == []
