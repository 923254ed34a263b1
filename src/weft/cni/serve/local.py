"""A plugin in its own process, for when no daemon answers: the same code, with the same locks, only slower.

Descriptors of the container's namespace are opened by a thread that enters it and ends there; the process itself
never leaves its own. Starting is most of what a call costs, so nothing is imported that a call may not need.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Final

from weft.cni.host.descriptors import Node, OpenedHost, open_node
from weft.cni.host.locks import GC_SECONDS, VARIABLE, ContainerLocks, Turn
from weft.cni.host.openat import fs_magic, open_root
from weft.cni.host.sysctls import is_outside, open_settings
from weft.cni.sdk import plugins
from weft.cni.sdk.host import Done, Ran, Request
from weft.cni.serve import afterwards
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netns import run_in
from weft.model.value import Value, field
from weft.wire import cni
from weft.wire.cni import CniError

_NO_DAEMON: Final = "weftd does not run on this node, so nobody writes it"
# linux/magic.h
_NSFS: Final = 0x6E736673
_PROCFS: Final = 0x9FA0
_BUSY_RETRIES: Final = 5
_BUSY_SECONDS: Final = 1.0
_ETXTBSY: Final = 26


def run(plugin: str, env: Mapping[str, str], *, stdin: bytes, stdin_error: str, state_dir: str) -> Done:
    """Do what the plugin's process would do. `env` is the whole environment: delegates inherit it."""
    variables = {name: value for name, value in env.items() if name.startswith("CNI_")}
    request = Request(
        plugin=plugin,
        command=variables.get("CNI_COMMAND", ""),
        env=variables,
        stdin=stdin,
        stdin_error=stdin_error,
    )
    retired: list[int] = []
    sockets: list[NfSocket] = []
    try:
        _check_text(variables)
        node = open_node(state_dir, retire=retired.append, lease_problem=lambda: _NO_DAEMON)
        with (
            closing(node),
            _spared(node, sockets),
            ContainerLocks(node.state).hold(variables) as turn,
            ExitStack() as opened,
        ):
            found = _open_descriptors(plugin, variables.get("CNI_NETNS", ""), opened)
            host = opened.enter_context(
                closing(
                    OpenedHost(
                        node,
                        plugin=plugin,
                        descriptors=found.descriptors,
                        env=variables,
                        netns_problem=found.problem,
                        delegate=_Delegates(env, turn).run,
                        settings=lambda name: _open_settings(found, name, opened),
                    )
                )
            )
            return plugins.run(request, host)
    except CniError as error:
        return Done(exit=1, stdout=error.render())
    except OSError as error:
        return Done(exit=1, stdout=CniError(cni.TRY_AGAIN, f"weftd does not answer, and without it: {error}").render())
    finally:
        afterwards.leave(retired, sockets)


@contextmanager
def _spared(node: Node, sockets: list[NfSocket]) -> Iterator[None]:
    """Take the sockets that the node would close."""
    try:
        yield
    finally:
        sockets += node.idle_netfilter
        node.idle_netfilter.clear()


def _check_text(variables: Mapping[str, str]) -> None:
    """Refuse what could not be written into an answer, as a daemon does."""
    for name, value in variables.items():
        try:
            f"{name}={value}".encode()
        except UnicodeEncodeError as error:
            raise CniError(cni.BAD_ENVIRONMENT, f"the environment variable {name} is not UTF-8") from error


class _Found(Value, kw_only=False, frozen=False):
    descriptors: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def _open_descriptors(plugin: str, path: str, opened: ExitStack) -> _Found:
    """Open what the client would send; `opened` closes it."""
    found = _Found()

    def keep(name: str, fd: int) -> None:
        opened.callback(os.close, fd)
        found.descriptors[name] = fd

    def inside() -> dict[str, int]:
        if is_outside(plugin):
            return {}
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        return {"route": sock.detach()}

    keep("own", os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    keep("root", open_root("/"))
    netns = _open_netns(path, found) if path else None
    if netns is None:
        return found
    name = "netns-only" if is_outside(plugin) else "netns"
    keep(name, netns)
    try:
        inner = run_in(netns, inside)
    except OSError as error:
        found.descriptors.pop(name)
        found.problem = f"setns {error.errno}"
        return found
    for name, fd in inner.items():
        keep(name, fd)
    return found


def _open_settings(found: _Found, name: str, opened: ExitStack) -> int:
    """Open a directory of the container's settings; `opened` closes it."""
    fd = run_in(found.descriptors["netns"], lambda: open_settings(name))
    opened.callback(os.close, fd)
    return fd


def _open_netns(path: str, found: _Found) -> int | None:
    """The checks of cni.md §1.18; None with `found.problem` set."""
    try:
        magic = fs_magic(path)
    except OSError as error:
        found.problem = f"statfs {error.errno}"
        return None
    if magic not in (_NSFS, _PROCFS):
        found.problem = f"magic {magic:x}"
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        found.problem = f"open {error.errno}"
        return None


class _Delegates:
    """Programs of CNI_PATH, run by this process. The rules are those of client/delegate.c."""

    def __init__(self, env: Mapping[str, str], turn: Turn | None) -> None:
        self._env = env
        self._turn = turn

    def run(self, name: str, command: str, env: Mapping[str, str], stdin: bytes) -> Ran | None:
        """Implements `Host.delegate`."""
        path = self._find(name)
        if path is None:
            return None
        changed = {**self._env, **env, "CNI_COMMAND": command}
        if self._turn is not None:
            changed[VARIABLE] = self._turn.token()
        return _execute(path, name, changed, stdin, limit=GC_SECONDS if command == "GC" else None)

    def _find(self, name: str) -> str | None:
        if "/" in name or name in ("", ".", ".."):
            return None
        paths = (f"{directory}/{name}" for directory in self._env.get("CNI_PATH", "").split(":") if directory)
        return next((path for path in paths if os.path.isfile(path)), None)


def _execute(path: str, name: str, env: Mapping[str, str], stdin: bytes, *, limit: float | None) -> Ran:
    import subprocess
    import time

    for attempt in range(_BUSY_RETRIES + 1):
        try:
            ran = subprocess.run(
                [name], executable=path, env=env, input=stdin, capture_output=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired as error:
            raise CniError(
                cni.TRY_AGAIN, f"the plugin {name!r} has not ended within {limit} s, and was ended"
            ) from error
        except OSError as error:
            if error.errno == _ETXTBSY and attempt < _BUSY_RETRIES:
                time.sleep(_BUSY_SECONDS)
                continue
            return Ran(exit=126, stdout=b"", stderr=f"weft: {path}: {error.strerror}\n".encode())
        # A signal's number is negative here; shells and the client count from 128.
        status = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
        return Ran(exit=status, stdout=ran.stdout, stderr=ran.stderr)
    raise AssertionError("the last attempt returns")
