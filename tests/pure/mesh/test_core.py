"""One core, told by hand what peers say: what seldom happens, and what a hostile peer may say."""

from random import Random

import pytest

from tests.pure.mesh.test_links import HOME, ME, RING, closed, core, hello, key, sent
from weft.mesh.core import Core
from weft.mesh.links import Link, Links
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Ack, Grant, Note, Offer, Ping, Promise, Propose, Records, Routed, Seen, Want
from weft.model.mesh.records import (
    MAX_ATTRS,
    MAX_CANNOT,
    MAX_ENDPOINTS,
    MAX_LINKS,
    MAX_NAME,
    MAX_RECORD,
    ONE_PORT,
    VERSIONS,
    Member,
    Removal,
    Token,
    short,
)
from weft.model.value import replace
from weft.wire.mesh import decode, encode

GIVER = Token(start=2, stop=32, owner=key(1), version=1)
OTHER = Token(start=32, stop=60, owner=key(2), version=2)
GRANTED = Token(start=60, stop=64, owner=ME, version=2)


def made(kept: do.Kept) -> Core:
    made = Core(kept, do.Options(key=ME, run=9, name="me", booted=False), Random(1).random)
    made.start(100.0)
    return made


def tell(one: Core, link: int, now: float, *members: Member, tokens: tuple[Token, ...] = ()) -> list[do.Effect]:
    return one.received(link, Records(members=members, tokens=tokens), now)


def member(number: int, **more: object) -> Member:
    return Member(key=key(number), run=1, version=1, name=f"n{number}", settled=True, links=(short(ME),), **more)


def questions(effects: list[do.Effect], body: type) -> list[Routed]:
    return [one for one in sent(effects, Routed) if isinstance(one.body, body) and not one.answer]


def answers(effects: list[do.Effect]) -> list[object]:
    return [one.body for one in sent(effects, Routed) if one.answer]


def to_us(number: int, body: object, *, question: Routed | None = None, count: int = 1) -> Routed:
    at = question.number if question else count
    answer = question is not None
    return Routed(source=key(number), target=ME, ring=RING.id, number=at, answer=answer, hops=0, body=body)


def newcomer() -> tuple[Core, Routed]:
    """A core without a block, linked to two that have some, and what it asks one of them."""
    one = made(do.Kept(ring=RING))
    one.link_up(1, hello(1), 100.1, dialled=None)
    one.link_up(2, hello(2), 100.1, dialled=None)
    tell(one, 1, 100.2, member(1), member(2), tokens=(GIVER, OTHER))
    effects = [effect for second in range(101, 109) for effect in one.tick(float(second))]
    return one, questions(effects, Want)[-1]


def granted() -> tuple[Core, int, Routed]:
    """A core that has a grant without its witness yet: who is asked to be one, and by what."""
    one, want = newcomer()
    giver = 1 if want.target == key(1) else 2
    grant = Grant(giver=key(giver), taker=ME, home=60, tokens=(GRANTED,), ring=(GIVER, OTHER))
    effects = one.received(giver, to_us(giver, grant, question=want), 109.0)
    [note] = questions(effects, Note)
    return one, 3 - giver, note


def test_a_grant_is_used_when_its_witness_has_it():
    one, witness, note = granted()
    assert one.kept.home is None
    one.received(witness, to_us(witness, Ack(), question=note), 109.1)
    assert one.kept.home == 60


def test_a_grant_is_dropped_if_its_giver_is_named_before_the_witness_answers():
    one, witness, note = granted()
    promise = Promise(proposer=key(witness), number=1, names=(key(3 - witness),))
    one.received(witness, to_us(witness, Propose(promise=promise)), 109.1)
    one.received(witness, to_us(witness, Ack(), question=note), 109.2)
    assert one.kept.home is None
    assert one.kept.grant is None


def test_who_has_a_grant_without_a_witness_cannot_leave():
    one, _, _ = granted()
    with pytest.raises(ConfigError, match="just joining"):
        one.asked(do.Leave(), 109.1)


def test_who_has_no_block_takes_none_from_one_that_leaves():
    one, _ = newcomer()
    [answer] = answers(one.received(1, to_us(1, Grant(giver=key(1), taker=ME)), 110.0))
    assert answer.refused


def test_an_answer_of_another_kind_changes_nothing():
    one, want = newcomer()
    target = 1 if want.target == key(1) else 2
    before = one.kept
    one.received(target, to_us(target, Ack(), question=want), 110.0)
    assert one.kept == before


