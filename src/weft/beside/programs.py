"""Runs a program to its end, without shell and terminal, with limits of time and output.

That is its own end: asyncio's pipes would also wait for all processes that it leaves with its output.
"""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Final, NamedTuple

_CHUNK: Final = 1 << 16  # what a pipe holds
_LOOK_SECONDS: Final = 0.02  # between two looks at a program whose end no descriptor tells
MOST: Final = 1 << 16  # bytes of output that are kept
_SAID: Final = 1 << 16  # bytes of it that an error has: what a program printed last


class Ran(NamedTuple):
    """`err` is empty where both streams are one."""

    status: int
    out: bytes
    err: bytes


class KilledError(OSError):
    """ETIMEDOUT: it took too long; EFBIG: it printed too much. `said` is what came last."""

    def __init__(self, number: int, words: str, said: bytes) -> None:
        super().__init__(number, words)
        self.said = said


async def run(
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str] | None,
    text: bytes = b"",
    seconds: float | None,
    most: int = MOST,
    apart: bool = False,
    cut: bool = False,
    started: Callable[[int], None] | None = None,
) -> Ran:
    """Run a program with `text` on its input; `environ` None is this process's. `apart` keeps its streams apart.

    `started` gets the process id before any input. Raises `OSError` when it cannot be started, and `KilledError` after
    `seconds`, or when it prints more than `most` bytes and the rest is not to be `cut`.
    """
    out, err, over = bytearray(), bytearray(), asyncio.get_running_loop().create_future()
    full = None if cut else over
    with ExitStack() as held, ExitStack() as childs:
        into = held.enter_context(_reading(out, most, full, childs))
        errors = held.enter_context(_reading(err, most, full, childs)) if apart else into
        process = subprocess.Popen(  # noqa: ASYNC220 - as asyncio starts one
            arguments, env=environ, stdin=subprocess.PIPE, stdout=into, stderr=errors, start_new_session=True
        )
        childs.close()
        try:
            if started is not None:
                started(process.pid)
            held.enter_context(_writing(process.stdin, text))
            async with asyncio.timeout(seconds):
                await _end(process, over)
        except TimeoutError:
            raise KilledError(errno.ETIMEDOUT, f"killed after {seconds:g} s", bytes(out[-_SAID:])) from None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await _end(process)
    if over.done():
        raise KilledError(errno.EFBIG, f"it prints more than {most} bytes", bytes(out[-_SAID:]))
    return Ran(process.returncode, bytes(out), bytes(err))


def run_here(
    arguments: Sequence[str], *, environ: Mapping[str, str] | None, text: bytes = b"", seconds: float | None, most: int
) -> Ran:
    """As `run` with `apart`, for a thread without an event loop."""
    return asyncio.run(run(arguments, environ=environ, text=text, seconds=seconds, most=most, apart=True))


async def _end(process: "subprocess.Popen[bytes]", *others: "asyncio.Future[None]") -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # before Linux 5.3, or a filter of system calls refuses it
        while process.poll() is None and not any(other.done() for other in others):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(_LOOK_SECONDS)
        return
    loop.add_reader(descriptor, ended.cancel)  # it is done then, however often that is said
    try:
        await asyncio.wait((ended, *others), return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.poll()


@contextmanager
def _writing(pipe: IO[bytes] | None, text: bytes) -> Iterator[None]:
    assert pipe is not None  # noqa: S101 - it was asked for
    loop, left = asyncio.get_running_loop(), memoryview(text)
    os.set_blocking(pipe.fileno(), False)

    def close() -> None:
        if not pipe.closed:
            loop.remove_writer(pipe)
            pipe.close()

    def give() -> None:
        nonlocal left
        try:
            left = left[os.write(pipe.fileno(), left) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            left = left[:0]
        if not left:
            close()

    loop.add_writer(pipe, give)
    try:
        yield
    finally:
        close()


@contextmanager
def _reading(said: bytearray, most: int, full: "asyncio.Future[None] | None", childs: ExitStack) -> Iterator[int]:
    """Give a pipe whose content comes into `said` until the end, `most` bytes at most.

    `childs` closes the program's end.
    """
    loop = asyncio.get_running_loop()
    out, into = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    childs.callback(os.close, into)
    os.set_blocking(into, True)

    def take() -> None:
        with suppress(BlockingIOError):
            more = os.read(out, _CHUNK)
            said.extend(more)
            if not more:  # nobody has it open any more
                loop.remove_reader(out)
        if len(said) > most:
            del said[most:]
            if full is not None:
                full.cancel()
                loop.remove_reader(out)

    loop.add_reader(out, take)
    try:
        yield into
    finally:
        take()
        loop.remove_reader(out)
        os.close(out)
