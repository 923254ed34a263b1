"""Links of one core: doubled, late, crowded, copied; and many peers at once: rows S11 and S13 of the specification."""

from random import Random

import pytest

from tests.pure.mesh.test_faults import mesh
from tests.support.mesh.checks import Checks
from tests.support.mesh.world import World
from weft.mesh.core import Core
from weft.mesh.flood import Flood, Names
from weft.mesh.known import Known
from weft.mesh.recent import Recent
from weft.mesh.ring import NOBODY
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.messages import (
    Buckets,
    Copied,
    Hello,
    Offer,
    Ping,
    Pong,
    Pull,
    Records,
    Redirect,
    Root,
    Routed,
    Versions,
    Want,
)
from weft.model.mesh.records import MAX_LINKS, Layout, Member, Removal, Ring, Token, short
from weft.model.value import replace

LAYOUT = Layout(net_conf="{}", blocks=64, first=2)
RING = Ring(id=bytes(16), layout=LAYOUT, secret=bytes(32))
ME = bytes([5]) * 32
HOME = (Token(start=2, stop=64, owner=ME, version=1),)


def key(number: int) -> bytes:
    return number.to_bytes(4, "big") * 8


HOMES = (Token(start=2, stop=60, owner=ME, version=1), Token(start=60, stop=64, owner=key(1), version=2))


def hello(number: int, *, run: int = 1, ring: bytes | None = RING.id) -> Hello:
    return Hello(key=key(number), run=run, name=f"n{number}", ring=ring)


def core(*, tokens: tuple[Token, ...] = HOME, **more: object) -> Core:
    made = Core(
        do.Kept(ring=RING, tokens=tokens, home=2, settled=True),
        do.Options(key=ME, run=9, name="me", booted=False, **more),
        Random(1).random,
    )
    made.start(100.0)
    return made


def closed(effects: list[do.Effect]) -> list[int]:
    return [effect.link for effect in effects if isinstance(effect, do.Close)]


def sent(effects: list[do.Effect], kind: type) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, do.Send) and isinstance(effect.message, kind)]


def test_the_link_that_the_lower_key_has_dialled_is_kept():
    lower, higher = 1, 0x7FFFFFFF
    made = core()
    made.link_up(1, hello(lower), 100.1, dialled=None)
    assert closed(made.link_up(2, hello(lower), 100.2, dialled="10.0.0.1:1")) == [2]
    made.link_up(3, hello(higher), 100.3, dialled=None)
    assert closed(made.link_up(4, hello(higher), 100.4, dialled="10.0.0.2:1")) == [3]
    assert set(made.links) == {1, 4}


def test_a_newer_link_of_the_same_dialler_replaces_the_older():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    assert closed(made.link_up(2, hello(1), 100.2, dialled=None)) == [1]
    assert made.link_down(1, 100.3) is not None
    assert set(made.links) == {2}


def test_s11_a_second_run_waits_until_the_old_link_has_not_answered():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    assert sent(made.link_up(2, hello(1, run=2), 100.2, dialled=None), Ping)
    made.received(2, Root(digest=7), 100.3)
    assert set(made.links) == {1}
    effects = made.tick(102.3)
    assert closed(effects) == [1]
    assert sent(effects, Buckets)  # the answer to what came meanwhile
    assert set(made.links) == {2}


def test_s11_a_copy_is_refused_while_the_peer_answers():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.link_up(2, hello(1, run=2), 100.2, dialled=None)
    made.received(1, Pong(number=100), 100.4)
    assert closed(made.tick(102.3)) == [2]
    assert set(made.links) == {1}


def test_s11_a_third_run_replaces_the_second_that_waits():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.link_up(2, hello(1, run=2), 100.2, dialled=None)
    assert closed(made.link_up(3, hello(1, run=3), 100.3, dialled=None)) == [2]
    made.link_down(1, 100.4)
    made.tick(102.4)
    assert set(made.links) == {3}


def test_a_link_that_waits_holds_few_messages():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.link_up(2, hello(1, run=2), 100.2, dialled=None)
    effects = [effect for _ in range(65) for effect in made.received(2, Ping(number=1), 100.3)]
    assert closed(effects) == [2]


