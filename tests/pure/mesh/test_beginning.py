"""How a ring begins and grows: rows S1 to S4 of the specification."""

import pytest

from tests.support.mesh.checks import Checks
from tests.support.mesh.world import World
from weft.model.mesh.records import Layout

LAYOUT = Layout(net_conf="{}", blocks=64, first=2)
NAMES = "abcdefghij"


def everybody_has_a_block(world: World) -> bool:
    return all(node.own is not None and node.own.usable for node in world.nodes.values() if node.up)


def rings(world: World) -> set[bytes]:
    return {node.core.ring.id for node in world.nodes.values() if node.core and node.core.ring}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("seed", range(10))
def test_s1_one_ring_by_flag_in_whatever_order_nodes_start(count, seed):
    world = World(f"S1 {seed}", check=Checks())
    listed = [f"10.0.0.{at}:51820" for at in range(count)]
    for name in NAMES[:count]:
        world.add(name, [address for address in listed if count > 1], founding=LAYOUT, start=False)
    for name in world.chance.sample(NAMES[:count], count):
        world.at(world.now + 60 * world.chance.random(), world.start, name)
    world.run(60)
    assert world.run(120, until=lambda: everybody_has_a_block(world))
    assert len(rings(world)) == 1
