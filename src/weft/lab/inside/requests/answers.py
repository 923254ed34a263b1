"""What a lab that is up answers to a request, but to those that run a command or change how it is joined."""

import os
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Final, TypeVar

from weft.diag.check import trying
from weft.diag.trace import sending
from weft.kernel import packetsocket
from weft.lab import protocol, spec
from weft.lab.inside.cluster import World
from weft.lab.inside.requests import account, ping
from weft.lab.inside.requests.connection import Connection
from weft.lab.report import NamesReport, Nothing, OpenReport, SentReport
from weft.lab.stamps import SO_TIMESTAMPNS
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of
from weft.model.value import Value

T = TypeVar("T")

_BUFFER: Final = 8 << 20  # bytes; a burst must not be lost before it is read


async def answer(world: World, connection: Connection, request: protocol.Request) -> None:
    """Answer a request about a lab that is up. Raises what the client gets: `WeftError`, `OSError`."""
    match request:
        case (
            protocol.Ps()
            | protocol.States()
            | protocol.AskNews()
            | protocol.Interfaces()
            | protocol.Traffic()
            | protocol.Describe()
        ):
            await connection.done(await _seen(world, request))
        case protocol.Run() | protocol.Remove() | protocol.Expose() | protocol.Unexpose():
            await connection.done(await _changed(world, request))
        case protocol.Ping() | protocol.PingAll() | protocol.Try():
            await _probe(world, connection, request)
        case protocol.Probe():
            await connection.done(await _send(world, request))
        case protocol.Capture() | protocol.Open() | protocol.Names():
            await _hand_out(world, connection, request)


async def _seen(
    world: World,
    request: protocol.Ps
    | protocol.States
    | protocol.AskNews
    | protocol.Interfaces
    | protocol.Traffic
    | protocol.Describe,
) -> Value:
    """Return what is asked about a lab, which stays as it is."""
    match request:
        case protocol.Ps():
            return await account.report(world)
        case protocol.States():
            return await account.states(world)
        case protocol.AskNews(after):
            return await account.news(world, after)
        case protocol.Interfaces(where):
            return await account.interfaces(world, where)
        case protocol.Traffic():
            return await account.traffic(world)
        case protocol.Describe():
            return await account.description(world)


async def _changed(
    world: World, request: protocol.Run | protocol.Remove | protocol.Expose | protocol.Unexpose
) -> Value:
    """Change what there is in a lab; return what became of it."""
    match request:
        case protocol.Run(pod):
            if problems := spec.name_problem("a pod", "weft lab run", pod.name):
                raise ConfigError(*problems)
            return await world.run_pod(pod)
        case protocol.Remove(pod):
            await world.remove_pod(pod)
        case protocol.Expose(service):
            return await world.expose(service)
        case protocol.Unexpose(service):
            await world.unexpose(service)
    return Nothing()


async def _probe(
    world: World, connection: Connection, request: protocol.Ping | protocol.PingAll | protocol.Try
) -> None:
    """Send packets of our own, and answer with what came of them."""
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


async def _send(world: World, wanted: protocol.Probe) -> SentReport:
    """Send all of a trace's probes at once, from where they come. One that its kernel refuses is seen nowhere."""
    source, target = ip_address(wanted.address), ip_address(wanted.target)
    work = partial(
        sending.send,
        source,
        target,
        kind=wanted.kind,
        port=wanted.port,
        numbers=wanted.numbers,
        sizes=wanted.sizes,
    )
    sent = await world.inside.run(world.room(wanted.source), work)
    return SentReport(refusal=sent.refusal, mtu=sent.mtu)


async def _hand_out(
    world: World, connection: Connection, request: protocol.Capture | protocol.Open | protocol.Names
) -> None:
    """Answer with descriptors."""
    match request:
        case protocol.Capture(where, link):
            with await world.inside.run(world.room(where), partial(_listen, where, link)) as packets:
                await connection.done(Nothing(), descriptors=[packets.fileno()])
        case protocol.Open(where, path):
            await _open(world, connection, where, path)
        case protocol.Names(start):
            chosen = list(world.nodes.values())[start : start + protocol.MOST_DESCRIPTORS]
            names = NamesReport(nodes=[node.spec.name for node in chosen])
            await connection.done(names, descriptors=[node.room.net for node in chosen])


async def _open(world: World, connection: Connection, where: str, path: str) -> None:
    opening = partial(os.open, path, os.O_PATH | os.O_CLOEXEC)
    try:
        opened = await world.inside.run(world.place(where).room, opening)
    except FileNotFoundError:
        await connection.done(OpenReport(there=False))
        return
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        seen = error.strerror if isinstance(error, OSError) else None
        problem = Problem(code="LAB-002", where=f"{where}:{path!r}", seen=seen or str(error), expected="a path")
        raise ConfigError(problem) from None
    try:
        await connection.done(OpenReport(there=True), descriptors=[opened])
    finally:
        os.close(opened)


def _listen(where: str, link: str) -> socket.socket:
    """Open a packet socket on one link of this namespace, or with "" on all. The command that asked for it reads it."""
    links = [name for _, name in socket.if_nameindex()]
    if link and link not in links:
        seen, expected = f"no link {link!r}", one_of(links, link)
        raise ConfigError(Problem(code="LAB-002", where=where, seen=seen, expected=expected))
    sock = packetsocket.listen(link, room=_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock
