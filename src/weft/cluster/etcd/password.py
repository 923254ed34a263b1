"""The password for etcd: as given, or as its file says now, so that it can be changed while weftd runs."""

import errno
import logging
from pathlib import Path
from typing import Final

from weft.beside import files
from weft.cluster.etcd.access import Access
from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret

log = logging.getLogger(__name__)

_MOST: Final = 1 << 16  # bytes; a file that is longer holds no password


def from_file(path: str) -> Secret:
    """The password in a file, which may also be a pipe. Raises `ConfigError`."""
    try:
        return Secret(Path(path).read_text().rstrip("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_problem(path, error)) from None


class Password:
    def __init__(self, access: Access) -> None:
        self._file = access.password_file
        self._last = access.password
        self._said = ""

    async def reveal(self) -> str:
        """The last one read, while its file cannot be read."""
        if self._file:
            await self._read_again()
        return "" if self._last is None else self._last.reveal()

    async def _read_again(self) -> None:
        try:
            text = (await files.read_small(self._file, limit=_MOST)).decode()
            self._last, self._said = Secret(text.rstrip("\n")), ""
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EINVAL:
                return  # a pipe, which was read at the start and holds nothing a second time
            problem = str(_problem(self._file, error))
            if problem != self._said:
                log.warning("%s; going on with the earlier password", problem)
            self._said = problem


def _problem(path: str, error: OSError | UnicodeDecodeError) -> Problem:
    reason = files.why(error) if isinstance(error, OSError) else "not text"
    return Problem(code="FLAG-001", where="--etcd-password-file", seen=f"{path}: {reason}", expected="a readable file")
