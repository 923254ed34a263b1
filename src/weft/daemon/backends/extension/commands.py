"""Running a user's command: what it needs in the environment and on its input, a time limit."""

import errno
import logging
import os
from collections.abc import Mapping
from typing import Final

from weft.beside import programs
from weft.beside.programs import KilledError
from weft.desired.backends.extension import Command

log = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 60.0
_SHOWN: Final = 500


async def run(command: Command, variables: Mapping[str, str], text: str = "", *, limit: float = LIMIT_SECONDS) -> str:
    """Run a command to its end, with `variables` added to this process's and `text` on its input.

    Returns both output streams in one, stripped. Raises `OSError`: EIO for a status other than 0, ETIMEDOUT after
    `limit` seconds, when it is killed with all its children.
    """
    environ = {**os.environ, **variables}
    arguments = command.arguments(environ)
    if not arguments[0]:
        raise OSError(errno.ENOENT, "it names no program")
    try:
        ran = await programs.run(arguments, environ=environ, text=f"{text}\n".encode(), seconds=limit, cut=True)
    except KilledError as error:
        raise OSError(error.errno, f"{error.strerror}{_printed(error.said)}") from None
    except OSError as error:  # its own words name the program as it is with variables replaced
        raise OSError(error.errno, f"it cannot be started: {os.strerror(error.errno or errno.EIO)}") from None
    if ran.status:
        how = f"status {ran.status}" if ran.status > 0 else f"signal {-ran.status}"
        raise OSError(errno.EIO, f"ended with {how}{_printed(ran.out)}")
    return _text(ran.out)


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()


def _printed(said: bytes) -> str:
    """Output may hold credentials: only a log of more detail has it."""
    words = " ".join(_text(said).split())[-_SHOWN:]
    log.debug("it printed: %s", words)
    return f"; it printed {len(said)} bytes, which `weftd -v=1` shows" if words else ""
