"""Grants: small ones, never the home, never to two; on what nobody relies, and who is a witness."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.pure.mesh.rules import removals_of
from weft.mesh.grants import Giver, Taken, choose, grant, keeps, objection, parting, share, take, witnesses
from weft.mesh.removal import Bound, Removals
from weft.mesh.ring import Tokens, founded
from weft.model.mesh.messages import Grant, Promise
from weft.model.mesh.records import Layout, Removal, Token
from weft.model.value import replace

LAYOUT = Layout(net_conf="{}", blocks=512, first=2)
A, B, C, X = b"a", b"b", b"c", b"x"
NONE = Removals()


def token(start, stop, owner, version):
    return Token(start=start, stop=stop, owner=owner, version=version)


def giver(home, **more):
    return Giver(bound=Bound(me=A), home=home, settled=True, **more)


def founder():
    return Tokens(LAYOUT, [founded(LAYOUT, A)])


def test_a_grant_is_the_end_of_the_largest_run_a_home_and_a_128th():
    tokens = founder()
    given = grant(tokens, giver(2), B, NONE)
    assert given == Grant(giver=A, taker=B, home=507, tokens=(token(507, 512, B, 2),), ring=(founded(LAYOUT, A),))
    assert grant(tokens, giver(511), B, NONE).tokens == (token(506, 511, B, 2),)
    assert share(tokens, giver(511, resting=((100, 511),))) == (95, 100)


@pytest.mark.parametrize("has, share_", [(1, None), (2, (3, 4)), (3, (4, 5)), (4, (4, 6)), (5, (5, 7)), (6, (6, 8))])
def test_never_more_than_half_is_given(has, share_):
    layout = Layout(net_conf="{}", blocks=2 + has, first=2)
    assert share(Tokens(layout, [founded(layout, A)]), giver(2)) == share_


@given(st.sets(st.integers(2, 511)), st.integers(2, 511), st.integers(2, 511), st.integers(0, 511))
def test_neither_the_home_nor_what_rests_nor_what_is_anothers_is_given(others, home, start, length):
    tokens = founder()
    tokens.merge(token(block, block + 1, B, 2) for block in others)
    assume(home not in others)
    resting = set(range(start, start + length))
    given = grant(tokens, giver(home, resting=((start, start + length),)), C, NONE)
    blocks = {block for one in given.tokens for block in range(one.start, one.stop)}
    assert not blocks & {home, *others, *resting}
    assert bool(given.tokens) == bool(blocks) == (not given.refused)
    assert len(blocks) <= min(5, tokens.count(A) // 2)
    assert all(tokens.accepts(one) for one in given.tokens)


def test_the_same_want_is_answered_by_the_same_grant_while_it_holds():
    tokens = founder()
    first = grant(tokens, giver(2), B, NONE)
    tokens.merge(first.tokens)
    assert grant(tokens, giver(2), B, NONE, given=first) == first
    tokens.merge([token(507, 508, C, 9)])
    assert grant(tokens, giver(2), B, NONE, given=first).tokens != first.tokens


def test_who_gives_nothing_says_why():
    tokens = founder()
    assert "witness" in grant(tokens, Giver(bound=Bound(me=A), home=2, settled=False), B, NONE).refused
    assert "removed" in grant(tokens, giver(2), B, removals_of([Removal(key=B, heir=A, number=1)])).refused
    bound = Bound(me=A, promise=Promise(proposer=C, number=1, names=(B,)))
    assert "removed" in grant(tokens, replace(giver(2), bound=bound), B, NONE).refused
    assert "spare" in grant(Tokens(LAYOUT), giver(2), B, NONE).refused


def test_who_leaves_gives_the_home_last():
    tokens = Tokens(LAYOUT, [token(2, 6, A, 1), token(6, 9, B, 1), token(9, 10, A, 3)])
    reserve, home = parting(tokens, giver(4), B)
    assert reserve.tokens == (token(2, 4, B, 2), token(5, 6, B, 2), token(9, 10, B, 4))
    assert home.tokens == (token(4, 5, B, 2),)
    assert reserve.ring == home.ring == tuple(tokens)
    assert [one.tokens for one in parting(Tokens(LAYOUT, [token(4, 5, A, 1)]), giver(4), B)] == [(token(4, 5, B, 2),)]
    assert [one.tokens for one in parting(Tokens(LAYOUT, [token(4, 5, A, 1)]), giver(None), B)] == [
        (token(4, 5, B, 2),)
    ]


def test_who_leaves_gives_no_home_that_another_has_by_now():
    tokens = Tokens(LAYOUT, [token(2, 4, A, 1), token(4, 6, B, 2)])
    assert [one.tokens for one in parting(tokens, giver(4), B)] == [(token(2, 4, B, 2),)]


def test_the_more_a_peer_has_the_likelier_it_is_asked():
    tokens = Tokens(LAYOUT, [token(2, 6, A, 1), token(6, 7, B, 1), token(7, 9, C, 1)])
    assert [choose(tokens, [C, B, A, X], chance) for chance in (0, 0.74, 0.76, 0.99)] == [A, A, C, C]
    assert choose(tokens, [B, X], 0.5) is None


def given_to(taker, **more):
    fields = {"tokens": (token(507, 512, taker, 2),), "ring": (founded(LAYOUT, A),), **more}
    return Grant(giver=A, taker=taker, home=507, **fields)


def test_nobody_relies_on_a_grant_of_or_to_one_that_is_removed_or_about_to_be():
    tokens = founder()
    one = given_to(B)
    assert not objection(one, tokens, Bound(me=C), NONE)
    for key in (A, B):
        named = Promise(proposer=X, number=1, names=(key,))
        assert objection(one, tokens, Bound(me=C, promise=named), NONE)
        assert objection(one, tokens, Bound(me=C, proposal=named), NONE)
        assert objection(one, tokens, Bound(me=C), removals_of([Removal(key=key, heir=X, number=1)]))


def test_nobody_relies_on_a_grant_of_what_another_has():
    tokens = founder()
    tokens.merge([token(511, 512, X, 2)])
    assert objection(given_to(B), tokens, Bound(me=C), NONE) == "others have these blocks"
    assert objection(given_to(B, tokens=(token(4, 5, C, 9),)), founder(), Bound(me=C), NONE)


def test_nobody_relies_on_a_grant_that_a_promise_keeps_from_its_tokens():
    """Here the blocks are still of the one that is named: the grant by which the giver has them was not heard of."""
    tokens = Tokens(LAYOUT, [token(2, 512, X, 1)])
    one = given_to(B)
    bound = Bound(me=C, promise=Promise(proposer=A, number=1, names=(X,)))
    assert objection(one, tokens, bound, NONE)
    assert not objection(one, tokens, Bound(me=C), NONE)
    tokens.merge(one.tokens)
    assert not objection(one, tokens, bound, NONE)


@pytest.mark.parametrize("home, fine", [(506, False), (507, True), (511, True), (512, False), (None, True)])
def test_nobody_relies_on_a_home_that_was_not_given(home, fine):
    assert bool(objection(replace(given_to(B), home=home), founder(), Bound(me=B), NONE)) != fine


def test_any_other_owner_is_a_witness():
    ring = (token(2, 6, A, 1), token(6, 7, B, 1), token(7, 9, C, 1), token(9, 10, X, 1))
    assert witnesses(given_to(B, ring=ring), removals_of([Removal(key=X, heir=C, number=1)])) == {C}
    assert witnesses(given_to(B), NONE) == frozenset()


def test_the_givers_promise_binds_the_taker():
    promise = Promise(proposer=C, number=3, names=(X,))
    one = given_to(B, promise=promise)
    tokens = founder()
    assert take(one, tokens, Bound(me=B), NONE) == Taken(promise=promise)
    assert take(one, tokens, Bound(me=B, promise=promise, number=3), NONE) == Taken(promise=promise)
    other = Promise(proposer=A, number=2, names=(X,))
    refused = take(one, tokens, Bound(me=B, promise=other, number=2), NONE)
    assert refused.refused
    assert refused.promise == other


def test_a_promise_that_is_over_or_is_to_the_taker_itself_binds_nobody():
    promise = Promise(proposer=C, number=3, names=(X,))
    one = given_to(B, promise=promise)
    tokens = founder()
    assert take(one, tokens, Bound(me=B), NONE, over=3) == Taken()
    assert take(given_to(C, promise=promise), tokens, Bound(me=C, proposal=promise, number=3), NONE) == Taken()
    assert take(given_to(B), tokens, Bound(me=B), NONE) == Taken()
    assert take(given_to(B), Tokens(LAYOUT, [token(510, 512, X, 4)]), Bound(me=B), NONE).refused


def test_of_two_homes_in_one_block_the_lower_keys_stays():
    tokens = Tokens(LAYOUT, [token(4, 5, B, 3)])
    assert keeps(tokens, A, 4, 4)
    assert keeps(tokens, C, 4, 9)
    assert keeps(tokens, B, 4, None)
    assert keeps(tokens, C, 5, 5)
    assert not keeps(tokens, C, 4, 4)
