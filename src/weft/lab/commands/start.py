"""Starts a lab, and says before what would keep it from starting."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from weft.lab import nodenames, places, protocol, spec
from weft.lab.call import Call, Deserted
from weft.lab.commands.ending import end
from weft.lab.inside import etcd
from weft.lab.kubernetes import programs
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.value import replace

_SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")
_FOR_OTHERS: Final = (errno.EADDRINUSE, errno.EACCES)  # of a port, which another number helps with


def check(lab: spec.Lab, base: Path, environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` and `Unavailable` for what would keep a lab from starting."""
    _check_tools(lab, _environment(environ))
    located(lab, environ.get("PATH", ""))
    if any(place.alive and place.name == lab.name for place in places.found(base)):
        raise ConfigError(_up_already(lab.name))
    with ExitStack() as stack:
        for listener in _listeners(lab):
            stack.enter_context(listener)


def up(
    lab: spec.Lab, base: Path, environ: Mapping[str, str], *, note: Callable[[str], None], keep: bool = False
) -> LabReport:
    """Start a lab and wait until it is complete. If that fails, nothing of it stays, unless `keep`."""
    environment = _environment(environ)
    _check_tools(lab, environment)
    lab = located(lab, environ.get("PATH", ""))
    place = places.make(base, lab.name)
    lock = place.claim()
    if lock is None:
        raise ConfigError(_up_already(lab.name))
    try:
        try:
            place.clear()
            _start_supervisor(place, lock)
        finally:
            os.close(lock)
        report = _bring_up(place, protocol.Up(lab, environment, keep), note)
        name_nodes(place, note)
    except BaseException as error:
        if keep and place.alive and isinstance(error, WeftError):
            raise
        with suppress(Unavailable):  # interrupted while it starts: nothing asks it for anything, so it ends by itself
            end(place)
        place.remove()
        raise
    return report


def _up_already(name: str) -> Problem:
    hint = f"'weft lab down {name}' ends it; another --name makes another beside it."
    return _problem(name, "a lab of this name is up", hint=hint)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For daemons and plugins: no FLANNELD_* or ETCD_* variable of ours may set a flag of theirs."""
    kept = {name: environ[name] for name in _KEPT if name in environ}
    path = programs.path(environ) + kept.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    ours = str(Path(sys.executable).parent)  # `weft` in a node is the one that made the lab
    # An ordinary user's PATH often lacks the directories where nft and iptables are.
    return kept | {"PATH": ":".join([*path, *(other for other in (*_SYSTEM_PATH, ours) if other not in path)])}


def _check_tools(lab: spec.Lab, environ: Mapping[str, str]) -> None:
    """`ConfigError` with all programs that are missing."""
    if lab.store != "mesh":
        etcd.program(environ)
    tools = {"nft": "nftables"} if lab.nftables or lab.policies is not None else {}
    if not lab.nftables:
        tools = {"iptables-restore": "iptables"} if 4 in lab.families else {}
        tools |= {"ip6tables-restore": "iptables"} if 6 in lab.families else {}
    wanted = () if lab.store != "kubernetes" else programs.NODES if lab.kubelets else programs.STORE
    if lab.kubelets and places.outer_uid():
        seen = f"user {places.outer_uid()}"
        raise ConfigError(Problem("HOST-002", "--kubernetes", seen, expected="root, for containers and cgroups"))
    problems = programs.check(wanted, environ) + [
        Problem("HOST-002", tool, "no such program on PATH", hint=f"'apt-get install {package}'.")
        for tool, package in tools.items()
        if shutil.which(tool, path=environ["PATH"]) is None
    ]
    if problems:
        raise ConfigError(*problems)


def _start_supervisor(place: Place, lock: int) -> None:
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(str(place.socket))
        listener.listen()
        command = [sys.executable, "-m", "weft.lab.inside.supervisor", str(listener.fileno()), str(place.path)]
        started = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(listener.fileno(), lock),
            start_new_session=True,
        )
    if started.returncode != 0:
        try:
            raise msgspec.json.decode(started.stdout, type=protocol.Failed).error()
        except msgspec.DecodeError:
            words = started.stderr.decode(errors="replace").strip()
            raise Unavailable(_problem("the supervisor", f"it did not start:\n{words}")) from None


def _bring_up(place: Place, request: protocol.Up, note: Callable[[str], None]) -> LabReport:
    """`Unavailable` with the supervisor's last words if it is gone: its log goes with it."""
    try:
        with ExitStack() as stack:
            outside = [stack.enter_context(listener).fileno() for listener in _listeners(request.lab)]
            call = stack.enter_context(closing(Call(place.socket, request, descriptors=outside)))
            return call.result(note=note)
    except (Deserted, ConnectionError) as error:
        words = (place.logs / "supervisor.log").read_text(errors="replace").strip().rpartition("\n")[2]
        seen = f"its supervisor ended: {words}" if words else "its supervisor ended and said nothing"
        hint = "In a container or a chroot: is its root directory a mount of its own, and may it mount?"
        raise Unavailable(_problem(place.name, seen, hint=hint)) from error


def _listeners(lab: spec.Lab) -> Iterator[socket.socket]:
    """The machine's ports that lead into a lab: that of Kubernetes' API first."""
    if lab.store == "kubernetes":
        yield socket.create_server(("127.0.0.1", 0))
    for node in lab.nodes:
        for port in node.ports:
            try:
                family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
                yield socket.create_server((port.address, port.outside), family=family)
            except OSError as error:
                words = os.strerror(error.errno) if error.errno else str(error)  # `strerror` has the address, too
                seen = f"cannot be listened on: {words}"
                hint = "Choose another hostPort for it." if error.errno in _FOR_OTHERS else ""
                where = f"{port.address} port {port.outside}, for {node.name}"
                raise Unavailable(_problem(where, seen, hint=hint)) from error


def name_nodes(place: Place, note: Callable[[str], None]) -> None:
    """Name the nodes for `ip netns`, where this user may."""
    namespaces: dict[str, int] = {}
    try:
        names = [""]
        while names:
            with closing(Call(place.socket, protocol.Names(start=len(namespaces)))) as call:
                names = call.result()
                namespaces |= dict(zip(names, call.descriptors(), strict=True))
        for name in nodenames.give(place.path, namespaces):
            note(f"/run/netns/{name} is there already, and not of this lab: it stays as it is")
    finally:
        for descriptor in namespaces.values():
            os.close(descriptor)


def _problem(where: str, seen: str, *, expected: str = "", hint: str = "", code: str = "LAB-002") -> Problem:
    return Problem(code, where, seen, expected=expected, hint=hint)


def located(lab: spec.Lab, path: str) -> spec.Lab:
    """The lab with whole paths of other daemons, looked for in `path`. `ConfigError` for what is no program."""
    found = {each.daemon: shutil.which(each.daemon, path=path) for each in lab.nodes if each.daemon}
    problems = [
        Problem(
            "LAB-001",
            f"{each.name}: daemon",
            f"{each.daemon} is no program that can be run",
            expected="a path, or a name on PATH",
        )
        for each in lab.nodes
        if each.daemon and found[each.daemon] is None
    ]
    if problems:
        raise ConfigError(*problems)
    whole = {program: str(Path(place).absolute()) for program, place in found.items() if place}
    return replace(lab, nodes=tuple(replace(each, daemon=whole.get(each.daemon, "")) for each in lab.nodes))
