"""One request of a container at a time, whoever serves it: the daemon, or a plugin in its own process.

The lock is a flock under `--state-dir`, so that both see it. A delegate that is not ours may call a plugin of ours
for the same container (`ptp` calls `host-local`) while the lock is held on its behalf: it carries the holder's token
in its environment and is let through.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from weft.cni.files import RootedFiles

# Starts with CNI_ so that the client passes it on with the other variables.
VARIABLE: Final = "CNI_WEFT_TURN"
_DIRECTORY: Final = "/locks"
_SUFFIX: Final = ".turn"


class Turn:
    """A container's turn, held. `token` proves it to requests that happen inside."""

    def __init__(self, files: RootedFiles, path: str) -> None:
        self._files = files
        self._path = path + _SUFFIX
        self._token = ""

    def token(self) -> str:
        """Return the token, written down from the first call on: most requests call nobody."""
        if not self._token:
            self._token = secrets.token_hex(16)
            self._files.replace(self._path, self._token.encode())
        return self._token

    def end(self) -> None:
        """Let nobody through any more."""
        if self._token:
            self._files.unlink(self._path)


class ContainerLocks:
    """The locks of all containers, in the directory `files` is rooted at."""

    def __init__(self, files: RootedFiles) -> None:
        self._files = files
        files.makedirs(_DIRECTORY, mode=0o700)

    @contextmanager
    def hold(self, env: Mapping[str, str]) -> Iterator[Turn | None]:
        """Wait for the turn of the request's container. None: there is no container, or the caller's turn lasts."""
        container = env.get("CNI_CONTAINERID", "")
        if not container or self.inside(env):
            yield None
            return
        path = _path(container)
        with self._files.lock(path):
            turn = Turn(self._files, path)
            try:
                yield turn
            finally:
                turn.end()
                self._files.unlink(path)

    def inside(self, env: Mapping[str, str]) -> bool:
        """Tell whether the request comes from a delegate of whoever holds the container's turn now."""
        token = env.get(VARIABLE, "")
        if not token:
            return False
        with suppress(OSError):
            held = self._files.read(_path(env.get("CNI_CONTAINERID", "")) + _SUFFIX)
            return secrets.compare_digest(held, token.encode())
        return False

    def sweep(self) -> None:
        """Remove what a crash has left: locks that nobody holds."""
        for name in self._files.list(_DIRECTORY):
            path = f"{_DIRECTORY}/{name.removesuffix(_SUFFIX)}"
            with suppress(BlockingIOError), self._files.lock(path, wait=False):
                with suppress(FileNotFoundError):
                    self._files.unlink(path + _SUFFIX)
                self._files.unlink(path)


def _path(container: str) -> str:
    """A container's id may be longer than a file's name."""
    return f"{_DIRECTORY}/{hashlib.sha256(container.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"
