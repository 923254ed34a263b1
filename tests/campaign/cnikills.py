"""Where CNI work can be killed: the real server, in the daemon and in a stand-in, with a trap around its hosts.

Product code knows nothing of this. As a program:

    python -m tests.campaign.cnikills daemon DIRECTORY             serves DIRECTORY/run/cni.sock until SIGTERM
    python -m tests.campaign.cnikills stand-in DIRECTORY SOCKET    serves as `python -m weft.cni SOCKET`

DIRECTORY/trap names a point and who dies there; it is sprung once, which DIRECTORY/sprung says. With a number of
seconds in DIRECTORY/sweep the daemon sweeps for leaks that often, else never. In DIRECTORY/begun the daemon notes which
requests it begins, before and after it has told their clients so (`Begun`).
"""

import asyncio
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft.cni.attachment import retire
from weft.cni.host.host import Container, Host, Request
from weft.cni.sdk.startup import CALLED
from weft.cni.serve import plugins, session
from weft.cni.serve.standin import stand_in
from weft.kernel.rtnetlink.addr import RTM_NEWADDR
from weft.kernel.rtnetlink.link import RTM_SETLINK
from weft.wire.cni import Ran

DAEMON, STAND_IN, CLIENT = "daemon", "stand-in", "client"
VICTIMS: Final = (DAEMON, STAND_IN, CLIENT)
# Notes about a request: its client is about to be told that it begins, has been told so by the daemon or by a stand-in,
# or once more by whomever.
BEGINS, BEGUN, ALONE, ANEW = "begins", "begun", "alone", "anew"
Arguments = tuple[Any, ...]


def _path(part: str) -> Callable[[Arguments], bool]:
    return lambda args: part in args[0]