def test_a_link_to_ourselves_is_closed():
    made = core()
    itself = Hello(key=ME, run=9, name="me", ring=RING.id)
    assert closed(made.link_up(1, itself, 100.1, dialled="10.0.0.5:51820")) == [1]
    assert made.received(1, Ping(number=1), 100.2) == []


def crowd(made: Core, count: int) -> None:
    for number in range(1, count + 1):
        made.link_up(number, hello(number), 100.0, dialled=None)


def known(number: int, *, links: tuple[int, ...]) -> Member:
    address = f"10.0.0.{number}:51820"
    return Member(key=key(number), run=1, version=1, name=f"n{number}", endpoints=(address,), links=links)


def test_a_peer_with_64_links_says_where_else_to_go_and_keeps_8_for_newcomers():
    made = core()
    crowd(made, MAX_LINKS - 8)
    told = Records(members=tuple(known(number, links=(1,)) for number in range(60, 70)))
    made.received(1, told, 100.1)
    effects = made.link_up(100, hello(60), 100.2, dialled=None)
    [redirect] = sent(effects, Redirect)
    assert len(redirect.addresses) == 4
    assert closed(effects) == [100]
    for number in range(101, 109):
        assert not closed(made.link_up(number, hello(number), 100.3, dialled=None))
    assert closed(made.link_up(110, hello(110), 100.4, dialled=None)) == [110]
    assert len(made.links) == MAX_LINKS


def test_a_redirected_peer_dials_what_it_was_told():
    made = core(peers=("10.0.0.1:51820",))
    made.link_up(1, hello(1), 100.1, dialled="10.0.0.1:51820")
    effects = made.received(1, Redirect(addresses=("10.0.0.7:51820",)), 100.2)
    assert do.Dial(address="10.0.0.7:51820") in effects


def test_an_address_is_dialled_until_it_is_forgotten():
    made = core()
    assert do.Dial(address="10.0.0.9:51820") in made.asked(do.Connect(address="10.0.0.9:51820"), 100.0)
    made.undialled("10.0.0.9:51820", 100.1)
    assert do.Dial(address="10.0.0.9:51820") in made.tick(102.0)
    made.undialled("10.0.0.9:51820", 102.1)
    made.asked(do.Forget(address="10.0.0.9:51820"), 102.2)
    later = [effect for second in range(103, 400) for effect in made.tick(float(second))]
    assert not any(isinstance(effect, do.Dial) for effect in later)
    made.asked(do.Connect(address="10.0.0.8:51820"), 400.0)
    with pytest.raises(ConfigError, match=r"not told to dial 10\.0\.0\.9:51820.*dials 10\.0\.0\.8:51820"):
        made.asked(do.Forget(address="10.0.0.9:51820"), 400.1)
    assert made.dialled == {"10.0.0.8:51820"}


def test_a_member_may_have_several_addresses_and_is_dialled_at_one_after_the_other():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    away = Member(key=key(2), run=1, version=1, name="n2", endpoints=("10.0.0.2:1", "10.0.0.2:2"))
    tried = set()
    made.received(1, Records(members=(away,)), 100.2)
    for second in range(101, 130):
        for effect in [*made.tick(float(second)), *made.received(1, Ping(number=second), float(second))]:
            if isinstance(effect, do.Dial):
                tried.add(effect.address)
                made.undialled(effect.address, second + 0.1)
    assert tried == set(away.endpoints)


def test_a_conflict_is_won_by_the_lower_key():
    made = core()
    rival = key(1)
    made.link_up(1, hello(1), 100.1, dialled=None)
    member = Member(key=rival, run=1, version=1, name="n1", home=2)
    effects = made.received(
        1, Records(members=(member,), tokens=(Token(start=2, stop=4, owner=rival, version=9),)), 100.2
    )
    effects += made.tick(101.0)
    said = [effect.problem.code for effect in effects if isinstance(effect, do.Say) and effect.problem]
    assert said == ["MESH-004", "MESH-009"]
    assert made.kept.home is None