@pytest.mark.parametrize("bound", [False, True])
def test_what_one_that_leaves_gives_rests(bound):
    promise = Promise(proposer=key(9), number=1, names=(key(8),)) if bound else None
    held = (replace(OTHER, owner=key(1)), GRANTED)
    one = made(do.Kept(ring=RING, tokens=held, home=60, settled=True, promise=promise, number=1, resting=((30, 33),)))
    one.link_up(1, hello(1), 100.1, dialled=None)
    parts = tuple(Token(start=start, stop=start + 2, owner=ME, version=9) for start in (32, 40))
    one.received(1, to_us(1, Grant(giver=key(1), taker=ME, tokens=parts)), 100.2)
    assert one.kept.resting == ((30, 34), (40, 42))


def test_who_has_promised_a_removal_takes_nothing_from_one_that_leaves():
    held = (Token(start=2, stop=40, owner=key(2), version=1), Token(start=40, stop=64, owner=ME, version=2))
    promise = Promise(proposer=key(9), number=1, names=(key(2),))
    one = made(do.Kept(ring=RING, tokens=held, home=40, settled=True, promise=promise, number=1))
    one.link_up(1, hello(1), 100.1, dialled=None)
    [answer] = answers(one.received(1, to_us(1, Grant(giver=key(1), taker=ME)), 100.2))
    assert answer.refused


def leaver(**more: object) -> tuple[Core, Routed]:
    """One that leaves, linked to two that have blocks, and what it gives one of them."""
    held = (GIVER, OTHER, GRANTED)
    one = made(do.Kept(ring=RING, tokens=held, home=60, settled=True, **more))
    one.link_up(1, hello(1), 100.1, dialled=None)
    one.link_up(2, hello(2), 100.1, dialled=None)
    tell(one, 1, 100.2, replace(member(1), links=(short(ME),)), replace(member(2), links=(short(ME),)))
    [given] = questions(one.asked(do.Leave(), 101.0), Grant)
    return one, given


def of(routed: Routed) -> int:
    return 1 if routed.target == key(1) else 2


def until(one: Core, start: int, stop: int) -> list[do.Effect]:
    """What a core does while its neighbours answer."""
    effects = []
    for second in range(start, stop):
        effects += one.tick(float(second))
        for link in list(one.links):
            effects += one.received(link, Ping(number=1), float(second))
    return effects


def test_who_leaves_does_not_go_while_its_heir_refuses():
    one, given = leaver()
    again = given
    for second in range(102, 162, 10):
        one.received(of(again), to_us(of(again), Ack(refused="try later"), question=again), float(second))
        again = questions(until(one, second, second + 10), Grant)[-1]
    assert not list(one.removals)
    blocks = {token.owner for token in again.body.ring}
    assert given.target in blocks  # the next heir hears of what was given to the one before
    one.received(of(again), to_us(of(again), Ack(), question=again), 162.0)
    assert [removal.heir for removal in one.removals] == [again.target]


def test_who_leaves_gives_the_rest_to_another_when_its_heir_is_lost():
    one, given = leaver()
    one.link_down(of(given), 101.5)
    again = questions(until(one, 102, 112), Grant)[-1]
    assert again.target != given.target


def test_who_leaves_promises_removals_and_takes_nothing_from_others_that_leave():
    one, given = leaver()
    other = 3 - of(given)
    promise = Promise(proposer=key(other), number=1, names=(given.target,))
    [answer] = answers(one.received(other, to_us(other, Propose(promise=promise)), 101.1))
    assert not answer.refused
    [answer] = answers(one.received(other, to_us(other, Grant(giver=key(other), taker=ME), count=2), 101.2))
    assert answer.refused
    assert not answers(one.received(other, to_us(other, Want(home=True), count=3), 101.3))


def test_one_that_has_left_stays_so_after_a_restart():
    one = made(do.Kept(ring=RING, left=True, removals=(Removal(key=ME, heir=key(1), number=0),)))
    assert not sent(one.tick(101.0), Routed)
    with pytest.raises(ConfigError, match="leaving"):
        one.asked(do.Remove(keys=(key(1),)), 102.0)
    one.link_up(1, hello(1), 102.1, dialled=None)
    promise = Promise(proposer=key(1), number=1, names=(key(2),))
    assert not answers(one.received(1, to_us(1, Propose(promise=promise)), 102.2))


