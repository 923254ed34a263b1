"""Answers the commands of a lab, one connection each, until the lab ends."""

import asyncio
import errno
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from weft.beside.tasks import awaited, watched
from weft.lab import protocol
from weft.lab.inside.cluster import World
from weft.lab.inside.etcd import url
from weft.lab.inside.processes import Child, Stdio
from weft.lab.inside.requests import account, answers, ping
from weft.lab.inside.requests.answers import carry_out
from weft.lab.inside.requests.connection import Connection
from weft.lab.protocol import Failed
from weft.lab.report import Nothing
from weft.model.errors import CannotRun, ConfigError, Problem, Unavailable, WeftError
from weft.model.value import Value

_MISTAKE: Final = "a mistake in the lab itself: its log 'supervisor' shows it"
_SIGNALLED: Final = 128  # a shell's word for a command that a signal ended
_FIRST: Final = 10.0  # seconds for the first request: it comes at once or not at all
_GRACE: Final = 1.0  # seconds between asking a deserted command to end and ending it


class Server:
    """`ended` is set when the lab is to end."""

    def __init__(self, listener: socket.socket, *, logs: int) -> None:
        listener.settimeout(0)
        self.ended = asyncio.Event()
        self._listener = listener
        self._logs = logs
        self._world: World | None = None
        self._ready = False
        self._over = False

    async def serve(self) -> None:
        """Answer until `ended`; what is under way then is given up."""
        asyncio.get_running_loop().call_later(_FIRST, self._end_unasked)
        accepting = awaited(self._accept())
        ending = awaited(self.ended.wait())
        await asyncio.wait((accepting, ending), return_when=asyncio.FIRST_COMPLETED)
        accepting.cancel()
        ending.cancel()
        with suppress(asyncio.CancelledError):
            await accepting  # raises what no handler took, for the log

    def _end_unasked(self) -> None:
        """The command that started us was gone before it could ask for a lab."""
        if self._world is None:
            self.ended.set()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                sock, _ = await loop.sock_accept(self._listener)
                group.create_task(self._one(Connection(sock)))

    async def _one(self, connection: Connection) -> None:
        try:
            line = await connection.receive()
            if line is not None:
                await self._answer(connection, line)
        except ConnectionError:
            pass  # the client has gone
        except Exception:  # noqa: BLE001 - a mistake of ours in one command must not end the lab
            traceback.print_exc()
            with suppress(OSError):
                await connection.send(Failed.of(Unavailable(_problem(_MISTAKE))))
        finally:
            connection.close()
            if self._over:
                self.ended.set()

    async def _answer(self, connection: Connection, line: bytes) -> None:
        try:
            await self._do(connection, msgspec.json.decode(line, type=protocol.Request))
        except msgspec.MsgspecError as error:
            await connection.send(Failed.of(ConfigError(_problem(f"a request it does not understand: {error}"))))
        except WeftError as error:
            await connection.send(Failed.of(error))
        except OSError as error:
            # Something on this machine said no: a mount, a socket, a program. The lab itself goes on.
            await connection.send(Failed.of(Unavailable(_problem(str(error), code="HOST-002"))))
        except BaseExceptionGroup as group:
            await connection.send(Failed.of(_first(group)))

    async def _do(self, connection: Connection, request: protocol.Request) -> None:
        match request:
            case protocol.Up():
                await self._up(connection, request)
            case protocol.Down():
                self._over = True
                await connection.done(Nothing())
            case _ if self._world is None or not self._ready:
                raise Unavailable(_problem("it is still starting"))
            case _ if isinstance(request, protocol.Changing):
                async with connection.telling() as note:
                    await connection.done(await carry_out(self._world, request, note))
            case protocol.Exec():
                await connection.done(await self._exec(self._world, connection, request))
            case _:
                await answers.answer(self._world, connection, request)

    async def _up(self, connection: Connection, request: protocol.Up) -> None:
        """If that fails without `keep`, or the client has gone, the lab ends."""
        if self._world is not None:
            raise ConfigError(_problem("it is up already"))
        outside = [socket.socket(fileno=os.dup(fd)) for fd in connection.descriptors]
        world = self._world = World(request.lab, environ=request.environ, logs=self._logs, outside=outside)
        try:
            async with connection.telling() as note:
                self._ready = await connection.answer_while_wanted(_report_after(world, note))
        except (WeftError, OSError, BaseExceptionGroup):
            self._ready = request.keep
            raise
        finally:
            self._over = not self._ready

    async def _exec(self, world: World, connection: Connection, request: protocol.Exec) -> int:
        streams = connection.descriptors
        if len(streams) != 3 or not request.command:
            raise ConfigError(_problem("a command without its three streams"))
        command = request.command
        if request.tty:
            # setsid gives the terminal to the command, which then has job control and gets its signals.
            command = ["setsid", "--ctty", "--", *command]
        place = world.place(request.where)
        try:
            child = await world.processes.children.start(
                place.room,
                command,
                environ=world.processes.environ | {"ETCDCTL_ENDPOINTS": url(world.lab.families)} | request.environ,
                stdio=Stdio(stdin=streams[0], stdout=streams[1], stderr=streams[2]),
                session=not request.tty,
                directory=request.directory,
            )
        except OSError as error:
            seen, where = error.strerror or str(error), f"{request.where}: {request.command[0]}"
            problem = Problem("HOST-002", where, seen, expected="a program to run")
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            raise CannotRun(problem, status=127 if missing else 126) from None  # POSIX, Shell Command Language 2.8.2
        listening = watched(_pass_signals(connection, child))
        try:
            status = await child.ended
        finally:
            listening.cancel()
        return status if status >= 0 else _SIGNALLED - status


async def _report_after(world: World, note: Callable[[str], None]) -> Value:
    await world.up(note)
    await ping.introduce(world)
    return await account.report(world)


async def _pass_signals(connection: Connection, child: Child) -> None:
    """End the command when the client goes."""
    while (line := await connection.receive()) is not None:
        with suppress(msgspec.MsgspecError, ProcessLookupError):
            child.signal(msgspec.json.decode(line, type=protocol.Signal).number)
    for number in (signal.SIGHUP, signal.SIGKILL):
        with suppress(ProcessLookupError):
            child.signal(number)
        await asyncio.sleep(_GRACE)


def _first(group: BaseExceptionGroup[BaseException]) -> WeftError:
    """The error of a task that is understood, if there is one."""
    for error in group.exceptions:
        if isinstance(error, WeftError):
            return error
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
    if all(isinstance(error, OSError) for error in group.exceptions):
        return Unavailable(_problem(str(group.exceptions[0]), code="HOST-002"))
    raise group


def _problem(seen: str, *, code: str = "LAB-002") -> Problem:
    return Problem(code, "the lab", seen)
