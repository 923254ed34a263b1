"""Removals: who is heir, who has to promise, what binds, and when it is over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.mesh.rules import removals_of
from weft.mesh.known import Known
from weft.mesh.removal import NUMBERS, Answer, Bound, Removals, ended, inherited, late, missing, propose
from weft.mesh.ring import Tokens
from weft.model.errors import ConfigError
from weft.model.mesh.messages import Promise
from weft.model.mesh.records import Layout, Removal, Ring, Token

LAYOUT = Layout(net_conf="{}", blocks=16, first=0)
A, B, C, X, Y = b"a", b"b", b"c", b"x", b"y"


def removal(key, heir, number=1):
    return Removal(key=key, heir=heir, number=number)


def promise(proposer, number, *names):
    return Promise(proposer=proposer, number=number, names=names)


def token(start, stop, owner, version):
    return Token(start=start, stop=stop, owner=owner, version=version)


removals = st.lists(
    st.builds(removal, st.sampled_from([A, B, C, X]), st.sampled_from([A, B, C, X]), st.integers(1, 3)).filter(
        lambda one: one.key != one.heir
    ),
    max_size=6,
)


@given(removals, removals)
def test_the_order_in_which_removals_are_heard_of_does_not_matter(one, two):
    known = removals_of([*one, *two])
    assert list(known) == list(removals_of([*two, *one]))
    assert all(known.merge(again) is None for again in known)


@given(removals)
def test_every_peer_has_one_heir_that_is_there(heard):
    known = removals_of(heard)
    for key in (A, B, C, X, Y):
        assert not known.is_removed(known.heir(key))
    assert not known.is_removed(Y)


def test_an_heir_of_an_heir_has_all():
    known = removals_of([removal(X, B), removal(B, A, 2)])
    assert known.heir(X) == A
    assert known.last_of(X) == removal(X, B)
    assert known.last_of(A) is None


def test_of_two_that_have_removed_each_other_the_later_heir_stays():
    assert removals_of([removal(A, B, 1), removal(B, A, 2)]).heir(B) == A
    assert removals_of([removal(A, B, 1), removal(B, A, 1)]).heir(B) == A
    assert removals_of([removal(A, B, 3), removal(B, A, 2), removal(X, A)]).heir(X) == B


def test_a_number_that_no_version_can_hold_is_ignored():
    assert Removals().merge(removal(X, A, NUMBERS)) is None


def test_the_later_removal_of_one_peer_counts_then_the_lower_heir():
    known = removals_of([removal(X, B, 1)])
    assert known.merge(removal(X, C, 1)) is None
    assert known.merge(removal(X, C, 2)) == removal(X, C, 2)
    assert known.merge(removal(X, A, 2)) == removal(X, A, 2)


def test_a_promise_is_given_again_and_to_nobody_else():
    first = promise(A, 3, X)
    bound = Bound(me=C, promise=first, number=3)
    assert bound.answer(first, Removals()) == Answer()
    assert bound.answer(promise(B, 4, X), Removals()).holder == first
    assert bound.answer(promise(A, 4, X), Removals()).holder == first
    assert bound.frozen == bound.named == {X}


def test_a_promise_to_a_peer_that_is_named_itself_is_void():
    bound = Bound(me=C, promise=promise(A, 3, X), number=3)
    assert bound.answer(promise(B, 4, A, X), Removals()) == Answer()


def test_a_proposer_promises_nobody_and_goes_on_hearing_all():
    own = promise(C, 3, X)
    bound = Bound(me=C, proposal=own, number=3)
    assert bound.answer(promise(B, 4, X), Removals()).holder == own
    assert not bound.frozen
    assert bound.named == {X}


@pytest.mark.parametrize(
    "asked",
    [promise(A, 2, C, X), promise(B, 2, X), promise(A, NUMBERS, X), promise(A, 1, X)],
    ids=["named", "removed", "no-number", "low"],
)
def test_what_is_never_promised(asked):
    answer = Bound(me=C, number=1).answer(asked, removals_of([removal(B, A)]))
    assert answer.refused
    assert answer.holder is None


def test_a_removal_ends_a_promise_when_all_its_names_are_removed():
    given = promise(A, 2, X, Y)
    known = removals_of([removal(X, A, 2)])
    assert not ended(given, known, over=2, done=2)
    known.merge(removal(Y, A, 1))
    assert not ended(given, known, over=2, done=2)
    known.merge(removal(Y, A, 2))
    assert ended(given, known, over=0, done=0)


def test_a_promise_ends_when_its_proposer_withdraws_or_is_removed():
    given = promise(A, 2, X)
    assert not ended(given, Removals(), over=1, done=0)
    assert ended(given, Removals(), over=2, done=0)
    assert ended(given, Removals(), over=3, done=1)
    assert ended(given, removals_of([removal(A, B)]), over=0, done=0)


def test_all_that_are_not_named_have_to_promise():
    known = {A, B, C, X, Y}
    assert missing(promise(A, 1, X), known, {B}, removals_of([removal(Y, A)])) == {C}


@pytest.mark.parametrize(
    "names, changed, seen",
    [
        ({b"?"}, {}, "no peer"),
        ({Y}, {}, "no peer"),
        ({A}, {}, "itself"),
        ({X}, {"settled": False}, "no block"),
        ({X}, {"bound": Bound(me=A, promise=promise(B, 1, X))}, "under way"),
        ({B, C, X}, {}, "1 of 4"),
    ],
)
def test_what_is_not_proposed(names, changed, seen):
    known, removals = {A, B, C, X, Y}, removals_of([removal(Y, B)])
    given = {"bound": Bound(me=A), "settled": True, **changed}
    bound, settled = given["bound"], given["settled"]
    with pytest.raises(ConfigError, match=seen) as refused:
        propose(bound, names, known, removals, settled=settled, force=False, name=bytes.hex)
    assert refused.value.problems[0].hint


def test_a_proposal_has_a_number_above_all():
    bound = Bound(me=A, number=7)
    asked = propose(bound, {X, C, B}, {A, B, C, X}, Removals(), settled=True, force=True, name=bytes.hex)
    assert asked == promise(A, 8, B, C, X)
    assert propose(bound, {C, X}, {A, B, C, X}, Removals(), settled=True, force=False, name=bytes.hex).names == (C, X)


def test_an_heir_claims_all_with_versions_that_the_removed_never_reach():
    tokens = Tokens(LAYOUT, [token(0, 4, X, 1), token(4, 6, X, 2), token(6, 8, A, 1), token(8, 9, Y, 9)])
    known = removals_of([removal(Y, X)])
    made = inherited(promise(A, 2, X), tokens, known)
    claims = (token(0, 6, A, 2 << 32), token(8, 9, A, 2 << 32))
    assert made == [Removal(key=X, heir=A, number=2, tokens=claims, age=1)]
    tokens.merge(made[0].tokens)
    written = (1 << 32) - 1
    assert not tokens.merge([token(0, 6, X, written), token(8, 9, X, written)]).new


def test_what_turns_up_later_is_the_heirs():
    tokens = Tokens(LAYOUT, [token(0, 4, X, 5 << 32), token(4, 5, Y, 1), token(5, 6, A, 1)])
    known = removals_of([removal(X, A, 2), removal(A, X, 1), removal(Y, B)])
    assert late(tokens, known, A) == [token(0, 4, A, (5 << 32) + 1)]
    assert late(tokens, known, B) == [token(4, 5, B, 1 << 32)]
    assert late(tokens, known, C) == []


def test_the_oldest_removals_are_forgotten_by_all_alike(monkeypatch):
    monkeypatch.setattr("weft.mesh.removal.MAX_REMOVALS", 3)
    made = [Removal(key=bytes([number]) * 32, heir=bytes(32), number=1, age=1 + number // 2) for number in range(8)]
    digests = set()
    for order in (made, made[::-1], made[3:] + made[:3]):
        known = Known(bytes(32), Ring(id=bytes(16), layout=Layout(net_conf="", blocks=8, first=0), secret=bytes(32)))
        for removal in (*order, *order):
            known.remove(removal)
        assert [removal.key[0] for removal in known.removals] == [5, 6, 7]
        assert known.removals.age == 5
        digests.add(known.digest.root)
    assert len(digests) == 1


def test_more_than_are_remembered_are_not_removed_at_once():
    names = [number.to_bytes(32, "big") for number in range(1, 1026)]
    bound = Bound(me=bytes(32))
    with pytest.raises(ConfigError, match="1025 peers are named; expected at most 1024"):
        propose(bound, names, {*names, bytes(32)}, Removals(), settled=True, force=True, name=lambda key: key.hex())
