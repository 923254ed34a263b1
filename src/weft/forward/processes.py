"""The processes of relays that run in this network namespace.

One whose socket the daemon does not know (it was removed, `--state-dir` is another, an older weft gave it an abstract
name) still has queues of the device, and would get its share of the packets.
"""

import os
import signal
from pathlib import Path

from weft.kernel.ending import end


def end_all() -> None:
    """End all relays of this thread's network namespace, and wait for it."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            end(int(entry.name), _is_relay_here, signal.SIGKILL)


def _is_relay_here(pid: int) -> bool:
    try:
        program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        spaces = (Path(f"/proc/{each}/ns/net").stat() for each in ("thread-self", pid))
        return program.endswith(b"/weft-relay") and os.path.samestat(*spaces)
    except OSError:  # it has ended meanwhile, or is none that we may look at
        return False
