"""Partitions, kills, lost and old disks, copies, clocks: rows S6, S7, S8, S11 and S15 of the specification."""

import pytest

from tests.support.mesh.checks import Broken, Checks
from tests.support.mesh.nodes import Node, Weather
from tests.support.mesh.world import World
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Ack, Grant, Note, Routed
from weft.model.mesh.records import Layout

NAMES = "abcdefghij"


def mesh(seed: str, count: int, blocks: int = 64, **more: float) -> World:
    """All of them have a block, and know of each other."""
    world = World(seed, Weather(**more), check=Checks())
    world.add("a")
    world.run(0.1)
    world.create("a", Layout(net_conf="{}", blocks=blocks, first=2))
    world.run(0.1)
    for name in NAMES[1:count]:
        world.add(name, ["a"])
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    return world


def up(world: World) -> list[Node]:
    return [node for node in world.nodes.values() if node.up]


def everybody_has_a_block(world: World) -> bool:
    return all(node.own is not None and node.own.usable for node in up(world))


def agree(world: World) -> bool:
    return len({node.core.digest for node in up(world)}) == 1


def codes(node: Node) -> list[str]:
    return [say.problem.code for say in node.said if say.problem]


@pytest.mark.long
@pytest.mark.parametrize("count", [3, 5, 10])
@pytest.mark.parametrize("seed", range(1))
def test_s6_partitions_until_no_side_has_blocks_left(count, seed):
    world = mesh(f"S6 {count} {seed}", count, blocks=24)
    for _ in range(12):
        some = [node.name for node in world.nodes.values() if world.chance.random() < 0.5]
        world.part(some, [name for name in world.nodes if name not in some])
        if len(world.nodes) < 20:
            known = world.chance.choice(list(world.nodes))
            name = f"n{len(world.nodes)}"
            side = some if known in some else [one for one in world.nodes if one not in some]
            world.add(name, [known])
            world.part([name], [one for one in world.nodes if one not in side and one != name])
        world.run(5 + 25 * world.chance.random())
        world.heal()
    assert world.run(10, until=lambda: agree(world))
    without = [node for node in up(world) if node.own.home is None]
    assert all("LEASE-003" in str(node.own.waits) for node in without)


def test_s6_a_side_with_two_owners_gives_and_a_lone_owner_takes_nobody_in():
    world = mesh("S6 sides", 3)
    world.part("ab", "c")
    world.run(20)
    world.add("d", ["b"])
    world.add("e", ["c"])
    world.part("abd", "ce")
    assert world.run(30, until=lambda: bool(world.nodes["d"].own and world.nodes["d"].own.usable))
    world.run(60)
    assert world.nodes["e"].own.home is None
    assert "LEASE-003" in str(world.nodes["e"].own.waits)
    world.heal()
    assert world.run(30, until=lambda: agree(world) and everybody_has_a_block(world))


KILLS = {
    "giver, its grant not on disk": ("a", do.Keep, Grant),
    "giver, its grant on disk": ("a", do.Send, Grant),
    "taker, before it has the grant on disk": ("c", do.Keep, None),
    "taker, before it asks for a witness": ("c", do.Send, Note),
    "witness, before its answer": ("b", do.Send, Ack),
}


@pytest.mark.parametrize("case", list(KILLS))
def test_s7_killed_in_the_middle_of_a_grant(case):
    name, kind, body = KILLS[case]
    world = mesh(f"S7 {case}", 2)
    world.add("c", ["a"])
    if name == "b":
        world.nodes["b"].core.asked(do.Connect(address="none"), world.now)
    died = []

    def kill(node: Node, effect: do.Effect) -> None:
        message = effect.message if isinstance(effect, do.Send) else None
        matches = kind is do.Keep or (isinstance(message, Routed) and isinstance(message.body, body))
        if node.name == name and not died and isinstance(effect, kind) and matches:
            died.append(effect)
            world.at(world.now, world.kill, name)

    world.before.append(kill)
    world.run(20, until=lambda: bool(died))
    assert died
    world.run(20)
    world.start(name)
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    owners = {token.owner for token in world.nodes["a"].core.tokens}
    assert owners == {node.key for node in up(world)}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_s8_killed_and_back_with_its_disk_without_one_or_with_an_old_one(seed):
    world = mesh(f"S8 {seed}", 5)
    checks = world.check
    for _ in range(10):
        name = world.chance.choice("abcde")
        node = world.nodes[name]
        world.kill_at[name] = world.chance.randrange(10)
        world.ask(name, do.Publish(attrs=world.chance.randbytes(4), endpoints=(node.address,)))
        world.run(15)
        world.kill(name)
        how = world.chance.choice(("same", "same", "none", "old"))
        if how == "none":
            world.forget(name)
        elif how == "old":
            node.disk = world.chance.choice(node.disks)
            checks.back(node)
        world.start(name, booted=True)
        world.run(20)
    assert world.run(60, until=lambda: agree(world))


def test_s8_a_peer_that_is_back_keeps_its_lease_until_it_says_another():
    """Its core runs before the daemon knows what the lease is to say."""
    world = mesh("S8 back", 3)
    told: list[do.Leases] = []
    world.watchers.append(lambda _, effect: isinstance(effect, do.Leases) and told.append(effect))
    back = world.nodes["b"]
    for seconds in (0.0, 30.0):
        world.kill("b")
        world.run(seconds)
        world.start("b", publish=False)
        world.run(30)
        assert not any(member.key == back.key for leases in told for member in leases.changed)
        world.ask("b", do.Publish(attrs=b'{"other": %d}' % seconds, endpoints=(back.address,)))
        assert world.run(30, until=lambda: agree(world))
        world.run(3)
        assert {leases.changed[0].attrs for leases in told if leases.changed[0].key == back.key} == {
            b'{"other": %d}' % seconds
        }
        assert not any(leases.gone for leases in told)
        told.clear()


