"""Where labs leave traces outside their own namespaces: a directory each, and for root names in /run/netns.

The directory holds the socket, lock, logs, the list of names, and what commands keep. The supervisor holds the lock as
long as it lives, so a free lock means a dead lab. Everything that must be removed is found from here.
"""

import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from weft.lab import cgroups, nodenames, system
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

T = TypeVar("T")

KUBECONFIG: Final = "kubeconfig"
_TMP: Final = Path("/tmp")  # noqa: S108 - a lab's directory there is made 0700 and checked before use
# struct flock (fcntl.h): type, whence, start, length, process. A lock of the open file, unlike one of the process,
# can be inherited; unlike flock(2)'s it can be asked about without being taken.
_FLOCK: Final = struct.Struct("@hhqqi4x")


class Place(Value, kw_only=False):
    """The directory of one lab."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def socket(self) -> Path:
        return self.path / "socket"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def _notes(self) -> Path:
        return self.path / "notes"

    def note(self, name: str, kind: type[T]) -> T | None:
        """None if nothing readable is kept under this name."""
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self._notes / f"{name}.json").read_bytes(), type=kind)
        return None

    def keep(self, name: str, value: Value) -> None:
        self._notes.mkdir(mode=0o700, exist_ok=True)
        system.write(self._notes / f"{name}.json", msgspec.json.encode(value).decode())

    @property
    def kubeconfig(self) -> Path:
        """For kubectl, if the lab has Kubernetes."""
        return self.path / KUBECONFIG

    @property
    def pid(self) -> int:
        """0 if no supervisor was started."""
        return self._supervisor()[0]

    def open_supervisor(self) -> int | None:
        """A pidfd; None if the process that was written down is gone.

        A number means another process later, so the start time is compared after the process was opened.
        """
        pid, started = self._supervisor()
        try:
            process = os.pidfd_open(pid)
        except (OSError, ValueError, OverflowError):
            return None
        if started and system.start_time(pid) == started:
            return process
        os.close(process)
        return None

    def _supervisor(self) -> tuple[int, int]:
        try:
            pid, _, started = (self.path / "pid").read_text().strip().partition(" ")
            return int(pid), int(started or 0)  # older versions wrote the number alone
        except (OSError, ValueError):  # not written yet, or not by a supervisor
            return 0, 0

    def claim(self) -> int | None:
        """Take the lab's lock; None if somebody holds it. The directory is made."""
        while True:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self.logs.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another command removes the lab, and was quicker
                lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
                    if self._lock.stat().st_ino == os.fstat(lock).st_ino:
                        return lock
                except BlockingIOError:
                    os.close(lock)
                    return None
                os.close(lock)  # removed between opening and locking: no other process will ever see this lock

    @property
    def alive(self) -> bool:
        """Somebody holds the lock: a supervisor, or a command that is about to start one."""
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_ = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_OFD_GETLK, asked))
            return bool(kind != fcntl.F_UNLCK)
        finally:
            os.close(lock)

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def clear(self) -> None:
        """Remove what a dead lab of this name has left, but for its lock."""
        nodenames.take(self.path)
        (self.path / "pid").unlink(missing_ok=True)
        self.kubeconfig.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        for log in self.logs.iterdir():
            log.unlink()
        shutil.rmtree(self._notes, ignore_errors=True)

    def remove(self) -> None:
        """A lab that has come up in its place stays."""
        lock = self.claim()
        if lock is None:
            return
        try:
            nodenames.take(self.path)
            cgroups.remove(self.name)
            shutil.rmtree(self.path, ignore_errors=True)
            with suppress(OSError):  # other labs are still there
                self.path.parent.rmdir()
        finally:
            os.close(lock)


def home(environ: Mapping[str, str]) -> Path:
    """Where this user's labs are; it need not exist.

    The user is the one outside of every user namespace: `unshare -Ur weft lab up` and `weft lab ps` mean the same labs.
    """
    user = outer_uid()
    if user == 0 and os.access("/run", os.W_OK):
        return Path("/run/weft-lab")
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and user != 0 and os.access(runtime, os.W_OK):
        return Path(runtime) / "weft-lab"
    return _TMP / f"weft-lab-{user}"


def found(base: Path) -> Iterator[Place]:
    """Alive and dead, by name."""
    if base.is_dir():
        _check_owner(base)
        yield from (Place(path) for path in sorted(base.iterdir()) if path.is_dir())


def make(base: Path, name: str) -> Place:
    """Below a directory that is this user's alone."""
    base.mkdir(mode=0o700, exist_ok=True)
    _check_owner(base)
    return Place(base / name)


def _check_owner(base: Path) -> None:
    # In /tmp another user could have made the directory first, and would then own our socket's place.
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        # Root's labs are in /run, whatever XDG_RUNTIME_DIR says.
        elsewhere = ", or set XDG_RUNTIME_DIR to a directory of yours" if base.parent == _TMP else ""
        raise ConfigError(
            Problem(
                "HOST-002",
                str(base),
                f"owner {status.st_uid}, mode {stat.filemode(status.st_mode)}",
                expected=f"a directory of user {os.geteuid()} that no other user may open",
                hint=f"Remove it, or give it that owner and mode 0700{elsewhere}.",
            )
        )


def outer_uid() -> int:
    """As the machine knows it (user_namespaces(7), uid_map: inside, outside, count)."""
    uid = os.geteuid()
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= uid < inside + count:
            return outside + uid - inside
    return uid
