"""Writing a file so that no reader, crash or power cut ever sees half of it, and no older content comes back."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path


class Latest:
    """A file that says what `content` returns, whoever writes it and however many at once: the newest stays.

    `content` is asked by the one thread that writes, while no other does. So it must only read values that are
    replaced as a whole. The file outlives a power cut, as do all changes of `write_atomically` with `sync`.
    """

    def __init__(self, path: Path, content: Callable[[], bytes], *, mode: int) -> None:
        self.path = path
        self._content = content
        self._mode = mode
        self._writing = threading.Lock()

    async def write(self) -> None:
        """Write it beside the event loop, to which encoding and fsync are long. Raises `OSError`."""
        await asyncio.to_thread(self.write_now)

    def write_now(self) -> None:
        """Write it before this returns. Raises `OSError`."""
        with self._writing:
            write_atomically(self.path, self._content(), self._mode, sync=True)


def write_atomically(path: Path, data: bytes, mode: int, *, sync: bool) -> None:
    """Replace the file at `path` by `data` with exactly `mode`, whatever the umask.

    Missing parents are made with mode 0755. With `sync` the data, the rename and the new directories outlive a
    power cut (fsync of the file and of each directory that changed). One writer per path: the hidden temporary
    file next to it has a fixed name, so that what a killed writer leaves is overwritten and never piles up.
    On `OSError` the old file is as it was.
    """
    _make_parents(path.parent, sync=sync)
    temporary = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        temporary.unlink()
    with ExitStack() as undo:
        # O_EXCL: whoever put something there in the meantime is not us, and a link is not followed.
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