def test_s8_an_old_disk_is_noticed():
    world = mesh("S8 noticed", 3)
    node = world.nodes["a"]
    world.kill("a")
    node.disk = next(disk for disk in node.disks if disk.home is not None)
    world.check.back(node)
    world.start("a")
    world.run(20)
    assert "MESH-004" in codes(node)
    assert agree(world)


def test_s15_clocks_that_are_days_apart_and_leap():
    world = World("S15", check=Checks())
    world.add("a", skew=86400.0)
    world.run(0.1)
    world.create("a", Layout(net_conf="{}", blocks=64, first=2))
    world.add("b", ["a"])
    world.add("c", ["a"], skew=7 * 86400.0)
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    world.run(10)
    links = {name: set(node.core.links) for name, node in world.nodes.items()}
    world.nodes["b"].skew = 43200.0
    world.run(60)
    assert {name: set(node.core.links) for name, node in world.nodes.items()} == links


def test_a_silent_peer_is_given_up_after_12_seconds_and_found_again():
    world = mesh("silence", 2)
    world.part("a", "b")
    world.run(11)
    assert world.nodes["a"].core.links
    world.run(3)
    assert not world.nodes["a"].core.links
    assert world.nodes["a"].own.usable
    world.heal()
    assert world.run(15, until=lambda: bool(world.nodes["a"].core.links))


def test_a_peer_whose_own_loop_is_late_judges_nobody():
    world = mesh("late", 2)
    node = world.nodes["a"]
    node.wakes += 30  # the loop sleeps, and reads nothing
    before = set(node.core.links)
    node.core.tick(world.now + 30)
    assert set(node.core.links) == before


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize("seed", range(2))
def test_s11_of_a_peer_and_the_copy_of_its_disk_one_joins_anew(count, seed):
    world = mesh(f"S11 {count} {seed}", count)
    node = world.nodes["b"]
    copy = world.add("copy", ["a", "c"], start=False)
    copy.key, copy.disk = node.key, node.disk
    world.check.copied(node.key)
    world.start("copy", booted=True)
    assert world.run(120, until=lambda: node.key != copy.key)
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    assert "MESH-004" in [*codes(node), *codes(copy)]
    homes = [one.own.home for one in world.nodes.values()]
    assert len(set(homes)) == count + 1


def copied(world: World, name: str, peers: str) -> Node:
    """Another machine with the disk of a node."""
    copy = world.add("copy", peers, start=False)
    copy.key, copy.disk = world.nodes[name].key, world.nodes[name].disk
    world.check.copied(copy.key)
    return copy


@pytest.mark.parametrize("peers", ["a", "ac"])
def test_s11_a_disk_on_another_machine_is_used_by_nobody_while_its_first_one_lives(peers):
    world = mesh(f"S11 moved {peers}", 3)
    node, copy = world.nodes["b"], copied(world, "b", peers)
    key, used = node.key, []
    world.watchers.append(
        lambda at, effect: isinstance(effect, do.Own) and at is copy and effect.usable and used.append(copy.key)
    )
    world.part("abc", ["copy"])
    world.start("copy", moved=True)
    world.run(60)
    assert not copy.own.usable, "nobody has said yet that the other one is gone"
    assert copy.own.waits.code == "MESH-004"
    world.heal()
    assert world.run(60, until=lambda: copy.key != key and everybody_has_a_block(world))
    assert node.key == key
    assert key not in used


def test_s11_a_disk_on_another_machine_is_used_when_no_peer_knows_of_its_first_one():
    world = mesh("S11 moved for good", 3)
    copy = copied(world, "b", "ac")
    world.kill("b")
    world.start("copy", moved=True)
    world.run(15)
    assert not copy.own.usable
    assert world.run(30, until=lambda: copy.own.usable)
    assert copy.key == world.nodes["b"].key
    assert copy.own.home == world.nodes["b"].disk.home


def test_s11_the_disk_of_the_only_node_is_used_on_another_machine():
    world = mesh("S11 moved alone", 1)
    copy = copied(world, "a", "")
    world.kill("a")
    world.start("copy", booted=True, moved=True)
    assert world.run(11, until=lambda: copy.own.usable)


def _all_are_killed_but_one_comes_late(late: bool) -> World:
    """Two are back before the third is: of its block they know by themselves. `late`: they remember too little."""
    world = mesh("S8 all", 2)
    a, b = world.nodes["a"], world.nodes["b"]
    world.add("c", ["a"])
    world.run(10, until=lambda: any(each.name == "c" for each in b.core.members.values()))
    before = {node.name: node.core.recalled for node in (a, b)}
    assert world.run(10, until=lambda: all(len(node.leases) == 2 for node in (a, b)))
    for name in "abc":
        world.kill(name)
    for node in (a, b):
        node.late = (
            before[node.name] if late else do.Recalled(ring=node.disk.ring.id, members=tuple(node.leases.values()))
        )
        node.served = dict(node.leases)
    for name in "ab":
        world.start(name)
    assert world.run(20, until=lambda: agree(world) and all(node.core.agreed for node in (a, b)))
    return world


def test_s8_whom_two_have_served_is_served_when_all_are_killed_and_the_two_are_back():
    world = _all_are_killed_but_one_comes_late(late=False)
    assert all(len(world.nodes[name].leases) == 2 for name in "ab")


def test_s8_it_is_seen_when_leases_are_told_before_the_disk_knows_of_them():
    with pytest.raises(Broken, match=r"C7: . has served c"):
        _all_are_killed_but_one_comes_late(late=True)
