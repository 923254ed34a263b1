"""Asks the daemons of nodes about themselves, at their control sockets."""

import asyncio
import errno
import socket
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Final, TypeVar

import msgspec

from weft.kernel import daemons
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.report import FLANNELD, News, serves
from weft.model.node.history import EventsSince
from weft.model.node.nodestate import HealthState, NodeState
from weft.model.text import one_line
from weft.model.value import Value

_SECONDS: Final = 2.0  # for an answer
_LOOK_AGAIN: Final = 0.02  # seconds
_LOOKS: Final = 200
_LONGEST_NAME: Final = 15  # of a process (proc(5), comm)
_CHUNK: Final = 1 << 16  # bytes

T = TypeVar("T")


class Health(Value):
    """How a node's daemon is, as in `NodeReport.daemon`; `problems` say why."""

    state: str
    problems: tuple[str, ...] = ()


async def health(inside: Inside, room: Room, program: str, seconds: float = _SECONDS) -> Health:
    """Wait so many seconds for an answer. `program` is what may serve the node in weftd's place, or empty."""
    said = await _ask(inside, room, daemons.ASK_HEALTH, HealthState, seconds)
    if said is not None:
        problems = tuple(one_line(f"{name}: {problem}") for name, problem in said.troubles.items())
        return Health(state="ready" if said.ready else "not ready", problems=problems)
    names = {FLANNELD, PurePath(program).name[:_LONGEST_NAME]}
    return Health(state=FLANNELD if await inside.run(room, partial(_is_served_by, names)) else "silent")


async def ready(inside: Inside, room: Room, program: str) -> None:
    """Wait some seconds until the daemon serves its node; `ps` shows what it says instead."""
    for _ in range(_LOOKS):
        if serves((await health(inside, room, program)).state):
            return
        await asyncio.sleep(_LOOK_AGAIN)


async def state(inside: Inside, room: Room) -> NodeState | None:
    """None without a daemon, with several, or without an answer in time."""
    return await _ask(inside, room, daemons.ASK_STATE, NodeState)


async def news(inside: Inside, room: Room, after: int) -> News | None:
    """What happened after that event, and what is wrong; None as above."""
    told = await _ask(inside, room, daemons.ask_events(after), EventsSince)
    wrong = await _ask(inside, room, daemons.ASK_HEALTH, HealthState)
    return None if told is None or wrong is None else News(told=told, health=wrong)


async def runs(inside: Inside, room: Room) -> bool:
    return bool(await inside.run(room, daemons.living))


async def _ask(inside: Inside, room: Room, question: bytes, kind: type[T], seconds: float = _SECONDS) -> T | None:
    asking, names = await inside.run(room, lambda: (socket.socket(socket.AF_UNIX), daemons.living()))
    with asking:
        if len(names) != 1:
            return None
        asking.setblocking(False)  # noqa: FBT003 - that is how socket has it
        try:
            async with asyncio.timeout(seconds):
                return msgspec.json.decode(await _answer(asking, daemons.address(names[0]), question), type=kind)
        except (OSError, TimeoutError, msgspec.MsgspecError):
            return None


def _is_served_by(names: Collection[str]) -> bool:
    """Whether a program of such a name is in this node, and no daemon of weft's."""
    if not daemons.living():
        for name in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):  # it has ended
                if name.read_text().rstrip("\n") in names:
                    return True
    return False


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
