"""Carries out the requests that change a lab while it runs, one after the other."""

from collections.abc import Sequence

from weft.lab import changes
from weft.lab.inside.changes import scaling, stopping
from weft.lab.inside.cluster import World
from weft.lab.inside.daemons import Note
from weft.lab.inside.requests import account, ping
from weft.lab.links import STORE, Conditions
from weft.lab.report import LabReport, LinksReport, TurnReport
from weft.model.errors import ConfigError, Problem


async def carry_out(world: World, wanted: changes.Request, note: Note) -> LinksReport | TurnReport | LabReport:
    """Change a lab, and say how it is then. Raises `ConfigError`, `Unavailable` or `OSError`."""
    async with world.one_change:
        match wanted:
            case changes.SetLinks(nodes, change):
                known = [world.node(name).spec.name for name in nodes]
                return await _set(world, world.switch.now.changed(known or world.nodes, change), nodes)
            case changes.Partition(source, target, one_way):
                _check_places(world, [source, target])
                wanted_now = world.switch.now.partitioned(source, target, one_way=one_way)
                return await _set(world, wanted_now)
            case changes.Heal(places):
                _check_places(world, places)
                return await _set(world, world.switch.now.healed(places))
            case changes.Turn():
                return await stopping.turn(world, wanted)
            case changes.Scale(nodes, pods):
                await scaling.scale(world, nodes, pods, note)
                await ping.introduce(world)
                return await account.report(world)
            case changes.Configure(network, where):
                await world.configure(network, where)
                return await account.report(world)


async def _set(world: World, wanted: Conditions, nodes: Sequence[str] = ()) -> LinksReport:
    """Set conditions, and report those of some nodes, or of all."""
    await world.switch.set(wanted, world.lab.nodes)
    shown = nodes or list(world.nodes)
    cuts = [cut for cut in wanted.in_order() if not nodes or {cut.source, cut.target} & set(nodes)]
    return LinksReport(links={name: wanted.link(name) for name in shown}, cuts=cuts)


def _check_places(world: World, places: Sequence[str]) -> None:
    for name in places:
        if name != STORE:
            world.node(name)
    if len(set(places)) < len(places):
        raise ConfigError(Problem(code="LAB-001", where=places[0], seen="twice the same", expected="two places"))