def test_a_conflict_about_a_block_that_is_nobody_elses_home_is_won_by_who_lives_there():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.received(1, Records(tokens=(Token(start=2, stop=4, owner=key(1), version=9),)), 100.2)
    made.tick(101.0)
    assert made.kept.home == 2
    mine = next(token for token in made.tokens if token.owner == ME)
    assert (mine.start, mine.stop, mine.version) == (2, 3, 10)


def test_who_waits_for_another_ring_takes_no_other():
    made, other = core(), bytes([7]) * 16
    made.asked(do.Used(ever=True), 100.0)
    with pytest.raises(ConfigError, match="no neighbour is of that ring"):
        made.asked(do.Adopt(ring=other), 100.1)
    assert closed(made.link_up(1, hello(1, ring=other), 100.2, dialled=None)) == [1]
    made.asked(do.Adopt(ring=other), 100.3)
    assert made.ring == RING, "it is kept until the other one is there"
    assert closed(made.link_up(2, hello(1, ring=other), 101.0, dialled=None)) == [2]
    assert made.ring is None
    made.link_up(3, hello(2, ring=None), 101.2, dialled=None)
    assert closed(made.received(3, Offer(ring=RING), 101.3)) == [3]
    assert made.ring is None
    assert {stranger.ring for stranger in made.strangers(101.4)} == {other, RING.id}


def test_another_ring_that_does_not_come_back_is_neither_waited_for_nor_remembered_for_ever():
    made, other = core(), bytes([7]) * 16
    made.asked(do.Used(ever=True), 100.0)
    made.link_up(1, hello(1, ring=other), 100.2, dialled=None)
    made.asked(do.Adopt(ring=other), 100.3)
    assert [stranger.key for stranger in made.strangers(280.0)] == [key(1)]
    assert not made.strangers(280.3)
    made.link_up(2, hello(1, ring=other), 281.0, dialled=None)
    assert made.ring == RING
    with pytest.raises(ConfigError, match="this node is of ring"):
        made.asked(do.Adopt(ring=RING.id), 281.1)


def test_a_peer_that_was_of_another_ring_is_forgotten_when_its_record_comes_by_ours():
    made = core()
    made.asked(do.Used(ever=True), 100.0)
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.received(1, Records(members=(known(2, links=(1,)),)), 100.2)
    made.link_up(2, hello(2, ring=bytes([7]) * 16), 100.3, dialled=None)
    made.received(1, Records(members=(known(2, links=(1,)),)), 100.4)
    assert [stranger.key for stranger in made.strangers(101.0)] == [key(2)]
    made.received(1, Records(members=(replace(known(2, links=(1,)), run=2, version=2),)), 101.1)
    assert not made.strangers(101.2)


@pytest.mark.parametrize("used", [True, False])
def test_who_adopts_another_ring_keeps_its_own_until_somebody_of_that_one_answers(used):
    made = core(peers=("10.0.0.7:51820",))
    made.asked(do.Used(ever=used), 100.0)
    made.link_up(3, replace(hello(2, ring=bytes([7]) * 16), lone=True), 100.0, dialled=None)
    made.undialled("10.0.0.7:51820", 100.0)
    effects = made.asked(do.Adopt(ring=bytes([7]) * 16), 100.1)
    assert do.Dial(address="10.0.0.7:51820") in effects
    assert made.kept.home == 2
    made.link_up(1, hello(1, ring=bytes([8]) * 16), 100.2, dialled=None)
    assert made.kept.home == 2
    assert closed(made.link_up(2, hello(2, ring=bytes([7]) * 16), 100.3, dialled="10.0.0.7:51820")) == [2]
    assert made.ring is None
    assert made.kept.home is None


def test_an_offer_of_another_ring_is_as_meeting_it():
    made = core()
    made.asked(do.Used(ever=True), 100.0)
    made.link_up(1, hello(1), 100.1, dialled=None)
    other = Ring(id=bytes([7]) * 16, layout=LAYOUT, secret=bytes(32))
    assert closed(made.received(1, Offer(ring=other), 100.2)) == [1]


