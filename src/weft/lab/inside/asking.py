"""Asks a node's daemon about itself, at its control socket."""

import asyncio
import errno
import socket
from typing import Final, TypeVar

import msgspec

from weft.kernel import daemons
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.report import News
from weft.model.node.history import EventsSince
from weft.model.node.nodestate import HealthState, NodeState

_PATIENCE: Final = 2.0  # seconds
_CHUNK: Final = 1 << 16  # bytes

T = TypeVar("T")


async def state(inside: Inside, room: Room) -> NodeState | None:
    """Ask the daemon of a node how it is; None if there is none, more than one, or no answer in time."""
    return await _ask(inside, room, daemons.ASK_STATE, NodeState)


async def news(inside: Inside, room: Room, after: int) -> News | None:
    """Ask the daemon of a node what happened after the event of that number, and what is wrong; None as above."""
    told = await _ask(inside, room, daemons.ask_events(after), EventsSince)
    health = await _ask(inside, room, daemons.ASK_HEALTH, HealthState)
    return None if told is None or health is None else News(told=told, health=health)


async def runs(inside: Inside, room: Room) -> bool:
    """Tell whether a daemon of weft's is in a node."""
    return bool(await inside.run(room, daemons.living))


async def _ask(inside: Inside, room: Room, question: bytes, kind: type[T]) -> T | None:
    asking, names = await inside.run(room, lambda: (socket.socket(socket.AF_UNIX), daemons.living()))
    with asking:
        if len(names) != 1:
            return None
        asking.setblocking(False)  # noqa: FBT003 - that is how socket has it
        try:
            async with asyncio.timeout(_PATIENCE):
                return msgspec.json.decode(await _answer(asking, daemons.address(names[0]), question), type=kind)
        except (OSError, TimeoutError, msgspec.MsgspecError):
            return None


async def _answer(asking: socket.socket, address: str, question: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(asking, address)
    await loop.sock_sendall(asking, question)
    said = bytearray()
    while more := await loop.sock_recv(asking, _CHUNK):
        said += more
        if len(said) > daemons.MOST:
            raise OSError(errno.EMSGSIZE, "it says too much")
    return bytes(said)
