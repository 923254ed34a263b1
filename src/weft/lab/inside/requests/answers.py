"""What a lab that is up answers to a request, but for one that runs a command.

Each change is in the lab's history, before what it does to nodes is in theirs.
"""

import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from weft.diag.check import trying
from weft.diag.sight.onlinks import hanging
from weft.diag.trace import sending
from weft.diag.trace.following import SHOWN
from weft.diag.trace.probes import patterns
from weft.kernel import packetsocket
from weft.kernel.netfilter import nftrace
from weft.lab import protocol
from weft.lab.inside.changes import scaling, stopping
from weft.lab.inside.cluster import World
from weft.lab.inside.daemons import Note
from weft.lab.inside.requests import account, ping
from weft.lab.inside.requests.connection import Connection
from weft.lab.links import STORE, Conditions, group, words
from weft.lab.manifests import name_of
from weft.lab.report import LabReport, LinksReport, Nothing, TurnReport
from weft.lab.system import SO_TIMESTAMPNS
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.node.history import Kind
from weft.model.text import counted, one_of
from weft.model.value import Value

T = TypeVar("T")

_BUFFER: Final = 8 << 20  # bytes; a burst must not be lost before it is read
Answer = LinksReport | TurnReport | LabReport | Nothing


async def _counters(world: World, where: str) -> dict[str, int]:
    with sending.counters_there() as read:
        return await world.inside.run(world.room(where), read)


# What is answered by a report alone, or by nothing, and how.
_REPORTS: Final[dict[type[Value], Callable[[World, Any], Coroutine[Any, Any, object]]]] = {
    protocol.Ps: lambda world, _: account.report(world),
    protocol.States: lambda world, _: account.states(world),
    protocol.AskNews: lambda world, asked: account.news(world, asked.after),
    protocol.Interfaces: lambda world, asked: account.interfaces(world, asked.where),
    protocol.Traffic: lambda world, _: account.traffic(world),
    protocol.Describe: lambda world, _: account.description(world),
    protocol.Run: lambda world, asked: world.run_pod(asked.pod),
    protocol.Remove: lambda world, asked: world.remove_pod(asked.pod),
    protocol.Expose: lambda world, asked: world.expose(asked.service),
    protocol.Unexpose: lambda world, asked: world.unexpose(asked.service),
    protocol.AwaitPolicies: lambda world, asked: _await_policies(world, asked.forms),
    protocol.Denied: lambda world, _: account.denied(world),
    protocol.Send: lambda world, asked: world.inside.run(
        world.room(asked.probe.source), partial(sending.send, asked.probe)
    ),
    protocol.Counters: lambda world, asked: _counters(world, asked.where),
    protocol.OnLinks: lambda world, asked: world.inside.run(world.room(asked.where), hanging),
    protocol.Tell: lambda world, asked: world.inside.run(world.room(asked.where), partial(sending.told, asked.ruling)),
}


async def answer(world: World, connection: Connection, request: protocol.Request) -> None:
    """Raises what the client gets: `WeftError`, `OSError`."""
    if (report := _REPORTS.get(type(request))) is not None:
        said = await report(world, request)
        await connection.done(Nothing() if said is None else said)
        return
    match request:
        case protocol.Ping(source, target, count):
            await connection.answer_while_wanted(ping.between(world, source, target, count=count))
        case protocol.PingAll():
            await connection.answer_while_wanted(ping.everything(world))
        case protocol.Try(trials):

            async def visit(place: str, work: Callable[[], T]) -> T:
                return await world.inside.run(world.room(place), work)

            async with connection.telling() as note:
                await connection.answer_while_wanted(trying.everything(visit, trials, note))
        case protocol.Capture(where, link, longest):
            with await world.inside.run(world.room(where), partial(_listen, where, link, longest)) as packets:
                await connection.done(Nothing(), descriptors=[packets.fileno()])
        case protocol.Filtered(where, probe):
            listen = partial(nftrace.listen, patterns(probe.kind, probe.numbers))
            with await world.inside.run(world.room(where), listen) as steps:
                await connection.done(Nothing(), descriptors=[steps.fileno()])
        case protocol.Open(where, path):
            await _open(world, connection, where, path)
        case protocol.Names(start):
            chosen = list(world.nodes.values())[start : start + protocol.MOST_DESCRIPTORS]
            await connection.done([node.spec.name for node in chosen], descriptors=[node.room.net for node in chosen])


async def _open(world: World, connection: Connection, where: str, path: str) -> None:
    opening = partial(os.open, path, os.O_PATH | os.O_CLOEXEC)
    try:
        opened = await world.inside.run(world.place(where).room, opening)
    except FileNotFoundError:
        await connection.done(Nothing())
        return
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        seen = error.strerror if isinstance(error, OSError) else None
        raise ConfigError(Problem("LAB-002", f"{where}:{path!r}", seen or str(error), expected="a path")) from None
    try:
        await connection.done(Nothing(), descriptors=[opened])
    finally:
        os.close(opened)


def _listen(where: str, link: str, longest: int) -> socket.socket:
    """On one link of this namespace, or with "" on all."""
    links = [name for _, name in socket.if_nameindex()]
    if link and link not in links:
        raise ConfigError(Problem("LAB-002", where, f"no link {link!r}", expected=one_of(links, link)))
    sock = packetsocket.listen(link, room=_BUFFER, longest=longest, shown=SHOWN)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


async def carry_out(world: World, request: protocol.Changing, note: Note) -> Answer:
    async with world.one_change:
        match request:
            case protocol.SetLinks() | protocol.Partition() | protocol.Heal():
                return await _join(world, request)
            case protocol.Turn():
                return await stopping.turn(world, request)
            case protocol.Scale(nodes, pods):
                was = counted(len(world.nodes), "node")
                await scaling.scale(world, nodes, pods, note)
                world.history.note("resized", "itself", was=was, now=counted(nodes, "node"))
                await ping.introduce(world)
                return await account.report(world)
            case protocol.Configure(network, where):
                await world.configure(network, where)
                world.history.note("configured", "the network", now=f"back end {world.backend}")
                return await account.report(world)
            case protocol.SetPolicies():
                await _set_policies(world, request)
                return await account.report(world)
            case protocol.Broke(node, fault, mend, failed):
                kind: Kind = "mended" if mend else "broke"
                failure = f"it failed: {failed}" if failed else ""
                world.history.note(kind, f"{world.node(node).spec.name} {fault}", words=failure)
                return Nothing()


async def _set_policies(world: World, wanted: protocol.SetPolicies) -> None:
    """`ConfigError` changes nothing; `Unavailable` names nodes where it is not in effect in time."""
    if world.pods.policies is None:
        seen = "nodes of this lab enforce no policies"
        hint = "Start one with 'weft lab up --policy FILE', or with 'policies: []' in its file."
        raise ConfigError(Problem("LAB-001", world.lab.name, seen, hint=hint))
    there = world.pods.policies.objects
    if unknown := [name for name in wanted.delete if name not in there]:
        seen, expected = "there is none of this name", one_of(there, unknown[0]) if there else ""
        raise ConfigError(Problem("LAB-002", unknown[0], seen, expected=expected))
    for name in wanted.delete:
        del there[name]
        world.history.note("configured", name, now="deleted")
    for each in wanted.put:
        there[name_of(each)] = each
        world.history.note("configured", name_of(each), now="applied")
    _refuse_late(world, await world.pods.police())


async def _await_policies(world: World, forms: Mapping[str, str]) -> None:
    from weft.lab.inside.policies import settled_in_api

    _refuse_late(world, await settled_in_api(world.nodes.values(), world.inside, forms))


def _refuse_late(world: World, nodes: Sequence[str]) -> None:
    if nodes:
        hint = f"'weft lab status{world.lab.option}' says why."
        seen = f"the policies are not in effect on {', '.join(nodes)} yet"
        raise Unavailable(Problem("POL-003", world.lab.name, seen, hint=hint))


async def _join(world: World, request: protocol.SetLinks | protocol.Partition | protocol.Heal) -> LinksReport:
    match request:
        case protocol.SetLinks(nodes, change):
            meant = [name for word in nodes for name in group(word, list(world.nodes))]
            wanted = world.switch.now.changed(meant or world.nodes, change)
            _note_links(world, meant or list(world.nodes), wanted)
            return await _set(world, wanted, meant)
        case protocol.Partition(source, target, one_way):
            ones, others = _two_groups(world, source, target)
            world.history.note("cut", _between(ones, others, "→" if one_way else "↔"))
            return await _set(world, world.switch.now.partitioned(ones, others, one_way=one_way))
        case protocol.Heal(places):
            between = _two_groups(world, *places) if places else (list(world.nodes), [*world.nodes, STORE])
            world.history.note("healed", _between(*between, "↔") if places else "all cuts")
            return await _set(world, world.switch.now.healed(*between))


async def _set(world: World, wanted: Conditions, nodes: Sequence[str] = ()) -> LinksReport:
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
    """`ConfigError` if one place is in both groups."""
    known = [*world.nodes, STORE]
    ones, others = group(source, known), group(target, known)
    if both := [name for name in ones if name in others]:
        raise ConfigError(Problem("LAB-001", both[0], "on both sides", expected="one side of the cut"))
    return ones, others
