"""How a ring begins and grows: rows S1 to S4 and S14 of the specification."""

import pytest

from tests.support.mesh.checks import Checks
from tests.support.mesh.world import World
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.records import Layout

LAYOUT = Layout(net_conf="{}", blocks=64, first=2)
NAMES = "abcdefghij"


def everybody_has_a_block(world: World) -> bool:
    return all(node.own is not None and node.own.usable for node in world.nodes.values() if node.up)


def rings(world: World) -> set[bytes]:
    return {node.core.ring.id for node in world.nodes.values() if node.core and node.core.ring}


def by_flag(seed: str, count: int) -> World:
    world = World(seed, check=Checks())
    listed = [f"10.0.0.{at}:51820" for at in range(count)]
    for name in NAMES[:count]:
        world.add(name, [address for address in listed if count > 1], founding=LAYOUT, start=False)
    return world


def waits(world: World, name: str) -> str:
    own = world.nodes[name].own
    return str(own.waits) if own else ""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("seed", range(2))
def test_s1_one_ring_by_flag_in_whatever_order_nodes_start(count, seed):
    world = by_flag(f"S1 {seed}", count)
    for name in world.chance.sample(NAMES[:count], count):
        world.at(world.now + 60 * world.chance.random(), world.start, name)
    world.run(60)
    assert world.run(120, until=lambda: everybody_has_a_block(world))
    assert len(rings(world)) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
def test_s1_one_ring_by_command(count):
    world = World(f"S1 by command {count}", check=Checks())
    for name in NAMES[:count]:
        world.add(name, NAMES[0] if name != NAMES[0] else ())
        world.run(20 * world.chance.random())
    assert not rings(world)
    world.create(NAMES[count // 2], LAYOUT)
    assert world.run(30, until=lambda: everybody_has_a_block(world))
    assert len(rings(world)) == 1


@pytest.mark.parametrize("groups", [("ab", "cd"), ("a", "bcd"), ("d", "abc")])
def test_s2_nobody_creates_by_flag_while_a_listed_peer_is_away(groups):
    world = by_flag(f"S2 {groups}", 4)
    world.part(*groups)
    for name in "abcd":
        world.start(name)
    world.run(120)
    assert not rings(world)
    assert "MESH-001" in waits(world, groups[0][0])
    world.create(groups[1][0], LAYOUT)
    world.run(30)
    assert len(rings(world)) == 1
    world.heal()
    assert world.run(30, until=lambda: everybody_has_a_block(world))
    assert len(rings(world)) == 1


def test_s3_of_two_that_are_apart_nobody_creates():
    world = by_flag("S3", 2)
    world.part("a", "b")
    world.start("a")
    world.start("b")
    world.run(300)
    assert not rings(world)
    assert "10.0.0.1:51820" in waits(world, "a")
    world.heal()
    assert world.run(90, until=lambda: everybody_has_a_block(world))


def test_a_ring_is_created_once():
    world = by_flag("once", 2)
    world.start("a")
    world.run(1)
    world.create("a", LAYOUT)
    world.run(1)
    with pytest.raises(ConfigError, match="MESH-001"):
        world.create("a", LAYOUT)


def test_none_is_created_where_a_peer_has_one():
    world = World("where a peer has one", check=Checks())
    world.add("a")
    world.run(0.1)
    world.create("a", LAYOUT)
    world.run(1)
    world.add("b")
    world.weather.loss = 0.0
    world.ask("b", do.Connect(address=world.nodes["a"].address))
    world.run(until=lambda: bool(world.nodes["b"].core.links))
    with pytest.raises(ConfigError, match="MESH-001"):
        world.create("b", LAYOUT)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1))
def test_s4_a_growing_mesh_has_one_ring_though_the_known_peer_is_cut_off(seed):
    world = World(f"S4 {seed}", check=Checks())
    names = [f"n{at}" for at in range(50)]
    world.add("n0")
    world.run(0.1)
    world.create("n0", Layout(net_conf="{}", blocks=256, first=2))
    for at, name in enumerate(names[1:], 1):
        known = names[int(world.chance.random() * at)]
        cut = world.chance.random() < 0.3
        if cut:
            world.part([known], [one for one in (*names[:at], name) if one != known])
        world.add(name, [known])
        world.run(3 * world.chance.random())
        world.heal()
    assert world.run(60, until=lambda: everybody_has_a_block(world))
    assert len(rings(world)) == 1


def two_rings(seed: str, *, used: bool) -> World:
    """Six nodes, a to c and d to f with a ring each, that meet."""
    world = World(seed, check=Checks())
    for first, rest in (("a", "bc"), ("d", "ef")):
        world.add(first)
        world.run(0.1)
        world.create(first, LAYOUT)
        for name in rest if used else ():
            world.add(name, [first])
    world.run(30)
    for name in world.nodes:
        world.ask(name, do.Used(ever=used))
    world.run(1)
    world.ask("a", do.Connect(address=world.nodes["d"].address))
    return world


def test_s14_two_rings_stay_two_and_do_not_flap():
    world = two_rings("S14", used=True)
    before = rings(world)
    homes = {name: node.own.home for name, node in world.nodes.items()}
    sent = sum(node.sent for node in world.nodes.values())
    world.run(600)
    assert rings(world) == before
    assert len(before) == 2
    assert {name: node.own.home for name, node in world.nodes.items()} == homes
    said = [say for say in world.nodes["a"].said if say.problem and say.problem.code == "MESH-003"]
    assert 1 <= len(said) <= 3
    other = world.nodes["d"]
    assert said[0].problem.seen.startswith(f"d-{other.key[:4].hex()} is of ring {other.core.ring.id[:4].hex()}, ")
    assert f"'weft mesh adopt {other.core.ring.id[:4].hex()}'" in said[0].problem.hint
    assert (sum(node.sent for node in world.nodes.values()) - sent) / 600 / 6 < 3  # messages a node and second


def test_s14_an_empty_ring_of_one_gives_way():
    world = two_rings("S14 empty", used=False)
    assert world.run(30, until=lambda: len(rings(world)) == 1 and everybody_has_a_block(world))


def test_s14_adopting_the_other_ring():
    world = two_rings("S14 adopt", used=True)
    world.run(10)
    other = world.nodes["d"].core.ring.id
    for name in "abc":
        world.ask(name, do.Connect(address=world.nodes["d"].address))
    assert world.run(20, until=lambda: all(world.nodes[name].core.strangers(world.now) for name in "abc"))
    for name in "abc":
        world.ask(name, do.Adopt(ring=other))
    assert all(world.nodes[name].own.home for name in "abc"), "the old ring serves until the other is there"
    assert world.run(120, until=lambda: rings(world) == {other} and everybody_has_a_block(world))
    with pytest.raises(ConfigError, match="another ring"):
        world.ask("a", do.Adopt(ring=other))
