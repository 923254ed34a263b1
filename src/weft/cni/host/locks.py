"""One request of a container at a time, whichever process serves it: the daemon, or a stand-in.

GC has the node to itself: a runtime that takes an ADD for failed, because its client was killed, may ask for GC with a
list that lacks it while the ADD still runs.

The lock is one byte of a file under `--state-dir`, at a checksum of the container's id. A delegate that is not ours may
call a plugin of ours for the same container meanwhile: the holder's token in its environment lets it through.

No request waits for long: what holds a turn may hang, and a caller that learns it in time can act.
"""

import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from weft.cni.host.files import ByteLocks, RootedFiles, pauses
from weft.wire import cni
from weft.wire.cni import CniError

# Starts with CNI_ so that the client passes it on with the other variables.
VARIABLE: Final = "CNI_WEFT_TURN"
_LOCKS: Final = "/locks"
_TOKENS: Final = "/turns"
# Beyond all checksums: the byte that every request of a container shares, and GC has for itself.
_NODE: Final = 1 << 32
# How long GC may keep the node for itself while it waits for programs that are not ours.
GC_SECONDS: Final = 8.0
# How long a turn is waited for: longer than that, and less than a client waits (BEGIN_SECONDS in weft.h).
PATIENCE_SECONDS: Final = 12.0


class Turn:
    """`token` proves the turn to requests that happen inside."""

    def __init__(self, files: RootedFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._token = ""

    def token(self) -> str:
        """Written down from the first call on: most requests call no delegate."""
        if not self._token:
            self._token = os.urandom(16).hex()
            self._files.replace(self._path, self._token.encode())
        return self._token

    def end(self) -> None:
        if self._token:
            self._files.unlink(self._path)


_THEN: Final = (
    "nothing was done, so it may be called again; what keeps it waiting is weftd or a plugin: if one of them is stopped"
    " or hangs, let it go on or end it, which ends its turn"
)


class ContainerLocks:
    def __init__(self, files: RootedFiles, *, patience: float = PATIENCE_SECONDS) -> None:
        self._files = files
        self._patience = patience
        self._ended = threading.Condition()
        self._kept_away = 0  # requests that wait for GC's end: the next GC comes after them
        files.makedirs(_TOKENS, mode=0o700)

    @contextmanager
    def hold(self, env: Mapping[str, str]) -> Iterator[Turn | None]:
        """None: it needs no turn, or the caller's turn lasts. `CniError` (code 11) if the turn does not come."""
        place = _place(env)
        if place is None or self.inside(env):
            yield None
            return
        try:
            with self._files.locks(_LOCKS) as locks:
                if place != _NODE:
                    self._wait(locks, _NODE, shared=True)
                self._wait(locks, place, shared=False)
                turn = Turn(self._files, _token_path(place))
                try:
                    yield turn
                finally:
                    turn.end()
        finally:
            with self._ended:
                self._ended.notify_all()

    def _wait(self, locks: ByteLocks, place: int, *, shared: bool) -> None:
        with suppress(BlockingIOError):
            self._take(locks, place, shared=shared)
            return
        with self._ended:
            self._kept_away += shared
        try:
            for pause in pauses(self._patience):
                with self._ended:  # an end in this process wakes us; those elsewhere must be looked for
                    self._ended.wait(pause)
                with suppress(BlockingIOError):
                    self._take(locks, place, shared=shared)
                    return
        finally:
            with self._ended:
                self._kept_away -= shared
        what = "a GC runs" if shared else "calls for containers run" if place == _NODE else "another call for it runs"
        msg = f"{what} that has not ended within {self._patience:g} s, and this one waits for it"
        raise CniError(cni.TRY_AGAIN, msg, _THEN)

    def _take(self, locks: ByteLocks, place: int, *, shared: bool) -> None:
        if place == _NODE and not shared and self._kept_away:
            raise BlockingIOError
        locks.take(place, shared=shared)

    def inside(self, env: Mapping[str, str]) -> bool:
        token, place = env.get(VARIABLE, ""), _place(env)
        if not token or place is None:
            return False
        with suppress(OSError):
            return self._files.read(_token_path(place)) == token.encode()
        return False

    def sweep(self) -> None:
        for name in self._files.list(_TOKENS):
            with suppress(OSError, ValueError), self._files.locks(_LOCKS) as locks:
                offset = int(name, 16)
                if not 0 <= offset <= _NODE:
                    continue  # no token's name
                locks.take(offset)
                try:
                    self._files.unlink(f"{_TOKENS}/{name}")
                except IsADirectoryError:
                    self._files.set_aside(f"{_TOKENS}/{name}")


@contextmanager
def claim(files: RootedFiles, container: str) -> Iterator[bool]:
    """Hold a container's turn if neither a request nor a GC has it; else False, at once."""
    with files.locks(_LOCKS) as locks:
        try:
            locks.take(_NODE, shared=True)
            locks.take(_offset(container))
        except BlockingIOError:
            yield False
            return
        yield True


def _place(env: Mapping[str, str]) -> int | None:
    """None: it needs no turn."""
    container = env.get("CNI_CONTAINERID", "")
    if container:
        return _offset(container)
    return _NODE if env.get("CNI_COMMAND") == "GC" else None


def _offset(container: str) -> int:
    # Two containers with one checksum only wait for each other.
    return zlib.crc32(container.encode("utf-8", "surrogateescape"))


def _token_path(offset: int) -> str:
    return f"{_TOKENS}/{offset:x}"