def test_messages_of_another_ring_our_own_and_those_of_too_many_hops_go_nowhere():
    one = core()
    one.link_up(1, hello(1), 100.1, dialled=None)
    one.link_up(2, hello(2), 100.1, dialled=None)

    def passed(**changes: object) -> bool:
        fields = {"source": key(1), "target": key(2), "ring": RING.id, "number": 1, "answer": False, "hops": 0}
        return bool(sent(one.received(1, Routed(**fields | changes, body=Want(home=True)), 100.2), Routed))

    assert passed()
    assert not passed(hops=7)
    assert not passed(ring=bytes([9]) * 16)
    assert not passed(source=ME)


def test_no_ring_is_made_beside_one_that_a_neighbour_has():
    one = made(do.Kept())
    one.link_up(1, hello(1, ring=bytes([7]) * 16), 100.1, dialled=None)
    with pytest.raises(ConfigError, match="is of ring 07070707") as refused:
        one.asked(do.Create(layout=RING.layout, ring=RING.id, secret=RING.secret), 100.2)
    assert "'weft mesh adopt 07070707'" in refused.value.problems[0].hint


def test_records_of_a_peer_without_a_ring_are_ignored():
    one = core()
    one.link_up(1, hello(1, ring=None), 100.1, dialled=None)
    one._state.links.get(1).ring = None  # our offer has not come
    tell(one, 1, 100.2, member(1))
    assert key(1) not in one.members


def test_links_of_other_rings_are_met_when_a_ring_is_adopted():
    one = made(do.Kept())
    one.link_up(1, hello(1, ring=bytes([7]) * 16), 100.1, dialled=None)
    one.link_up(2, hello(2, ring=None), 100.1, dialled=None)
    assert closed(one.received(2, Offer(ring=RING), 100.2)) == [1]


def test_a_link_is_closed_once():
    out: list[do.Effect] = []
    links = Links(ME, out)
    link = Link(number=1, hello=hello(1), dialled=None, since=0.0, heard=0.0, ring=None)
    links.up(link, 0.0)
    links.close(link, "once")
    links.close(link, "twice")
    assert closed(out) == [1]


def test_what_turns_up_of_a_removed_peer_is_its_heirs_to_claim():
    one = core()
    one.link_up(1, hello(1), 100.1, dialled=None)
    gone = Removal(key=key(2), heir=key(1), number=1)
    one.received(1, Records(removals=(gone,)), 100.2)
    tell(one, 1, 100.3, tokens=(Token(start=60, stop=64, owner=key(2), version=9),))
    assert ME not in {token.owner for token in one.tokens if token.start == 60}
    one.link_up(2, hello(2), 100.4, dialled=None)
    assert not sent(one.received(2, Records(removals=(gone,)), 100.5), Records)


def proposer() -> tuple[Core, list[Routed]]:
    """A core that removes 2 and 3, and asks 1."""
    one = core()
    one.link_up(1, hello(1), 100.1, dialled=None)
    tell(one, 1, 100.2, member(1), member(2), member(3))
    effects = one.asked(do.Remove(keys=(key(2), key(3)), force=True), 101.0)
    return one, questions(effects, Propose)


def test_a_peer_that_refuses_ends_a_removal():
    one, [asked] = proposer()
    effects = one.received(1, to_us(1, Ack(refused="I am here, and named"), question=asked), 101.1)
    assert any("does not agree" in effect.text for effect in effects if isinstance(effect, do.Say))
    assert one.kept.proposal is None
    assert not one.received(1, to_us(1, Ack(), question=asked), 101.2)


def test_a_removal_with_too_low_a_number_is_tried_again_at_once():
    one, [asked] = proposer()
    effects = one.received(1, to_us(1, Ack(refused="removal 7 was before", number=7), question=asked), 101.1)
    [again] = questions(effects, Propose)
    assert again.body.promise.number == 8


def test_a_removal_that_met_another_waits_until_that_is_over():
    one, [asked] = proposer()
    other = Promise(proposer=key(1), number=5, names=(key(2),))
    one.received(1, to_us(1, Ack(refused="another removal", holder=other, number=5), question=asked), 101.1)
    one.received(1, to_us(1, Propose(promise=Promise(proposer=key(1), number=6, names=(key(2),)))), 101.2)
    waits = [effect for second in range(102, 112) for effect in one.tick(float(second))]
    assert one.kept.promise is not None
    assert not questions(waits, Propose)
    one.received(1, Records(removals=(Removal(key=key(2), heir=key(1), number=6),)), 112.0)
    later = [effect for second in range(113, 126) for effect in one.tick(float(second))]
    assert {ask.body.promise.names for ask in questions(later, Propose)} == {(key(3),)}


