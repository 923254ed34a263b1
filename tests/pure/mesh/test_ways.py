"""Ways between the peers of a mesh: each peer finds its own, and all of them agree."""

import random
from collections.abc import Container, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.mesh.ways import Pairs, Way, ways
from weft.model.mesh.records import Member, short

KEYS = [random.Random(number).randbytes(32) for number in range(12)]
Apart = set[tuple[int, int]]  # who says of whom that it cannot reach it


def member(key: bytes, cannot: Iterable[bytes], *, relays: bool = True) -> Member:
    return Member(key=key, run=1, version=1, name="a", cannot=tuple(sorted(map(short, cannot))), relays=relays)


def known(count: int, apart: Apart, ends: Container[int] = ()) -> Pairs:
    """`ends` do not relay."""
    pairs = Pairs()
    for number, key in enumerate(KEYS[:count]):
        cannot = [KEYS[other] for one, other in apart if one == number and other < count]
        pairs.put(member(key, cannot, relays=number not in ends))
    return pairs


def found(me: bytes, pairs: Pairs) -> dict[bytes, Way | None]:
    return {key: way for some in ways(me, pairs) for key, way in some.items()}


def all_ways(pairs: Pairs) -> dict[bytes, dict[bytes, Way | None]]:
    return {key: found(key, pairs) for key in pairs.shorts}


def partial(seed: int, count: int) -> Apart:
    chance = random.Random(seed)
    share = chance.choice((0.1, 0.5, 0.8, 0.95))
    return {(a, b) for a in range(count) for b in range(count) if a != b and chance.random() < share}


def connected(pairs: Pairs) -> dict[bytes, set[bytes]]:
    """For each peer all that are connected with it, itself included, by walking usable pairs."""
    groups = {}
    for key in pairs.shorts:
        seen, todo = {key}, [key]
        while todo:
            here = todo.pop()
            new = pairs.shorts.keys() - pairs.apart(here) - seen
            seen |= new
            todo += new - pairs.ends
        groups[key] = seen
    return groups


def assert_agree(pairs: Pairs) -> None:
    """Checker C5: no loop, the way back is the way there, and who is connected reaches each other."""
    every = all_ways(pairs)
    together = connected(pairs)
    for me, mine in every.items():
        assert mine.keys() == pairs.shorts.keys() - {me}
        for key, way in mine.items():
            assert (way is not None) == (key in together[me])
            if way is None:
                continue
            assert way[-1] == key
            assert len({me, *way}) == len(way) + 1
            assert pairs.ends.isdisjoint(way[:-1])
            assert every[key][me] == (*reversed(way[:-1]), me)
            if len(way) > 1:  # the relay sends it on as we think
                assert every[way[0]][key] == way[1:]


def test_peers_that_reach_each_other_need_no_relay():
    assert all(way == (key,) for mine in all_ways(known(5, set())).values() for key, way in mine.items())


def test_one_word_of_two_is_enough_to_go_over_a_relay():
    every = all_ways(known(3, {(0, 1)}))
    assert every[KEYS[0]][KEYS[1]] == (KEYS[2], KEYS[1])
    assert every[KEYS[1]][KEYS[0]] == (KEYS[2], KEYS[0])


def test_nothing_leads_to_a_peer_that_none_can_reach():
    every = all_ways(known(3, {(2, 0), (2, 1)}))
    assert every[KEYS[0]][KEYS[2]] is None
    assert every[KEYS[2]] == {KEYS[0]: None, KEYS[1]: None}


def test_a_line_is_walked_from_end_to_end():
    line = {(a, b) for a in range(6) for b in range(6) if abs(a - b) > 1}
    assert all_ways(known(6, line))[KEYS[0]][KEYS[5]] == tuple(KEYS[1:6])


