"""The processes of relays that run in this network namespace.

One whose socket the daemon does not know (it was removed, `--state-dir` is another, an older weft gave it an abstract
name) still has queues of the device, and would get its share of the packets.
"""

import os
import signal
from pathlib import Path
from typing import Final

from weft.kernel.ending import end

_PROGRAM: Final = b"weft-relay"


def end_all() -> None:
    """End all relays of this thread's network namespace, and wait for it."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            end(int(entry.name), _is_relay_here, signal.SIGKILL)


def _is_relay_here(pid: int) -> bool:
    try:
        program, _, arguments = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")
        # One that an older weft has started may be Python's.
        is_relay = program.endswith(b"/" + _PROGRAM) or arguments.startswith(b"-I\0-m\0weft.forward\0")
        return is_relay and os.path.samestat(*(Path(f"/proc/{each}/ns/net").stat() for each in ("thread-self", pid)))
    except OSError:  # it has ended meanwhile, or is none that we may look at
        return False
