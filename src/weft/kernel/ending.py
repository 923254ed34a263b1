"""Starts and ends processes that outlive the daemon, at the latest with their network namespace.

A process keeps its namespace and its device alive: after `ip netns del` both would stay for ever. So a guard, `python
-I -m weft.kernel.ending PID`, waits beside the process and ends it when nothing else keeps the namespace: it has no
name, and all of its processes are guards or guarded. Descriptor 3 is the process, 4 tells of removed names
(inotify(7)). The guard ends with the process. A namespace without a name (a container's, the machine's own) needs no
guard: it ends with its processes.
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
    """Send one signal after the other while `is_it` confirms the process, and wait for its end.

    A process of another network namespace than this thread's is left alone.

    A process descriptor excludes that another process has the number by then; before Linux 5.3, and where a filter
    refuses them, only the look just before does.
    """
    with ExitStack() as held:
        process = None
        with suppress(OSError):
            process = os.pidfd_open(pid)  # before the look, which is then of this process, or of one that it is not
            held.callback(os.close, process)
        for number in signals:
            if not _is_here(pid, is_it):
                return
            with suppress(ProcessLookupError):
                if process is None:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(process, number)
            until = time.monotonic() + _END_SECONDS
            while _is_here(pid, is_it) and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN)


def here(is_it: Callable[[int], bool]) -> list[int]:
    """The processes of this thread's network namespace that `is_it` confirms."""
    numbers = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return [pid for pid in numbers if _is_here(pid, is_it)]


def _is_here(pid: int, is_it: Callable[[int], bool]) -> bool:
    return is_it(pid) and _is_ours(Path(f"/proc/{pid}/ns/net"), "ns/net")


def guard(pid: int) -> int:
    """Have a child of ours end with this thread's network namespace; returns the guard's number, 0 for none.

    Before Linux 5.3 there are no descriptors of processes, so there is no guard.
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
    """Start a program in a session of its own; returns its process id. Raises `OSError`.

    It has the `inherited` descriptors, from 3 on, and no other; its standard streams lead nowhere.
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
    """Tell whether `path` is the same file as `own` below /proc/thread-self."""
    try:
        return os.path.samestat(path.stat(), Path("/proc/thread-self", own).stat())
    except OSError:  # it has gone meanwhile, or leads to what has
        return False


def _other() -> int | None:
    """A descriptor of a process of this namespace that is neither a guard nor guarded; None if there is none."""
    # ns/net of a process with more rights than ours cannot be read; a file below net can, one for each namespace.
    members = [path for path in Path("/proc").glob("[0-9]*") if _is_ours(path / "net/dev", "net/dev")]
    guarded = set()
    for path in members:
        with suppress(OSError):
            _, *words = os.fsdecode((path / "cmdline").read_bytes()).split("\0")
            if tuple(words[:3]) == _GUARD:
                guarded |= {path.name, words[3]}
    for path in members:
        if path.name not in guarded:
            with suppress(OSError):  # it has ended meanwhile
                return os.pidfd_open(int(path.name))
    return None


def _wait() -> None:
    """Wait until nothing else keeps the namespace and end the process, or until that has ended."""
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