def test_whoever_has_been_removed_hears_of_it_and_nothing_else():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.received(1, Records(removals=(Removal(key=key(2), heir=ME, number=1),)), 100.2)
    effects = made.link_up(2, hello(2), 100.3, dialled=None)
    assert sent(effects, Records)
    assert not sent(made.received(2, Root(digest=0), 100.4), Buckets)
    assert 2 not in made.links
    assert 2 in closed([effect for second in range(101, 114) for effect in made.tick(float(second))])


def test_pull_and_versions_are_answered_with_what_there_is():
    known = Known(ME, RING)
    member = Member(key=key(1), run=1, version=3, name="n1")
    known.put(member)
    assert list(known.answer(Pull(members=(key(1), key(2))))) == [Records(members=(member,))]
    older = Versions(buckets=(0,), members=((key(1), 2), (key(2), 1)))
    whole = Records(whole=(0,))
    assert list(known.answer(older)) == [whole, Records(members=(member,)), Pull(members=(key(2),))]
    assert not list(known.answer(Versions(buckets=())))
    assert not known.put(member)


@pytest.mark.parametrize(
    "told",
    [Records(tokens=(HOMES[1],), whole=(0,)), Versions(buckets=(0,), tokens=(HOMES[1],)), Buckets(digests=())],
    ids=["records", "versions", "the same"],
)
def test_a_neighbour_with_blocks_that_has_told_all_is_enough_though_it_knows_less_or_more(told):
    made = core(tokens=HOMES)
    made.link_up(1, hello(1), 100.1, dialled=None)
    made.link_up(2, hello(2), 100.1, dialled=None)
    made.received(1, Buckets(digests=(1,) * 64), 100.2)
    made.received(1, Records(tokens=(HOMES[1],)), 100.2)
    assert not made.agreed
    made.received(2, told, 100.3)
    assert not made.agreed, "it has no blocks, and may have heard of nothing yet"
    made.received(1, told, 100.4)
    assert not made.agreed, "nobody has told what its owner has to say"
    owners = {token.owner for token in made.tokens} - {NOBODY, ME}
    made.received(2, Records(members=tuple(Member(key=one, run=1, version=1, name="n") for one in owners)), 100.5)
    assert made.agreed


@pytest.mark.long
def test_who_comes_back_knows_all_at_once_though_records_change_all_the_time():
    world = mesh("restless", 10)

    def restless(name: str) -> None:
        node = world.nodes[name]
        if node.up:
            world.ask(name, do.Publish(attrs=world.chance.randbytes(4), endpoints=(node.address,)))
        world.at(world.now + 0.02, restless, name)

    for name in "abcdefghi":
        restless(name)
    world.kill("j")
    world.run(20)
    world.start("j")
    assert world.run(2, until=lambda: world.nodes["j"].core.agreed)
    assert len({node.core.digest for node in world.nodes.values()}) > 1


def test_a_removed_peers_record_is_refused_and_a_later_removal_wins():
    known = Known(ME, RING)
    assert known.remove(Removal(key=key(1), heir=ME, number=1))
    assert not known.remove(Removal(key=key(1), heir=ME, number=1))
    assert known.remove(Removal(key=key(1), heir=ME, number=2))
    assert not known.put(Member(key=key(1), run=1, version=1, name="n1"))
    assert [one.number for one in known.removals] == [2]


def test_shorts_are_the_first_four_bytes():
    assert short(b"\x00\x00\x01\x02" + bytes(28)) == 258
    assert repr(RING) == f"Ring({'00' * 16}, 64 blocks)"


def test_leaving_is_refused_while_a_removal_is_under_way_or_the_block_is_new():
    world = mesh("refused leaving", 4)
    world.kill("d")
    world.run(15)
    world.part("ab", "c")
    world.ask("a", do.Remove(keys=(world.nodes["d"].key,)))
    world.run(5)
    with pytest.raises(ConfigError, match="removal is under way"):
        world.ask("b", do.Leave())


