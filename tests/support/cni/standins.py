"""The processes that stand in for a daemon whose socket is below a directory, seen from outside."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SECONDS = 20


def stand_ins(directory: Path, root: Path = Path("/")) -> list[int]:
    """Return the process ids of those that live; `root` is what they have as `/`."""
    return sorted(int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_one(process, directory, root))


def kill_stand_ins(directory: Path, number: int = signal.SIGKILL, root: Path = Path("/")) -> bool:
    """Send them a signal, and wait until they have ended; returns whether there was one."""
    killed = [_kill(pid, number) for pid in stand_ins(directory, root)]  # each of them, not only the first
    return any(killed)


def _is_one(process: Path, directory: Path, root: Path) -> bool:
    with suppress(OSError):
        if not (process / "root").samefile(root):
            return False
        return any(word.startswith(f"{directory}/") and "/standin-" in word for word in _words(process))
    return False


def _words(process: Path) -> Iterator[str]:
    yield from (process / "cmdline").read_bytes().decode(errors="replace").split("\0")


def _kill(pid: int, number: int) -> bool:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, number)
            select.select([process], [], [], _SECONDS)
        finally:
            os.close(process)
        return True
    return False
