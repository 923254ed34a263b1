"""A node as container runtimes need it: around a network namespace, mounts, a host name and processes of its own.

A container runtime works by the usual paths. Here `/run`, `/etc`, `/var/lib` and `/dev/shm` are the node's own, so
`/etc/cni/net.d`, `/var/lib/cni` and `/var/lib/weft` are, whatever the machine has there. `/var/lib` lies in a directory
outside, the node's disk, which outlives it. All processes are in one pid namespace: they end with its first, and that
one with the test's process. Cgroups alone lie outside of all namespaces: they bear the process's number, and
`remove_stale_cgroups` finds those of test processes that are no more.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.support.netns import SECONDS, Netns
from tests.support.weftd import eventually

_CGROUPS: Final = Path("/sys/fs/cgroup")
_CGROUP: Final = "weft-tests-"
# $1 is the disk, $2 the file with the boot id, $3 the node's name. A fresh /sys shows the node's links, and hides the
# cgroups, which are put back. What ends as an orphan is reaped by catatonit.
_INIT: Final = """
mount --make-rprivate /
hostname "$3"
mount --bind "$2" /proc/sys/kernel/random/boot_id
mount --bind "$1" /var/lib
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/netns /run/lock /run/.etc/upper /run/.etc/work /run/.cgroup
mount -t overlay -o lowerdir=/etc,upperdir=/run/.etc/upper,workdir=/run/.etc/work overlay /etc
mkdir -p /etc/cni /etc/containers
mount -t tmpfs -o mode=755 tmpfs /etc/cni
mount -t tmpfs -o mode=755 tmpfs /etc/containers
mkdir /etc/cni/net.d
mount --rbind /sys/fs/cgroup /run/.cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/.cgroup /sys/fs/cgroup
umount -l /run/.cgroup
touch /run/.up
exec catatonit -P
"""


class Machine:
    """The namespaces, and programs in them. `root` is the node's `/` as other processes find it."""

    def __init__(self, netns: Netns, folder: Path, name: str) -> None:
        self.netns = netns
        self.folder = folder
        self.cgroup = f"/{_CGROUP}{os.getpid()}-{name}"
        (folder / "disk").mkdir(parents=True, exist_ok=True)
        boot_id = folder / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        with (folder / "machine.log").open("ab") as log:
            self._holder = netns.popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork"),
                    *("--kill-child=KILL", "--mount-proc", "sh", "-ec", _INIT, "sh"),
                    *(str(folder / "disk"), str(boot_id), name),
                ],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        self._programs: list[Program] = []
        self._first = eventually(lambda: _child_of(self._holder.pid))
        self.root = Path(f"/proc/{self._first}/root")
        eventually((self.root / "run/.up").exists)

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs another inside of all but the network namespace."""
        return ("nsenter", f"--target={self._first}", "--mount", "--uts", "--ipc", "--pid", "--wdns=/", "--")

    def path(self, inside: str) -> Path:
        """Return where other processes find an absolute path of the node. `/var/run` is a link that leads out."""
        return self.root / inside.replace("/var/run/", "/run/", 1).removeprefix("/")

    def run(self, *command: str, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        """Run a command to its end; returns what it printed."""
        return self.netns.run([*self.enter, *command], check=check, input=input)

    def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> "Program":
        """Start a program that goes on; what it says goes to the log `name`."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            process = self.netns.popen(
                [*self.enter, *command],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        program = Program(process, log)
        self._programs.append(program)
        return program

    def close(self) -> None:
        """End all processes, and with them the mounts."""
        with suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._holder.wait(SECONDS)
        for program in self._programs:
            program.process.wait(SECONDS)
        _remove_cgroups(self.cgroup.removeprefix("/"))


class Program:
    """A program of a machine. `process` is the nsenter that waits for it."""

    def __init__(self, process: "subprocess.Popen[Any]", log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return inner_pid(self.process)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def end(self, number: signal.Signals) -> None:
        """End the program by a signal, and wait until it has ended."""
        os.kill(self.pid, number)
        self.process.wait(SECONDS)


def inner_pid(nsenter: "subprocess.Popen[Any]") -> int:
    """The program that an nsenter into a pid namespace waits for, by its number outside."""
    return eventually(lambda: _child_of(nsenter.pid))


def _child_of(pid: int) -> int:
    """The process's only child, 0 if it has none yet."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0


def remove_stale_cgroups() -> None:
    """Remove the cgroups of test processes that are no more."""
    for path in _CGROUPS.glob(f"*/{_CGROUP}*"):
        owner = path.name.removeprefix(_CGROUP).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _remove_cgroups(path.name)


def _remove_cgroups(name: str) -> None:
    """Remove a cgroup and all below it from every hierarchy; whatever was in them has been killed."""
    for top in (*_CGROUPS.glob(f"*/{name}"), *_CGROUPS.glob(name)):
        for path, _, _ in os.walk(top, topdown=False):
            eventually(_removal_of(Path(path)), seconds=SECONDS)


def _removal_of(path: Path) -> Callable[[], bool]:
    def removed() -> bool:
        with suppress(OSError):  # what was in it is still ending
            path.rmdir()
        return not path.exists()

    return removed