@pytest.mark.parametrize("seed", range(20))
def test_s16_all_peers_of_a_partial_mesh_agree_also_after_changes(seed: int):
    count = 4 + seed % 9
    apart = partial(seed, count)
    chance = random.Random(seed + 1000)
    ends = {number for number in range(count) if chance.random() < 0.2}
    pairs = known(count, apart, ends)
    assert_agree(pairs)
    for _ in range(10):
        one, other = chance.sample(range(count), 2)
        apart ^= {(one, other)}
        cannot = [KEYS[b] for a, b in apart if a == one]
        assert pairs.put(member(KEYS[one], cannot, relays=one not in ends))
        assert_agree(pairs)
    gone = chance.randrange(count)
    assert pairs.remove(KEYS[gone])
    assert_agree(pairs)


def test_s16_ways_by_hops_without_the_hash_are_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("weft.mesh.ways._hash", lambda _one, _other: 0)
    meshes = [known(4 + seed % 9, partial(seed, 4 + seed % 9)) for seed in range(20)]
    with pytest.raises(AssertionError):
        list(map(assert_agree, meshes))


def test_ways_are_spread_over_relays():
    """Ten relays between forty peers that do not meet: none of them is on more than a quarter of the ways."""
    keys = [random.Random(100 + number).randbytes(32) for number in range(50)]
    pairs, far = Pairs(), keys[:40]
    for key in keys:
        pairs.put(member(key, set(far) - {key} if key in far else ()))
    used = [way[0] for me in far for way in found(me, pairs).values() if way is not None and len(way) > 1]
    assert len(used) == 40 * 39
    assert max(map(used.count, keys[40:])) < len(used) / 4
    assert min(map(used.count, keys[40:])) > 0


def test_who_does_not_relay_is_at_ends_only_and_may_relay_later():
    pairs = known(4, {(0, 1)}, {2})
    assert found(KEYS[0], pairs)[KEYS[1]] == (KEYS[3], KEYS[1])
    assert found(KEYS[0], pairs)[KEYS[2]] == (KEYS[2],)
    assert pairs.put(member(KEYS[3], [], relays=False))
    assert found(KEYS[0], pairs)[KEYS[1]] is None
    assert pairs.put(member(KEYS[2], []))
    assert not pairs.put(member(KEYS[2], []))
    assert found(KEYS[0], pairs)[KEYS[1]] == (KEYS[2], KEYS[1])


def test_a_record_that_says_the_same_changes_no_pair():
    pairs = known(2, {(0, 1)})
    assert not pairs.put(member(KEYS[0], [KEYS[1]]))
    assert pairs.put(member(KEYS[0], []))


def test_who_is_not_there_cannot_be_removed():
    assert not known(2, set()).remove(KEYS[5])


def test_a_peer_that_has_the_short_of_another_is_named_with_it_and_never_by_itself():
    """Two keys that begin alike: who cannot reach one of them goes over a relay to both."""
    twin = KEYS[1][:4] + KEYS[2][4:]
    pairs = known(3, {(0, 1)})
    assert pairs.put(member(twin, [KEYS[1]]))
    every = all_ways(pairs)
    assert every[KEYS[0]][KEYS[1]] == (KEYS[2], KEYS[1])
    assert every[KEYS[0]][twin] == (KEYS[2], twin)
    assert every[twin][KEYS[2]] == (KEYS[2],)
    assert pairs.remove(twin)
    assert pairs.apart(KEYS[0]) == {KEYS[1]}


@given(st.lists(st.tuples(st.integers(0, 7), st.sets(st.integers(0, 7)) | st.none()), max_size=30))
def test_what_is_kept_up_is_what_would_be_made_anew(changes: list[tuple[int, set[int] | None]]):
    pairs, records = Pairs(), dict[bytes, Member]()
    for number, cannot in changes:
        if cannot is None:
            assert pairs.remove(KEYS[number]) == (records.pop(KEYS[number], None) is not None)
        else:
            records[KEYS[number]] = member(KEYS[number], [KEYS[each] for each in cannot if each != number])
            pairs.put(records[KEYS[number]])
    fresh = Pairs()
    for each in records.values():
        fresh.put(each)
    assert all_ways(pairs) == all_ways(fresh)
    assert vars(pairs) == vars(fresh)  # nothing of who has gone is kept
