"""Carries out the requests that change a lab while it runs, one after the other."""

from collections.abc import Sequence

from weft.lab import changes
from weft.lab.inside.changes import scaling, stopping
from weft.lab.inside.cluster import World
from weft.lab.inside.daemons import Note
from weft.lab.inside.requests import account, ping
from weft.lab.links import STORE, Conditions, group
from weft.lab.report import LabReport, LinksReport, TurnReport
from weft.model.errors import ConfigError, Problem


async def carry_out(world: World, wanted: changes.Request, note: Note) -> LinksReport | TurnReport | LabReport:
    """Change a lab, and say how it is then. Raises `ConfigError`, `Unavailable` or `OSError`."""
    async with world.one_change:
        match wanted:
            case changes.SetLinks(nodes, change):
                meant = [name for word in nodes for name in group(word, list(world.nodes))]
                return await _set(world, world.switch.now.changed(meant or world.nodes, change), meant)
            case changes.Partition(source, target, one_way):
                ones, others = _two_groups(world, source, target)
                return await _set(world, world.switch.now.partitioned(ones, others, one_way=one_way))
            case changes.Heal(places):
                between = _two_groups(world, *places) if places else (list(world.nodes), [*world.nodes, STORE])
                return await _set(world, world.switch.now.healed(*between))
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


def _two_groups(world: World, source: str, target: str) -> tuple[list[str], list[str]]:
    """Return the places that two words mean. `ConfigError` if one place is in both."""
    known = [*world.nodes, STORE]
    ones, others = group(source, known), group(target, known)
    if both := [name for name in ones if name in others]:
        raise ConfigError(Problem(code="LAB-001", where=both[0], seen="on both sides", expected="one side of the cut"))
    return ones, others
