"""The daemons of a network namespace, which claim names among its abstract sockets, and where each is asked.

At `instance/…`, named for its directory, a daemon says what it is (`NodeState`), and what happened.
`weft.daemon.disk.instance` says who may claim names.
"""

import errno
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from weft.kernel.unixsockets import SEAL, Holder, holders_below, seal

PREFIX: Final = "weft/"
INSTANCE: Final = "instance/"
SOCKETS: Final = Path("/proc/thread-self/net/unix")  # of the thread's network namespace (proc(5))
MOST: Final = 64 << 20  # bytes of an answer: of 100,000 peers it is a third of that
ASK_STATE: Final = b'{"ask":"state"}\n'
ASK_PLAN: Final = b'{"ask":"plan"}\n'  # of which the answer is `model.node.planned.PlanAnswer`
ASK_HEALTH: Final = b'{"ask":"health"}\n'  # of which the answer is `model.node.nodestate.HealthState`


def ask_events(after: int) -> bytes:
    """The question for the events after that number; the answer is `model.node.history.EventsSince`."""
    return b'{"ask":"events","after":%d}\n' % after


def names(sockets: str) -> list[str]:
    """The claimed names, one for each socket, from the text of `SOCKETS`."""
    parts = (line.partition(f" @{PREFIX}") for line in sockets.splitlines())
    return [name for _, found, name in parts if found]


def living() -> list[str]:
    """The directories' names of the daemons in the calling thread's network namespace.

    Any process may claim such names, so the socket itself shows whose it is (`is_daemons`).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        least = SEAL if seal(probe) else 0
    try:
        found = holders_below(PREFIX + INSTANCE)
    except OSError:  # a kernel without unix_diag: the process that answers shows whether it is root's
        names_there = names(SOCKETS.read_text(errors="replace"))
        return sorted({name.removeprefix(INSTANCE) for name in names_there if name.startswith(INSTANCE)})
    sealed = [name for name, those in found.items() if is_daemons(those, SEAL)]
    return sorted(sealed or (name for name, those in found.items() if is_daemons(those, least)))


def is_daemons(holders: Iterable[Holder], least: int) -> bool:
    """Tell whether a daemon made one of these sockets: root, who can show it by the size of a buffer.

    `least` is `SEAL` where a process with a daemon's rights can make one, else 0. The right is CAP_NET_ADMIN in the
    network's own user namespace, which a container's root has not.
    """
    return any(holder.uid == 0 and holder.room >= least for holder in holders)


def said(connection: socket.socket, *, seconds: float) -> bytes:
    """Read until the other side closes. `TimeoutError` after `seconds`, `OSError` when it is too much."""
    end = time.monotonic() + seconds
    answer = bytearray()
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        more = connection.recv(1 << 16)
        if not more:
            return bytes(answer)
        answer += more
        if len(answer) > MOST:
            raise OSError(errno.EMSGSIZE, f"it says more than {MOST >> 20} MiB")


def address(name: str) -> str:
    return f"\0{PREFIX}{INSTANCE}{name}"
