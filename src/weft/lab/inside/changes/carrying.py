"""Carries out the requests that change a lab while it runs, one after the other.

Each is in the lab's history, before what it does to nodes is in theirs.
"""

from collections.abc import Sequence

from weft.lab import changes
from weft.lab.inside.changes import scaling, stopping
from weft.lab.inside.cluster import World
from weft.lab.inside.daemons import Note
from weft.lab.inside.requests import account, ping
from weft.lab.links import STORE, Conditions, group, words
from weft.lab.report import LabReport, LinksReport, Nothing, TurnReport
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Kind
from weft.model.text import counted

Answer = LinksReport | TurnReport | LabReport | Nothing


async def carry_out(world: World, request: changes.Request, note: Note) -> Answer:
    """Change a lab, and say how it is then. Raises `ConfigError`, `Unavailable` or `OSError`."""
    async with world.one_change:
        match request:
            case changes.SetLinks() | changes.Partition() | changes.Heal():
                return await _join(world, request)
            case changes.Turn():
                return await stopping.turn(world, request)
            case changes.Scale(nodes, pods):
                was = counted(len(world.nodes), "node")
                await scaling.scale(world, nodes, pods, note)
                world.history.note("resized", "itself", was=was, now=counted(nodes, "node"))
                await ping.introduce(world)
                return await account.report(world)
            case changes.Configure(network, where):
                await world.configure(network, where)
                world.history.note("configured", "the network", now=f"back end {world.backend}")
                return await account.report(world)
            case changes.Broke(node, fault, mend, failed):
                kind: Kind = "mended" if mend else "broke"
                failure = f"it failed: {failed}" if failed else ""
                world.history.note(kind, f"{world.node(node).spec.name} {fault}", words=failure)
                return Nothing()


async def _join(world: World, request: changes.SetLinks | changes.Partition | changes.Heal) -> LinksReport:
    """Change how nodes are joined."""
    match request:
        case changes.SetLinks(nodes, change):
            meant = [name for word in nodes for name in group(word, list(world.nodes))]
            wanted = world.switch.now.changed(meant or world.nodes, change)
            _note_links(world, meant or list(world.nodes), wanted)
            return await _set(world, wanted, meant)
        case changes.Partition(source, target, one_way):
            ones, others = _two_groups(world, source, target)
            world.history.note("cut", _between(ones, others, "→" if one_way else "↔"))
            return await _set(world, world.switch.now.partitioned(ones, others, one_way=one_way))
        case changes.Heal(places):
            between = _two_groups(world, *places) if places else (list(world.nodes), [*world.nodes, STORE])
            world.history.note("healed", _between(*between, "↔") if places else "all cuts")
            return await _set(world, world.switch.now.healed(*between))


async def _set(world: World, wanted: Conditions, nodes: Sequence[str] = ()) -> LinksReport:
    """Set conditions, and report those of some nodes, or of all."""
    await world.switch.set(wanted, world.lab.nodes)
    shown = nodes or list(world.nodes)
    cuts = [cut for cut in wanted.in_order() if not nodes or {cut.source, cut.target} & set(nodes)]
    return LinksReport(links={name: wanted.link(name) for name in shown}, cuts=cuts)


def _note_links(world: World, names: Sequence[str], wanted: Conditions) -> None:
    def note(name: str) -> None:
        was, now = (words(each.link(name)) or "as new" for each in (world.switch.now, wanted))
        world.history.note("shaped", f"{name} link", was=was, now=now)

    world.history.note_some("shaped", names, note)


def _between(ones: Sequence[str], others: Sequence[str], arrow: str) -> str:
    return f"{','.join(ones)} {arrow} {','.join(others)}"


def _two_groups(world: World, source: str, target: str) -> tuple[list[str], list[str]]:
    """Return the places that two words mean. `ConfigError` if one place is in both."""
    known = [*world.nodes, STORE]
    ones, others = group(source, known), group(target, known)
    if both := [name for name in ones if name in others]:
        raise ConfigError(Problem(code="LAB-001", where=both[0], seen="on both sides", expected="one side of the cut"))
    return ones, others
