"""The daemon's files: each is read although it may be spoilt, and replaced as a whole."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from weft.beside.tasks import awaited
from weft.beside.threads import beside
from weft.kernel import statefiles
from weft.model.errors import Problem

T = TypeVar("T")

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0
LAST_SECONDS: Final = 3.0  # what is written at the end has this long
_WORDS: Final = 200  # of a reason


def load(path: Path, parse: Callable[[bytes], T], *, limit: int, aside: bool = True) -> T | None:
    """Return what a file of ours says; None if there is none, or it cannot be read.

    The latter is said (STATE-001), and the file set aside unless `aside` is false; `parse` may raise anything.
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

    One thread at a time asks `content`, which must only read values that are replaced as a whole.
    """

    def __init__(self, path: Path, content: Callable[[], bytes], *, mode: int) -> None:
        self.path = path
        self._content = content
        self._mode = mode
        self._writing = threading.Lock()
        self._problem = ""

    async def write(self) -> None:
        """Raises `OSError`."""
        await beside(self.write_now)

    def write_now(self) -> None:
        """Raises `OSError`."""
        with self._writing:
            write_atomically(self.path, self._content(), self._mode, sync=True)

    async def attempt(self) -> bool:
        """Write it, and return whether that worked. A failure is logged once (STATE-002), and so is its end."""
        with self._saying():
            await self.write()
        return not self._problem

    async def keep_trying(self) -> None:
        while not await self.attempt():  # noqa: ASYNC110 - a disk gives no sign when there is room again
            await asyncio.sleep(_RETRY_SECONDS)

    async def finish(self) -> bool:
        """Write what is to be said last, at the end of a run; False if a disk that hangs has not taken it in time."""
        last = awaited(self.attempt())  # one that was under way may not have begun
        # Not by asyncio.timeout: in a task that is cancelled already, Python 3.11's gives no TimeoutError.
        await asyncio.wait((last,), timeout=LAST_SECONDS)
        if last.done():
            last.result()
            return True
        last.cancel()
        return False

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
    """Replace the file at `path` by `data` with exactly `mode`. On `OSError` the old one stays.

    Missing parents get mode 0755. With `sync` data, rename and new directories outlive a power cut (fsync). One writer
    per path: the temporary file has a fixed name, so that killed writers leave one at most.
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
