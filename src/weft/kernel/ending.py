"""Starts and ends processes that outlive the daemon: by what they are, and with a network namespace its own.

A process keeps its namespace alive, and the device that it waits for: `ip netns del` of a node that is a namespace
would leave all of them for ever. So a guard waits beside the process and ends it when nothing else keeps the namespace:
it has no name, and all of its processes are guards or have one. `python -I -m weft.kernel.ending PID`, with descriptor
3 of the process and 4 that tells of names that are removed (inotify(7)). It ends with the process, too. A namespace
without a name, as a container's or the machine's own, goes with its processes: nothing there needs a guard.
"""

import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/run/netns")  # of names (ip-netns(8))
_IN_DELETE: Final = 0x200  # linux/inotify.h
_INHERITED: Final = 3  # the first descriptor behind the standard streams
_PROCESS, _NAMES = 3, 4
_GUARD: Final = ("-I", "-m", "weft.kernel.ending")
_ASIDE: Final = 64  # higher than all that are inherited
_LARGEST: Final = 1 << 16
_END_SECONDS: Final = 3.0
_LOOK_AGAIN: Final = 0.002


def end(pid: int, is_it: Callable[[int], bool], *signals: signal.Signals) -> None:
    """End a process by one signal after the other, while `is_it` says so of its number, and wait for that.

    The number may be another process's by the time of the signal. A descriptor never is; before Linux 5.3, and where a
    filter refuses them, there is none, and the look just before has to do.
    """
    with ExitStack() as held:
        process = None
        with suppress(OSError):
            process = os.pidfd_open(pid)  # before the look, which is then of this process, or of one that it is not
            held.callback(os.close, process)
        for number in signals:
            if not is_it(pid):
                return
            with suppress(ProcessLookupError):
                if process is None:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(process, number)
            until = time.monotonic() + _END_SECONDS
            while is_it(pid) and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN)


def guard(pid: int) -> int:
    """Have a child of ours end with this thread's network namespace; returns the guard's number, 0 if none is needed.

    Before Linux 5.3 the kernel has no descriptors of processes: then there is no guard.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as held, suppress(OSError):
        removed = libc.inotify_init1(os.O_CLOEXEC)
        if removed < 0:
            return 0
        held.callback(os.close, removed)
        # Watched before names are looked for: the watch tells of a name that goes meanwhile.
        if libc.inotify_add_watch(removed, os.fsencode(_FOLDER), _IN_DELETE) < 0:
            return 0
        if _has_name():
            process = os.pidfd_open(pid)
            held.callback(os.close, process)
            return spawn([sys.executable, *_GUARD, str(pid)], [process, removed])
    return 0


def spawn(command: list[str], inherited: Sequence[int]) -> int:
    """Start a program in a session of its own; returns its process id.

    It has these descriptors, from 3 on, and no other; its standard streams lead nowhere. `OSError` if it cannot be
    started.
    """
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(_INHERITED)
    ]
    with ExitStack() as held:
        for number, descriptor in enumerate(inherited, _INHERITED):
            aside = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
            held.callback(os.close, aside)
            actions.append((os.POSIX_SPAWN_DUP2, aside, number))
        return os.posix_spawn(command[0], command, {}, file_actions=actions, setsid=True)


def _has_name() -> bool:
    return any(_is_ours(path, "ns/net") for path in _FOLDER.glob("*"))


def _is_ours(path: Path, own: str) -> bool:
    """Whether `path` leads to this thread's own `own` below /proc/thread-self."""
    try:
        return os.path.samestat(path.stat(), Path("/proc/thread-self", own).stat())
    except OSError:  # it has gone meanwhile, or leads to what has
        return False


def _other() -> int | None:
    """Return a descriptor of a process of this namespace that is no guard and has none; None if there is no such."""
    # ns/net of a process with more rights than ours cannot be read; a file below net can, one for each namespace.
    here = [path for path in Path("/proc").glob("[0-9]*") if _is_ours(path / "net/dev", "net/dev")]
    guarded = set()
    for path in here:
        with suppress(OSError):
            _, *words = os.fsdecode((path / "cmdline").read_bytes()).split("\0")
            if tuple(words[:3]) == _GUARD:
                guarded |= {path.name, words[3]}
    for path in here:
        if path.name not in guarded:
            with suppress(OSError):  # it has ended meanwhile
                return os.pidfd_open(int(path.name))
    return None


def _wait() -> None:
    """Wait until nothing else keeps the namespace, and end the process; or until that has ended."""
    while (keeps := _NAMES if _has_name() else _other()) is not None:
        if _PROCESS in select.select([_PROCESS, keeps], [], [])[0]:
            return
        if keeps == _NAMES:
            os.read(_NAMES, _LARGEST)
        else:
            os.close(keeps)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(_PROCESS, number)
        if select.select([_PROCESS], [], [], _END_SECONDS)[0]:
            return


if __name__ == "__main__":
    _wait()
