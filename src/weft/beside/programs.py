"""Running a program to its end: no shell, no terminal, a limit of time and of output.

It is at its end when it has ended itself: asyncio's own pipes would be waited for until all processes have ended that
it leaves behind with its output.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

_CHUNK: Final = 1 << 16  # what a pipe holds
MOST: Final = 1 << 16  # bytes of output that are kept


class Ran(NamedTuple):
    """How a program ended, and what it printed; `err` is empty where both streams are one."""

    status: int
    out: bytes
    err: bytes


class KilledError(OSError):
    """A program was killed: ETIMEDOUT, it took too long; EFBIG, it printed too much. `said` is what came until then."""

    def __init__(self, number: int, words: str, said: bytes) -> None:
        super().__init__(number, words)
        self.said = said


def wait_by_descriptors() -> None:
    """Have asyncio wait for programs by descriptors, not by a thread for each, where the kernel gives them.

    It does not before Linux 5.3, nor where a filter of system calls refuses them.
    """
    if sys.version_info < (3, 12):  # which looks by itself
        with suppress(OSError):
            os.close(os.pidfd_open(os.getpid()))
            asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


async def run(
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str] | None,
    text: bytes = b"",
    seconds: float,
    most: int = MOST,
    apart: bool = False,
    cut: bool = False,
    started: Callable[[int], None] | None = None,
) -> Ran:
    """Run a program with `text` on its input; `environ` None is this process's. With `apart` its streams are kept so.

    `started` gets its number before it gets any input. Raises the kernel's `OSError` when it cannot be started, and
    `KilledError` after so many seconds, or when it prints more than `most` bytes, unless the rest is to be `cut`: it is
    killed with all that it has started.
    """
    out, err, full = bytearray(), bytearray(), asyncio.Event()
    over = None if cut else full
    with ExitStack() as held:
        into = held.enter_context(_reading(out, most, over))
        errors = held.enter_context(_reading(err, most, over)) if apart else into
        given = asyncio.subprocess.PIPE if started is not None else held.enter_context(_input(text))
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environ, stdin=given, stdout=into, stderr=errors, start_new_session=True
        )
        if started is not None and process.stdin is not None:
            started(process.pid)
            process.stdin.write(text)
            process.stdin.close()
        try:
            await _end(process, full, seconds)
        except TimeoutError:
            raise KilledError(errno.ETIMEDOUT, f"killed after {seconds:g} s", bytes(out)) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if full.is_set():
        raise KilledError(errno.EFBIG, f"it prints more than {most} bytes", bytes(out))
    return Ran(process.returncode or 0, bytes(out), bytes(err))


async def _end(process: asyncio.subprocess.Process, full: asyncio.Event, seconds: float) -> None:
    """Wait until a program ends or has printed too much. Raises `TimeoutError`."""
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(full.wait())]
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


@contextmanager
def _input(text: bytes) -> Iterator[int]:
    """Give a file in memory with a text, to be read from its start: a program need not read it."""
    given = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        os.write(given, text)
        os.lseek(given, 0, os.SEEK_SET)
        yield given
    finally:
        os.close(given)


@contextmanager
def _reading(said: bytearray, most: int, full: asyncio.Event | None) -> Iterator[int]:
    """Give a pipe whose content comes into `said`, `most` bytes at most, until the end, even if others hold it then."""
    loop = asyncio.get_running_loop()
    out, into = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(into, True)

    def take() -> None:
        with suppress(BlockingIOError):
            said.extend(os.read(out, _CHUNK))
        if len(said) > most:
            del said[most:]
            if full is not None:
                full.set()
                loop.remove_reader(out)

    loop.add_reader(out, take)
    try:
        yield into
    finally:
        take()
        loop.remove_reader(out)
        os.close(out)
        os.close(into)
