"""Files of the daemon: reading one that somebody may have spoilt, and writing one so that it is whole.

No reader, crash or power cut ever sees half of what is written, and no older content comes back.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from weft.beside.threads import beside
from weft.kernel import statefiles
from weft.model.errors import Problem

T = TypeVar("T")

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0
_WORDS: Final = 200  # of a reason


def load(path: Path, parse: Callable[[bytes], T], *, limit: int, aside: bool = True) -> T | None:
    """Return what a file of ours says; None if there is none, or none that can be read.

    What cannot be read is said (STATE-001), and set aside unless `aside` is false. `parse` may raise whatever it likes:
    no content of a file is worth more than a start.
    """
    try:
        return parse(statefiles.read(path, limit=limit))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        spoilt = isinstance(error, statefiles.Spoilt)
    except Exception as error:  # noqa: BLE001 - see above
        reason, spoilt = f"{type(error).__name__}: {error}"[:_WORDS], True
    log.warning("%s", statefiles.problem(path, reason, statefiles.set_aside(path) if spoilt and aside else ""))
    return None


class Latest:
    """A file that says what `content` returns, however many write it at once: the newest stays.

    `content` is asked by the one thread that writes, while no other does. So it must only read values that are
    replaced as a whole. The file outlives a power cut, as do all changes of `write_atomically` with `sync`.
    """

    def __init__(self, path: Path, content: Callable[[], bytes], *, mode: int) -> None:
        self.path = path
        self._content = content
        self._mode = mode
        self._writing = threading.Lock()
        self._problem = ""

    async def write(self) -> None:
        """Write it beside the event loop, to which encoding and fsync are long. Raises `OSError`."""
        await beside(self.write_now)

    def write_now(self) -> None:
        """Write it before this returns. Raises `OSError`."""
        with self._writing:
            write_atomically(self.path, self._content(), self._mode, sync=True)

    async def attempt(self) -> bool:
        """Write it if that is possible; tells whether it was. Why not is said once (STATE-002), and when it works."""
        with self._saying():
            await self.write()
        return not self._problem

    async def keep_trying(self) -> None:
        """Write it, however long that takes."""
        while not await self.attempt():  # noqa: ASYNC110 - a disk gives no sign when there is room again
            await asyncio.sleep(_RETRY_SECONDS)

    @contextmanager
    def _saying(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = _unwritten(self.path, error)
            if problem != self._problem:
                log.warning("%s", problem)
            self._problem = problem
        else:
            if self._problem:
                log.info("STATE-002 %s is written again", self.path)
            self._problem = ""


def _unwritten(path: Path, error: OSError) -> str:
    from shlex import quote  # late: hardly ever

    hint = f"Trying again; a restart does not know what it would say. Look at `df {quote(str(path.parent))}`"
    seen = f"cannot be written: {error.strerror}"
    return str(Problem(code="STATE-002", where=str(path), seen=seen, hint=hint))


def write_atomically(path: Path, data: bytes, mode: int, *, sync: bool) -> None:
    """Replace the file at `path` by `data` with exactly `mode`, whatever the umask.

    Missing parents are made with mode 0755. With `sync` the data, the rename and the new directories outlive a
    power cut (fsync of the file and of each directory that changed). One writer per path: the hidden temporary
    file next to it has a fixed name, so that what a killed writer leaves is overwritten and never piles up.
    On `OSError` the old file is as it was.
    """
    _make_parents(path.parent, sync=sync)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink()
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        statefiles.set_aside(temporary)
    with ExitStack() as undo:
        # O_EXCL: what another program has put there meanwhile is not written to, and a link is not followed.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        undo.callback(temporary.unlink, missing_ok=True)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            if sync:
                os.fsync(descriptor)
        temporary.replace(path)
        undo.pop_all()
    if sync:
        _sync_directory(path.parent)


def _make_parents(directory: Path, *, sync: bool) -> None:
    if directory.is_dir():
        return
    _make_parents(directory.parent, sync=sync)
    with suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o755)
        if sync:
            _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
