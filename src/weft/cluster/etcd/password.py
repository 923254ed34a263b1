"""The password that etcd is told: as given, or as its file says now, so that it can be changed while weftd runs."""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from weft.cluster.etcd.access import Access
from weft.model.errors import ConfigError, Problem
from weft.model.secret import Secret

log = logging.getLogger(__name__)

_MOST: Final = 1 << 16  # bytes; a file that is longer holds no password


def from_file(path: str) -> Secret:
    """The password in a file, which may also be a pipe. Raises `ConfigError`."""
    try:
        return Secret(Path(path).read_text().rstrip("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_problem(path, error)) from None


class Password:
    """What is told at each authentication."""

    def __init__(self, access: Access) -> None:
        self._file = access.password_file
        self._last = access.password
        self._said = ""

    def reveal(self) -> str:
        """The password of now; the one of before while its file cannot be read again."""
        if self._file:
            self._read_again()
        return "" if self._last is None else self._last.reveal()

    def _read_again(self) -> None:
        try:
            text = _content(self._file)
            self._last = self._last if text is None else Secret(text.rstrip("\n"))
            self._said = ""
        except (OSError, UnicodeDecodeError) as error:
            problem = str(_problem(self._file, error))
            if problem != self._said:
                log.warning("%s; going on with the password of before", problem)
            self._said = problem


def _content(path: str) -> str | None:
    """What a file holds; None for a pipe or the like, which holds nothing a second time and may be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST).decode() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _problem(path: str, error: OSError | UnicodeDecodeError) -> Problem:
    reason = error.strerror if isinstance(error, OSError) else "not text"
    return Problem(code="FLAG-001", where="--etcd-password-file", seen=f"{path}: {reason}", expected="a readable file")
