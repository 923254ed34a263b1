"""Asks the daemons of nodes about themselves: weftd at its control socket, others at the health port.

`process` leads the group of what the lab has started as the daemon; of several weftds in a node, that one is asked. It
is 0 where the daemon is a pod, or was started by hand.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from weft.kernel import daemons
from weft.kernel.unixsockets import peer_of
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.report import FLANNELD, News
from weft.model.node.history import EventsSince
from weft.model.node.nodestate import HealthState, NodeState, PoliciesTold
from weft.model.text import one_line
from weft.model.value import Value

HEALTH_PORT: Final = 8081
_SECONDS: Final = 2.0  # for an answer
_PROC: Final = Path("/proc")
_STILL: Final = "TtZX"  # states of a process that does nothing: stopped, traced, ended (proc_pid_stat(5))
_WRONG: Final = ("[-]", "[!]")  # before what is not as it should be, in weftd's answer

T = TypeVar("T")


class Health(Value):
    """How a node's daemon is, as in `NodeReport.daemon`; `problems` say why."""

    state: str
    problems: tuple[str, ...] = ()


async def health(inside: Inside, room: Room, process: int, seconds: float = _SECONDS) -> Health:
    """Wait so many seconds for an answer."""
    try:
        answer = await _ask(inside, room, process, daemons.ASK_HEALTH, seconds)
    except (OSError, TimeoutError):
        return Health(state="silent")
    if (said := _read(answer, HealthState)) is not None:
        problems = tuple(one_line(f"{name}: {problem}") for name, problem in said.troubles.items())
        return Health(state="ready" if said.ready else "not ready", problems=problems)
    asking = await inside.run(room, lambda: socket.socket(socket.AF_INET))
    if (found := await ask_http(asking, ("127.0.0.1", HEALTH_PORT), "/readyz?verbose", seconds)) is not None:
        problems = tuple(one_line(line[len(_WRONG[0]) :]) for line in found.lines if line.startswith(_WRONG))
        return Health(state="ready" if found.ready else "not ready", problems=problems)
    if answer:
        return Health(state="not understood")
    # Kubernetes' flanneld has no health port; what the lab starts has one.
    return Health(state=FLANNELD if not process and await inside.run(room, _is_flannels) else "silent")


async def state(inside: Inside, room: Room, process: int) -> NodeState | None:
    """None without a daemon, with several none of which is the lab's, or without an answer in time."""
    return await _told(inside, room, process, daemons.ASK_STATE, NodeState)


async def news(inside: Inside, room: Room, process: int, after: int) -> News | None:
    """What happened after that event, and what is wrong; None as above."""
    told = await _told(inside, room, process, daemons.ask_events(after), EventsSince)
    wrong = await _told(inside, room, process, daemons.ASK_HEALTH, HealthState)
    return None if told is None or wrong is None else News(told=told, health=wrong)


async def policies(inside: Inside, room: Room, process: int, names: Sequence[str]) -> PoliciesTold | None:
    """What it says of a few of them; None as above, and of one that enforces none."""
    return await _told(inside, room, process, daemons.ask_policies(names), PoliciesTold)


async def runs(inside: Inside, room: Room) -> bool:
    return bool(await inside.run(room, daemons.living))


async def _told(inside: Inside, room: Room, process: int, question: bytes, kind: type[T]) -> T | None:
    try:
        return _read(await _ask(inside, room, process, question, _SECONDS), kind)
    except (OSError, TimeoutError):
        return None


def _read(answer: bytes | None, kind: type[T]) -> T | None:
    """None without an answer, or of one that a daemon of another version may give."""
    try:
        return msgspec.json.decode(answer, type=kind) if answer else None
    except msgspec.MsgspecError:
        return None


async def _ask(inside: Inside, room: Room, process: int, question: bytes, seconds: float) -> bytes | None:
    """None where no weftd of this group is. `OSError` or `TimeoutError` if it does not answer."""
    with ExitStack() as opened:

        def open_all() -> list[tuple[str, socket.socket]]:
            return [(name, opened.enter_context(socket.socket(socket.AF_UNIX))) for name in daemons.living()]

        found = await inside.run(room, open_all)
        if not process and len(found) != 1:
            return None
        async with asyncio.timeout(seconds):
            for name, asking in found:
                asking.setblocking(False)  # noqa: FBT003 - that is how socket has it
                if await _leads_to(asking, daemons.address(name), process):
                    return await _answer(asking, question)
    return None


async def _leads_to(asking: socket.socket, address: str, process: int) -> bool:
    """Connect, and tell whether a process of this group listens."""
    with suppress(OSError):  # it has ended
        await asyncio.get_running_loop().sock_connect(asking, address)
        return not process or os.getpgid(peer_of(asking)[0]) == process
    return False


def _is_flannels() -> bool:
    if not daemons.living():
        for process in _PROC.glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                name, _, rest = (process / "stat").read_text(errors="replace").partition("(")[2].rpartition(") ")
                if name == FLANNELD and rest[0] not in _STILL:
                    return True
    return False


async def _answer(asking: socket.socket, question: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(asking, question)
    said = bytearray()
    while daemons.goes_on(said, await loop.sock_recv(asking, daemons.CHUNK)):
        pass
    return bytes(said)


_MOST: Final = 1 << 16  # bytes of an answer


class Answer(Value):
    """`ready` is the status 200; `lines` are the body's."""

    ready: bool
    lines: tuple[str, ...]


async def ask_http(asking: socket.socket, where: tuple[str, int], path: str, seconds: float) -> Answer | None:
    """Ask on a TCP socket, which is closed then. None without an answer in time."""
    loop = asyncio.get_running_loop()
    said = bytearray()
    with asking:
        asking.setblocking(False)  # noqa: FBT003 - that is how socket has it
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(asking, where)
                await loop.sock_sendall(asking, f"GET {path} HTTP/1.0\r\n\r\n".encode())
                while len(said) < _MOST and (more := await loop.sock_recv(asking, _MOST)):
                    said += more
        except (OSError, TimeoutError):
            return None
    head, _, body = bytes(said).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        return None
    return Answer(ready=words[1] == b"200", lines=tuple(body.decode(errors="replace").splitlines()))
