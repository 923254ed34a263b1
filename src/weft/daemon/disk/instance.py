"""Which daemon this is: its directory, and the locks that keep a second one away (settled.md §5).

Daemons of different networks may share a machine, but not a state directory (flock), nor a device in a network
namespace (an abstract socket, gone with the process).

Any process may take such a name first, even a container's root without capabilities. So a daemon's socket has a receive
buffer larger than net.core.rmem_max, which only CAP_NET_ADMIN makes, and the kernel shows everybody its size. A
process's capabilities would prove nothing: after unshare(CLONE_NEWUSER) it has all, in a user namespace of its own.
"""

import errno
import fcntl
import hashlib
import logging
import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from weft.kernel import daemons, statefiles
from weft.kernel.unixsockets import SEAL, Holder, holders, peer_of, seal
from weft.model.errors import ConfigError, Problem

log = logging.getLogger(__name__)

_ROOT: Final = "Run weftd as root, or give it another --state-dir"
_ROOM: Final = "Without a lock there two daemons could serve one network. Make room, or give it another --state-dir"
_HINTS: Final = {errno.EACCES: _ROOT, errno.EPERM: _ROOT, errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EROFS: _ROOM}
# One message names all that must differ, so that one new start is enough.
_BESIDE: Final = (
    "Stop the other daemon. For a second network on this node give this one another --etcd-prefix and --subnet-file,"
    " and that network another VNI; for another network namespace on the same disk, another --state-dir"
)


def directory(state_dir: Path, subnet_file: str, network: str) -> Path:
    """Name the directory of a subnet file and a network (`StoreKind.identity`)."""
    identity = hashlib.sha256(f"{subnet_file}\0{network}".encode()).hexdigest()[:12]
    words = "-".join(part for part in network.split("/") if part.isalnum()) or "network"
    return state_dir / f"{words[:40]}-{identity}"


def take_directory(path: Path) -> int:
    """Make `path` (0700) and lock it for this process's life; returns the lock's descriptor.

    Raises `ConfigError`: INST-001 when another daemon has it, FLAG-001 when it cannot be made or locked, STATE-003 when
    it is another user's.
    """

    def say(problem: Problem) -> None:
        log.warning("%s", problem)

    try:
        os.close(statefiles.private_directory(path.parent, say))
        os.close(statefiles.private_directory(path, say, below=True))
        lock = _locked(path / "lock")
    except BlockingIOError as error:
        raise ConfigError(
            Problem(
                code="INST-001",
                where=f"state directory {path}",
                seen=f"in use by another weftd (pid {error.strerror})",
                hint=_BESIDE,
            )
        ) from None
    except OSError as error:
        seen = f"{error.filename or path}: {error.strerror}"
        hint = _HINTS.get(error.errno or 0, "")
        expected = "a directory that weftd may write"
        raise ConfigError(
            Problem(code="FLAG-001", where="--state-dir", seen=seen, expected=expected, hint=hint)
        ) from None
    with suppress(OSError):  # for people; the lock holds without it, on a full disk too
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _locked(path: Path) -> int:
    """`BlockingIOError` has the holder's process id as its text."""
    while True:
        lock = _opened(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another program may have set it aside since: then this lock keeps no daemon out.
            if os.path.samestat(os.fstat(lock), path.lstat()):
                return lock
        except BlockingIOError as error:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            os.close(lock)
            raise BlockingIOError(error.errno, holder if holder.isdecimal() else "unknown") from None
        except FileNotFoundError:
            pass
        os.close(lock)


def _opened(path: Path) -> int:
    try:
        return statefiles.open_safely(path, os.O_RDWR | os.O_CREAT)
    except statefiles.Spoilt as error:
        kept = statefiles.set_aside(path)
        log.warning("%s", statefiles.problem(path, error.strerror or "", kept))
        return statefiles.open_safely(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return statefiles.open_safely(path, os.O_RDONLY)  # a lock needs no writing


def claim(names: Iterable[str]) -> list[socket.socket]:
    """Claim names (`device/flannel.1`, `instance/…`) in this network namespace; the sockets hold them.

    Raises `ConfigError` (INST-001) when a daemon has one. Another process that has one is logged and ignored.
    """
    with ExitStack() as undo:
        held = []
        for name in names:
            claimed = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            seal(claimed)  # first: a name without it is no daemon's
            try:
                claimed.bind(f"\0{daemons.PREFIX}{name}")
                claimed.listen(1)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                claimed.close()
                _refuse(name)
                continue
            held.append(claimed)
        undo.pop_all()
    return held


def is_claimed(name: str) -> bool:
    try:
        _refuse(name)
    except ConfigError:
        return True
    return False


def refuse_beside_others() -> None:
    """Raise `ConfigError` (INST-001) when any daemon lives in this network namespace."""
    for name in daemons.names(daemons.SOCKETS.read_text(errors="replace")):
        _refuse(name, hint="Stop it first: it would put everything back")


def _refuse(name: str, *, hint: str = _BESIDE) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        least = SEAL if seal(probe) else 0
        found, pid = _look(probe, f"{daemons.PREFIX}{name}")
    if not found:
        return  # the holder ended between our two calls
    process = f" (pid {pid})" if pid else ""
    if not daemons.is_daemons(found, least):
        users = ", ".join(map(str, sorted({holder.uid for holder in found})))
        log.warning(
            "the name %s is held by user %s%s, which is no daemon: weft could not notice a second one",
            name,
            users,
            process,
        )
        return
    raise ConfigError(
        Problem(
            code="INST-001",
            where=name,
            seen=f"kept by another weftd{process} in this network namespace",
            hint=hint,
        )
    )


def _look(probe: socket.socket, name: str) -> tuple[list[Holder], int]:
    """The holders of an abstract name, and the process that listens there, or 0.

    It waits for nothing: any process may hold a name, and answer nobody.
    """
    there, pid, uid = True, 0, 0
    probe.setblocking(False)  # noqa: FBT003 - that is how socket has it
    try:
        probe.connect(f"\0{name}")
        pid, uid = peer_of(probe)
    except ConnectionRefusedError:
        there = False
    except OSError:  # as many wait as can
        pass
    try:
        return holders(name), pid
    except OSError:
        # A kernel without unix_diag. What it does not tell is taken for a daemon's: two of them are worse than none.
        return [Holder(uid, SEAL)] if there else [], pid
