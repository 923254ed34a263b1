"""The processes of relays that run in this network namespace.

One whose socket the daemon does not know (it was removed, `--state-dir` is another, an older weft gave it an abstract
name) still has queues of the device, and would get its share of the packets.
"""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROGRAM: Final = b"weft-relay"
_END_SECONDS: Final = 3.0


def end_all() -> None:
    """End all relays of this thread's network namespace, and wait for it."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile, or is none that we may look at
                _end(int(entry.name))


def _end(pid: int) -> None:
    process = os.pidfd_open(pid)  # first: then the number is no other process's by the time of the signal
    try:
        if _is_relay(pid) and _is_here(pid):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], _END_SECONDS)
    finally:
        os.close(process)


def _is_relay(pid: int) -> bool:
    program, _, arguments = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")
    # One that an older weft has started may be Python's.
    return program.endswith(b"/" + _PROGRAM) or arguments.startswith(b"-I\0-m\0weft.forward\0")


def _is_here(pid: int) -> bool:
    here, there = (Path(f"/proc/{which}/ns/net").stat() for which in ("thread-self", pid))
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