@pytest.mark.long
@pytest.mark.parametrize(
    "count, seconds",
    [(70, 2), pytest.param(300, 2, marks=pytest.mark.soak), pytest.param(1000, 5, marks=pytest.mark.soak)],
)
def test_s13_peers_that_all_start_within_10_seconds_know_each_other_at_once(count, seconds):
    """70 are more than a peer has links. So many seconds after the last start each has its block, too."""
    world = World("S13", check=Checks() if count < 100 else None)
    names = [f"n{at}" for at in range(count)]
    world.add("n0")
    world.run(0.1)
    world.create("n0", Layout(net_conf="{}", blocks=4096, first=32))
    for name in names[1:]:
        world.add(name, ["n0"], start=False)
        world.at(world.now + 10 * world.chance.random(), world.start, name)
    world.run(10)
    assert world.run(seconds, until=lambda: all(len(node.core.members) == count for node in world.nodes.values()))
    assert world.run(seconds, until=lambda: all(node.own and node.own.usable for node in world.nodes.values()))
    assert max(len(node.core.links) for node in world.nodes.values()) <= MAX_LINKS


def test_a_peer_cannot_make_us_remember_without_bound():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    came, told = made._state.routing._came, made._copies._told
    came._most = told._most = 10
    for number in range(20):
        name = key(1000 + number)
        question = Routed(source=name, target=name, ring=RING.id, number=1, answer=False, hops=0, body=Want(home=True))
        made.received(1, question, 100.2)
        made.received(1, Copied(run=number + 10), 100.2)
    assert len(came) == len(told) == 10


def test_who_says_where_else_to_go_is_left():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled="10.0.0.1:51820")
    assert closed(made.received(1, Redirect(addresses=("10.0.0.7:51820",)), 100.2)) == [1]
    assert not made.received(1, Redirect(addresses=("10.0.0.8:51820",)), 100.3)


def test_what_was_put_in_first_is_forgotten_first():
    recent = Recent[str, int](2)
    recent["a"] = 1
    recent["b"] = 2
    recent["a"] = 3
    assert recent.setdefault("c", 4) == 4
    assert dict(recent) == {"a": 3, "c": 4}


@pytest.mark.parametrize("links, gives_way", [((1,), True), ((1, 2), False)])
def test_s11_one_peer_of_several_cannot_have_us_join_anew(links, gives_way):
    made = core()
    for number in links:
        made.link_up(number, hello(number), 100.1, dialled=None)
    effects = [effect for _ in range(5) for effect in made.received(1, Copied(run=8), 100.3)]
    assert any(isinstance(effect, do.Rekey) for effect in effects) == gives_way
    made.link_up(3, hello(2), 100.3, dialled=None)
    effects = made.received(3, Copied(run=8), 100.4)
    made.link_up(4, hello(3), 100.5, dialled=None)
    made.received(4, Copied(run=8), 100.6)
    assert any(isinstance(effect, do.Rekey) for effect in effects)


def test_many_records_at_once_are_told_later_and_one_alone_at_once():
    flood = Flood(lambda: 0.0)
    flood.open(1)
    crowd = Names(members=dict.fromkeys(map(key, range(400))))
    waited = []
    for names, now in ((crowd, 100.0), (crowd, 100.1), (Names(tokens={1: None}), 102.0)):
        flood.tell(names, now)
        waited.append(round(flood.due - now, 3))
        assert flood.take()
    assert waited == [0.05, 0.2, 0.05]


def test_who_was_removed_so_long_ago_that_nobody_knows_gives_its_block_up():
    made = core()
    made.link_up(1, hello(1), 100.1, dialled=None)
    theirs = Token(start=2, stop=64, owner=key(1), version=5 << 32)
    effects = made.received(1, Records(tokens=(theirs,)), 100.2)
    assert not any(isinstance(effect, do.Rekey) for effect in effects), "the removal may come yet"
    effects = made.received(1, Records(whole=(0,)), 100.3)
    assert [effect.why.code for effect in effects if isinstance(effect, do.Rekey)] == ["MESH-005"]


def test_nobody_is_given_blocks_before_a_neighbour_has_told_whose_they_are():
    made = core(tokens=HOMES)
    made.link_up(1, hello(1), 100.1, dialled=None)
    want = Routed(source=key(1), target=ME, ring=RING.id, number=1, answer=False, hops=0, body=Want(home=True))
    assert not sent(made.received(1, want, 100.2), Routed)
    made.received(1, Records(whole=(0,)), 100.3)
    assert sent(made.received(1, want, 100.4), Routed)