def test_names_that_others_have_removed_meanwhile_are_left_out():
    one, _ = proposer()
    effects = one.received(1, Records(removals=(Removal(key=key(2), heir=key(1), number=6),)), 101.1)
    effects += one.tick(102.5) + one.tick(102.6)
    assert questions(effects, Propose)[-1].body.promise.names == (key(3),)


def test_when_all_names_are_gone_there_is_nothing_to_remove():
    one, _ = proposer()
    gone = tuple(Removal(key=key(number), heir=key(1), number=6) for number in (2, 3))
    one.received(1, Records(removals=gone), 101.1)
    one.tick(102.5)
    one.tick(102.6)
    assert one.kept.proposal is None


def test_what_a_promise_tells_of_removals_is_passed_on():
    one, [asked] = proposer()
    removal = Removal(key=key(4), heir=key(1), number=1)
    one.received(1, to_us(1, Ack(removals=(removal, removal)), question=asked), 101.1)
    assert removal in list(one.removals)


def test_a_grant_is_no_answer_to_a_proposal():
    one, [asked] = proposer()
    before = one.kept
    one.received(1, to_us(1, Grant(giver=key(1), taker=ME, home=60, tokens=(GRANTED,)), question=asked), 101.1)
    assert one.kept == before


def test_s11_of_two_that_both_have_links_the_higher_run_gives_way():
    one = core()
    one.link_up(1, hello(1), 100.1, dialled=None)
    for version in (5, 50, 500):
        copied = Member(key=ME, run=3, version=version, name="me")
        tell(one, 1, 100.0 + version / 1000, copied, member(1))
        one.tick(101.5 + version / 1000)
    away = Member(key=key(4), run=1, version=1, name="n4", links=(short(ME), short(key(1))))
    near = Member(key=key(1), run=1, version=2, name="n1", links=(short(ME), short(key(4))))
    tell(one, 1, 102.0, away, near)
    effects = []
    for second in range(103, 140):
        effects += one.received(1, Records(), float(second))
        effects += one.tick(float(second))
    assert [effect.why.code for effect in effects if isinstance(effect, do.Rekey)][:1] == ["MESH-004"]