def _with(kind: int) -> Callable[[Arguments], bool]:
    return lambda args: any(message.kind == kind for message in args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment just after the call `at` of a plugin's host; `half`: when only half of its messages are done.

    `fresh`: it comes only with a bridge that is not there yet. `late`: the answer may be there before.
    """

    command: str
    name: str
    at: str
    test: Callable[[Arguments], bool] = lambda _: True
    half: bool = False
    fresh: bool = False
    late: bool = False
    victims: tuple[str, ...] = VICTIMS

    def __str__(self) -> str:
        return f"{self.command}: {self.name}"


POINTS: Final = (
    Point(command="ADD", name="request read", at="request"),
    Point(command="ADD", name="holder written", at="state.replace", test=_path("/flannel/")),
    Point(command="ADD", name="delegate's configuration written", at="files.replace", test=_path("/flannel/")),
    Point(command="ADD", name="bridge made", at="rtnl.add_bridge", fresh=True),
    Point(command="ADD", name="veth made", at="container.rtnl.add_veth"),
    Point(command="ADD", name="record written", at="state.replace", test=_path("/attachments/")),
    Point(command="ADD", name="on the bridge", at="rtnl.batch", test=_with(RTM_SETLINK)),
    Point(command="ADD", name="reservation made", at="files.write_new"),
    Point(command="ADD", name="last reserved written", at="files.rewrite"),
    Point(command="ADD", name="address set", at="container.rtnl.batch", test=_with(RTM_NEWADDR), half=True),
    Point(command="ADD", name="routes set", at="container.rtnl.batch", test=_with(RTM_NEWADDR)),
    Point(command="ADD", name="bridge's address set", at="rtnl.batch", test=_with(RTM_NEWADDR), fresh=True),
    Point(command="ADD", name="result made", at="result made"),
    Point(command="ADD", name="result sent", at="result sent", late=True),
    Point(command="DEL", name="request read", at="request"),
    Point(command="DEL", name="host's end down", at="rtnl.set_link"),
    Point(command="DEL", name="link down", at="container.rtnl.batch", half=True),
    Point(command="DEL", name="link renamed", at="container.rtnl.batch"),
    Point(command="DEL", name="retired", at="retire"),
    Point(command="DEL", name="address freed", at="files.unlink", test=_path("/networks/")),
    Point(command="DEL", name="record removed", at="state.unlink", test=_path("/attachments/")),
    Point(command="DEL", name="delegate's configuration removed", at="files.unlink", test=_path("/flannel/")),
    Point(command="DEL", name="holder removed", at="state.unlink", test=_path("/flannel/")),
    Point(command="DEL", name="result made", at="result made"),
    Point(command="DEL", name="result sent", at="result sent", late=True),
    # Whoever called has its answer by then.
    Point(command="DEL", name="links about to go", at="links about to go", late=True, victims=(DAEMON, STAND_IN)),
)


class Trap:
    """The point that DIRECTORY/trap names, for the process that reads it and plays this `role`."""

    def __init__(self, directory: Path, role: str) -> None:
        self.role = role
        self._directory = directory
        self._client = threading.local()

    def set(self, point: Point, victim: str) -> None:
        """Called by the test, before the call that is to die."""
        (self._directory / "sprung").unlink(missing_ok=True)
        (self._directory / "trap").write_text(f"{victim}\n{point}")

    @property
    def sprung(self) -> bool:
        return (self._directory / "sprung").exists()

    def clear(self) -> None:
        """Take the trap away."""
        (self._directory / "trap").unlink(missing_ok=True)

    def of(self, command: str) -> Point | None:
        """Return the point at which this command is to die."""
        try:
            text = (self._directory / "trap").read_text()
        except FileNotFoundError:
            return None
        victim, name = text.splitlines()
        if victim not in (self.role, CLIENT):
            return None
        return next((point for point in POINTS if str(point) == name and point.command == command), None)

    def spring(self) -> None:
        """Kill whom the trap is for, now."""
        victim = (self._directory / "trap").read_text().splitlines()[0]
        (self._directory / "trap").rename(self._directory / "sprung")
        if victim != CLIENT:
            os.kill(os.getpid(), signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have read its answer and ended
            if self._client.fd is not None:
                signal.pidfd_send_signal(self._client.fd, signal.SIGKILL)

    def reached(self, command: str, at: str) -> None:
        """Spring if this place is the point."""
        point = self.of(command)
        if point is not None and point.at == at:
            self.spring()

    @contextmanager
    def serving(self, connection: socket.socket) -> Iterator[None]:
        """Remember who is served in this thread. A descriptor, because the number may be another's by then."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self._client.fd = None
        with suppress(ProcessLookupError):  # it has gone already
            self._client.fd = os.pidfd_open(struct.unpack("3i", credentials)[0])
        try:
            yield
        finally:
            if self._client.fd is not None:
                os.close(self._client.fd)


class Watched:
    """An object of a host, each of whose calls may be the last."""

    def __init__(self, target: Any, name: str, point: Point, trap: Trap) -> None:
        self._target, self._name, self._point, self._trap = target, name, point, trap

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._target, method)
        if f"{self._name}.{method}" != self._point.at:
            return call

        def watched(*args: Any, **kwargs: Any) -> Any:
            hit = self._trap.of(self._point.command) is not None and self._point.test(args)
            if hit and self._point.half:
                messages = args[0]
                call(messages[: len(messages) // 2])
                self._trap.spring()
                return call(messages[len(messages) // 2 :])
            result = call(*args, **kwargs)
            if hit:
                self._trap.spring()
            return result

        return watched


class WatchedHost:
    """A host whose objects are watched."""

    def __init__(self, host: Host, point: Point, trap: Trap) -> None:
        self._host = host
        self._trap = trap
        self._point = point
        for name in ("rtnl", "files", "state"):
            setattr(self, name, Watched(getattr(host, name), name, point, trap))
        inner = host.container
        self.container = inner and Container(
            rtnl=Watched(inner.rtnl, "container.rtnl", point, trap),  # type: ignore[arg-type]
            sysctls=inner.sysctls,
            netns_fd=inner.netns_fd,
        )

    def retire(self, index: int) -> None:
        self._host.retire(index)
        self._trap.reached(self._point.command, "retire")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def watched_run(trap: Trap, run: Callable[[Request, Host], Ran]) -> Callable[[Request, Host], Ran]:
    """Return `plugins.run` under the trap. The trap is for flannel, which calls the others."""

    def watched(request: Request, host: Host) -> Ran:
        point = trap.of(request.command) if request.plugin == "flannel" else None
        if point is None:
            return run(request, host)
        trap.reached(request.command, "request")
        done = run(request, WatchedHost(host, point, trap))  # type: ignore[arg-type]
        trap.reached(request.command, "result made")
        return done

    return watched


def note(directory: Path, what: str, env: Mapping[str, str]) -> None:
    """Write down what has become of a request, in one piece."""
    with (directory / "begun").open("a") as notes:
        notes.write(f"{what} {env.get('CNI_COMMAND')} {env.get('CNI_CONTAINERID')}\n")


def noted(directory: Path, what: str, command: str) -> set[str]:
    """Return the containers whose request is noted so."""
    path = directory / "begun"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {pod for *head, pod in lines if head == [what, command]}


def watch(directory: Path, trap: Trap) -> None:
    """Put the trap around every request of this process."""
    serve_one, reply, delete = session.Session.serve, session.Session._reply, retire.Retirement._delete
    begin = session.Session._begin

    def watched_serve(self: session.Session) -> None:
        with trap.serving(self._connection):
            serve_one(self)

    def watched_begin(self: session.Session) -> bool:
        """Whatever dies in between: a request that its client takes for begun is noted as BEGINS at the least."""
        anew = CALLED in self.request.env
        if not anew:
            note(directory, BEGINS, self.request.env)
        begun = begin(self)
        if begun:
            note(directory, ANEW if anew else BEGUN if trap.role == DAEMON else ALONE, self.request.env)
        return begun

    def watched_reply(self: session.Session, done: Ran) -> bool:
        sent = reply(self, done)
        if self.request.plugin == "flannel":
            trap.reached(self.request.command, "result sent")
        return sent

    def watched_delete(self: retire.Retirement, group: list[int]) -> None:
        trap.reached("DEL", "links about to go")
        delete(self, group)

    session.Session.serve = watched_serve  # type: ignore[method-assign]
    session.Session._begin = watched_begin  # type: ignore[method-assign]
    session.Session._reply = watched_reply  # type: ignore[method-assign]
    retire.Retirement._delete = watched_delete  # type: ignore[method-assign]


async def daemon(directory: Path, trap: Trap) -> None:
    """Serve as weftd does."""
    from weft.cni.host.host import open_node
    from weft.cni.leaks.sweeper import Sweeper
    from weft.cni.serve.endpoint import Endpoint
    from weft.cni.serve.server import serve

    retirement = retire.Retirement()
    node = open_node(str(directory / "state"), retire=retirement.retire, lease_problem=lambda: "")
    endpoint = Endpoint.open(str(directory / "run" / "cni.sock"))
    every = directory / "sweep"
    sweeper = Sweeper(node, every=float(every.read_text())) if every.exists() else None
    task = asyncio.ensure_future(serve(endpoint, node, run=watched_run(trap, plugins.run)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    if sweeper is not None:
        sweeper.close()
    retirement.close()


def main(role: str, directory: Path, *more: str) -> None:
    trap = Trap(directory, role)
    watch(directory, trap)
    if role == DAEMON:
        asyncio.run(daemon(directory, trap))
    else:
        asyncio.run(stand_in(*more, str(directory / "state"), run=watched_run(trap, plugins.run)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
