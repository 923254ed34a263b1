"""A secret in a file, which is read again and again, so that it can be changed while weftd runs."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from weft.beside import files
from weft.model.errors import ConfigError, Problem

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST: Final = 1 << 16  # bytes


class SecretFile(Generic[T]):
    """`read` makes the secret of the text; it gets what to call the file, and raises `ConfigError`."""

    def __init__(self, flag: str, path: str, read: Callable[[str, str], T]) -> None:
        """The file may also be a pipe. Raises `ConfigError` (FLAG-001)."""
        self._where = f"{flag}: {path}"
        self._path = path
        self._read = read
        self._said = ""
        try:
            self._last = self._secret(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(self._unreadable(error)) from None

    async def now(self) -> T:
        """The last one that was good, while the file cannot be used."""
        said = ""
        try:
            self._last = self._secret(await files.read_small(self._path, limit=_LONGEST))
        except ConfigError as error:
            said = str(error)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a pipe, which was read at the start and holds nothing a second time
                return self._last
            said = str(self._unreadable(error))
        if said not in ("", self._said):
            log.warning("%s; going on with the earlier password", said)
        self._said = said
        return self._last

    def _secret(self, content: bytes) -> T:
        try:
            return self._read(content.decode(), self._where)
        except UnicodeDecodeError:
            raise ConfigError(Problem("FLAG-001", self._where, "not text", "a line of text")) from None

    def _unreadable(self, error: OSError) -> Problem:
        return Problem("FLAG-001", self._where, files.why(error), "a readable file")