@pytest.mark.parametrize("version", [VERSIONS // 2, VERSIONS - 1, VERSIONS, 2 * VERSIONS - 1])
def test_a_record_of_ours_that_nobody_can_have_written_stops_nothing(version):
    one = core()
    one.asked(do.Publish(attrs=b"{}", endpoints=()), 100.0)
    one.link_up(1, hello(1), 100.1, dialled=None)
    tell(one, 1, 100.2, Member(key=ME, run=1, version=version, name="me"))
    one.asked(do.Publish(attrs=b"{1}", endpoints=()), 101.0)
    one.tick(103.0)
    assert one.members[ME].attrs == b"{1}"
    assert one.members[ME].version < 1000
    tell(one, 1, 104.0, replace(member(1), version=VERSIONS))
    assert key(1) not in one.members


def test_a_witness_acknowledges_no_grant_that_its_promise_keeps_from_its_disk():
    held = (Token(start=2, stop=40, owner=key(2), version=1), Token(start=40, stop=64, owner=ME, version=2))
    promise = Promise(proposer=key(9), number=1, names=(key(2),))
    one = made(do.Kept(ring=RING, tokens=held, home=40, settled=True, promise=promise, number=1))
    one.link_up(1, hello(1), 100.1, dialled=None)
    tokens = (Token(start=10, stop=11, owner=key(1), version=3),)
    note = Note(grant=Grant(giver=key(3), taker=key(1), home=10, tokens=tokens))
    [answer] = answers(one.received(1, to_us(1, note), 100.2))
    assert answer.refused
    assert tokens[0] not in one.kept.tokens


def test_the_longest_record_of_ours_is_one_that_others_take():
    numbers = do.Options(key=ME, run=2 * VERSIONS - 1, name="n" * MAX_NAME, booted=False)
    kept = do.Kept(ring=RING, tokens=HOME, home=2, settled=True, version=VERSIONS // 4, over=1 << 40, done=1 << 40)
    one = Core(kept, numbers, Random(1).random)
    one.start(100.0)
    for number in range(MAX_LINKS):
        one.link_up(number, hello(number), 100.1, dialled=None)
    one._waying.cannot = tuple(range(MAX_CANNOT))
    endpoints = (f"[{'0:' * 26}0]:51820",) * MAX_ENDPOINTS
    one.asked(do.Publish(attrs=bytes(MAX_ATTRS), endpoints=endpoints, tunnels=endpoints), 101.0)
    one.tick(113.0)
    told = Records(members=(one.members[ME],))
    assert decode(encode(told)) == told
    assert len(encode(told)) > MAX_RECORD - 64
    one.asked(do.Publish(attrs=b"{}", endpoints=()), 114.0)
    assert len(one.members[ME].cannot) == MAX_CANNOT


def test_where_neighbours_see_our_wireguard_stands_in_our_record_and_they_hear_where_we_see_theirs():
    held = (replace(OTHER, owner=key(1)), GRANTED)
    one = made(do.Kept(ring=RING, tokens=held, home=60, settled=True))
    one.asked(do.Publish(attrs=b"{}", tunnels=("10.0.0.5:51820",)), 100.0)
    one.link_up(1, hello(1), 100.1, dialled=None)
    theirs = member(1, home=32, attrs=b"{}", tunnels=("10.0.0.1:51820",))
    tell(one, 1, 100.2, theirs)
    one.received(1, Seen(endpoint="192.0.2.9:4005"), 101.5)
    ours = one.members[ME]
    assert (ours.tunnels, ours.nat) == (("192.0.2.9:4005", "10.0.0.5:51820"), ONE_PORT)
    seen = do.TunnelSeen(key=key(1), endpoint="192.0.2.1:4001", handshake=1.0)
    effects = one.saw(do.Sights(tunnels=(seen,)), 102.0)
    assert sent(effects, Seen) == [Seen(endpoint="192.0.2.1:4001")]
    [hop] = [effect for effect in effects if isinstance(effect, do.Hop)]
    assert (hop.endpoint, hop.keepalive) == ("192.0.2.1:4001", True)


def test_who_says_that_it_has_no_wireguard_asks_nobody_by_it():
    held = (replace(OTHER, owner=key(1)), GRANTED)
    one = made(do.Kept(ring=RING, tokens=held, home=60, settled=True))
    one.asked(do.Publish(attrs=b"{}"), 100.0)
    one.link_up(1, hello(1), 100.1, dialled=None)
    tell(one, 1, 100.2, member(1, home=32, attrs=b"{}", tunnels=("10.0.0.1:51820",)))
    seen = do.TunnelSeen(key=key(1), endpoint="192.0.2.1:4001", handshake=1.0)  # of a device that is about to go
    one.saw(do.Sights(tunnels=(seen,)), 101.5)
    effects = [effect for second in range(102, 110) for effect in one.tick(float(second))]
    assert {effect.kind for effect in effects if isinstance(effect, do.Probe)} == {"vxlan"}


def test_a_core_begins_with_what_its_last_run_knew_but_not_of_another_ring_nor_of_what_its_disk_is_to_say():
    """A token that changes our own blocks, or those that a promise freezes, comes from others or not at all."""
    promise = Promise(proposer=key(2), number=1, names=(key(3),))
    held = (GIVER, OTHER, replace(GRANTED, stop=62), Token(start=62, stop=64, owner=key(3), version=1))
    kept = do.Kept(ring=RING, tokens=held, home=60, settled=True, promise=promise, number=1)
    newer = tuple(Token(start=start, stop=start + 1, owner=key(4), version=9) for start in (31, 61, 63))
    ours = Token(start=33, stop=34, owner=ME, version=9)
    recalled = do.Recalled(
        ring=RING.id, members=(member(4, home=31, attrs=b"{}"),), tokens=(newer[0], ours, *newer[1:])
    )
    options = do.Options(key=ME, run=9, name="me", booted=False)
    for ring, taken in ((RING.id, {newer[0]}), (b"another", set())):
        one = Core(kept, options, Random(1).random, replace(recalled, ring=ring))
        effects = one.start(100.0)
        assert {*newer, ours} & set(one.tokens) == taken
        leases = [lease.key for effect in effects if isinstance(effect, do.Leases) for lease in effect.changed]
        assert leases == [key(4)] * len(taken)
        assert one.leases.keys() == set(leases)
    without = Core(do.Kept(), options, Random(1).random, recalled)
    without.start(100.0)
    assert (without.members.keys(), list(without.tokens)) == ({key(4)}, [])
