"""The daemons of a network namespace, which claim names among its abstract sockets, and where each is asked.

One of a daemon's names, `instance/…`, is that of its directory: there it says of itself what it is (`NodeState`), and
what happened. Who may claim names, and who may not, says `weft.daemon.disk.instance`.
"""

from pathlib import Path
from typing import Final

PREFIX: Final = "weft/"
INSTANCE: Final = "instance/"
SOCKETS: Final = Path("/proc/thread-self/net/unix")  # of the thread's network namespace (proc(5))
ASK_STATE: Final = b'{"ask":"state"}\n'
ASK_HEALTH: Final = b'{"ask":"health"}\n'  # of which the answer is `model.node.nodestate.HealthState`


def ask_events(after: int) -> bytes:
    """The question for the events after that number, of which the answer is `model.node.history.Told`."""
    return b'{"ask":"events","after":%d}\n' % after


def names(sockets: str) -> list[str]:
    """The names that are claimed, once for each socket there, from the text of `SOCKETS`."""
    parts = (line.partition(f" @{PREFIX}") for line in sockets.splitlines())
    return [name for _, found, name in parts if found]


def living(sockets: str) -> list[str]:
    """The names of the daemons' directories that are claimed, by whatever process, from the text of `SOCKETS`."""
    return sorted({name.removeprefix(INSTANCE) for name in names(sockets) if name.startswith(INSTANCE)})


def address(name: str) -> str:
    """Where the daemon of a directory of this name is asked: the abstract socket that claims it."""
    return f"\0{PREFIX}{INSTANCE}{name}"
