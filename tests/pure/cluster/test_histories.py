"""Whether etcd had at a revision what a watch knows of it: two histories part, and are told apart."""

import random
from collections.abc import Mapping

from tests.support.store import value
from weft.cluster.etcd.values import Entry
from weft.cluster.etcd.watch import agree
from weft.wire.etcd import decode_lease

State = dict[str, Entry]


def changed(state: Mapping[str, Entry], revision: int, chance: random.Random) -> State:
    """After one put or deletion, which may be of a key outside."""
    name = f"10.3.{chance.randrange(9)}.0-24"
    after = {**state}
    match chance.randrange(4):
        case 0:
            after.pop(name, None)
        case 1:
            pass
        case _:
            created = after[name].lease.created if name in after else revision
            lease = decode_lease(name, value(f"1.1.1.{chance.randrange(1, 3)}").encode(), created)
            after[name] = Entry(lease, 7, revision)
    return after


def says(known: State, there: State, limit: int) -> bool:
    """What a directory makes of the newest keys and the number of all."""
    newest = sorted(there.values(), key=lambda entry: -entry.mod_revision)[:limit]
    since = min((entry.mod_revision for entry in newest), default=0)
    found = {entry.lease.id: entry for entry in newest}
    return len(there) == len(known) and agree(known, found, since=since)


def test_the_same_history_is_known_and_others_are_not():
    """But for two that differ in which old key they deleted, where not all keys are compared."""
    chance = random.Random(3)
    differ = 0
    for _ in range(5000):
        state, limit, length = State(), chance.choice((3, 100)), chance.randrange(1, 20)
        for revision in range(1, 1 + length):
            state = changed(state, revision, chance)
        known, there = state, state
        for revision in range(1 + length, 4 + length):  # no more changes than keys are compared
            known, there = changed(known, revision, chance), changed(there, revision, chance)
        put = any(entry.mod_revision > length for _, entry in known.items() ^ there.items())
        if known == there:
            assert says(known, there, limit)
        elif limit == 100 or put:
            differ += 1
            assert not says(known, there, limit), (known, there)
    assert differ > 1000
