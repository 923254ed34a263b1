"""The passwords of a mesh, of its file: the first is offered to others, the second is taken from them, too.

The file is read again for each new link, so that a password can be changed while weftd runs.
"""

import errno
import logging
from pathlib import Path
from typing import Final

from weft.beside import files
from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret
from weft.wire import meshpassword

log = logging.getLogger(__name__)

_MOST: Final = 1 << 12  # bytes of the file
_LINES: Final = 2
_SHORTEST: Final = 12  # characters


def read_now(path: str) -> tuple[Secret, ...]:
    """Of a file, which may also be a pipe; none without a `path`. Raises `ConfigError`."""
    try:
        return passwords_in(Path(path).read_bytes(), path) if path else ()
    except OSError as error:
        raise ConfigError(_problem(path, files.why(error), "a readable file")) from None


def passwords_in(content: bytes, path: str) -> tuple[Secret, ...]:
    """Raises `ConfigError` (FLAG-001), which shows nothing of them."""
    try:
        lines = content.decode().rstrip("\r\n").split("\n")
    except UnicodeDecodeError:
        raise ConfigError(_problem(path, "not text", "a line of text")) from None
    if len(lines) > _LINES:
        raise ConfigError(
            _problem(path, f"{len(lines)} lines", "the password, and perhaps in a second line the one before")
        )
    lines = [line.removesuffix("\r") for line in lines]
    for number, line in enumerate(lines, 1):
        if len(line) < _SHORTEST:
            seen = f"line {number} has {len(line)} characters"
            raise ConfigError(_problem(path, seen, f"{_SHORTEST} or more", "'weft mesh password' makes a good one"))
    passwords = tuple(map(Secret, lines))
    for number, password in enumerate(passwords, 1):
        if meshpassword.damaged(password):
            seen = f"line {number} begins as a password of 'weft mesh password' and is not whole"
            raise ConfigError(_problem(path, seen, "all of the line that it printed"))
    return passwords


class Passwords:
    """Those in a file now; the last that were good, while it cannot be used."""

    def __init__(self, path: str) -> None:
        """Raises `ConfigError`."""
        self._path = path
        self._last = read_now(path)
        self._said = ""

    async def read(self) -> tuple[Secret, ...]:
        if not self._path:
            return ()
        try:
            self._last, said = passwords_in(await files.read_small(self._path, limit=_MOST), self._path), ""
        except ConfigError as error:
            said = str(error)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a pipe, which was read at the start and holds nothing a second time
                return self._last
            said = str(_problem(self._path, files.why(error), "a readable file"))
        if said not in ("", self._said):
            log.warning("%s; going on with the earlier password", said)
        self._said = said
        return self._last


def _problem(path: str, seen: str, expected: str, hint: str = "") -> Problem:
    return Problem(code="FLAG-001", where=f"--password-file: {path}", seen=seen, expected=expected, hint=hint)
