"""The node's state as a file, written when SIGUSR1 comes, for those who cannot ask at the socket."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from weft.beside.threads import beside
from weft.daemon.disk.files import write_atomically
from weft.model.errors import Problem
from weft.model.node.nodestate import NodeState

log = logging.getLogger(__name__)

NAME: Final = "state.json"


async def write(look: Callable[[], Awaitable[NodeState]], directory: Path) -> None:
    """Write what `look` sees into the instance's directory; log where, or why not."""
    path = directory / NAME
    text = msgspec.json.format(msgspec.json.encode(await look()), indent=2) + b"\n"
    try:
        await beside(lambda: write_atomically(path, text, 0o600, sync=False))
    except OSError as error:
        log.warning("%s", Problem(code="STATE-002", where=str(path), seen=f"cannot be written: {error.strerror}"))
    else:
        log.info("SIGUSR1: the state is in %s", path)
