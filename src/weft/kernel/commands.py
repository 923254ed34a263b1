"""Running a user's command: no shell, what it needs in the environment and on its input, a time limit."""

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from weft.model.command import Command

log = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 60.0
_MOST: Final = 1 << 16  # bytes of output that are kept
_SHOWN: Final = 500


async def run(command: Command, variables: Mapping[str, str], text: str = "", *, limit: float = LIMIT_SECONDS) -> str:
    """Run a command to its end, with `variables` beside those of this process and `text` on its input.

    Returns what it has printed, both streams in one, without blanks at the ends. Raises `OSError`: with EIO for another
    status than 0 and ETIMEDOUT after `limit` seconds, when it is killed with all that it has started.
    """
    said = bytearray()
    with _reading(said) as output, _input(f"{text}\n") as given:
        process = await _start(command, {**os.environ, **variables}, given, output)
        try:
            async with asyncio.timeout(limit):
                status = await process.wait()
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, f"killed after {limit:g} s{_printed(said)}") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if status:
        how = f"status {status}" if status > 0 else f"signal {-status}"
        raise OSError(errno.EIO, f"ended with {how}{_printed(said)}")
    return _text(said)


async def _start(command: Command, environ: Mapping[str, str], given: int, output: int) -> asyncio.subprocess.Process:
    arguments = command.arguments(environ)
    if not arguments[0]:
        raise OSError(errno.ENOENT, "it names no program")
    try:
        return await asyncio.create_subprocess_exec(
            *arguments, env=environ, stdin=given, stdout=output, stderr=output, start_new_session=True
        )
    except OSError as error:  # its own words name the program as it is with variables replaced
        raise OSError(error.errno, f"it cannot be started: {os.strerror(error.errno or errno.EIO)}") from None


@contextmanager
def _input(text: str) -> Iterator[int]:
    """Give a file in memory with a text, to be read from its start: a command need not read it."""
    given = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        os.write(given, text.encode())
        os.lseek(given, 0, os.SEEK_SET)
        yield given
    finally:
        os.close(given)


@contextmanager
def _reading(said: bytearray) -> Iterator[int]:
    """Give a pipe whose content comes into `said` until the end, whoever else holds it: asyncio's waits for those."""
    loop = asyncio.get_running_loop()
    out, into = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(into, True)

    def take() -> None:
        with suppress(BlockingIOError):
            said.extend(os.read(out, _MOST)[: _MOST - len(said)])

    loop.add_reader(out, take)
    try:
        yield into
    finally:
        take()
        loop.remove_reader(out)
        os.close(out)
        os.close(into)


def _text(said: bytearray) -> str:
    return said.decode(errors="replace").strip()


def _printed(said: bytearray) -> str:
    """Say that it has printed something, which may hold credentials: only a log of more detail has it."""
    words = " ".join(_text(said).split())[-_SHOWN:]
    log.debug("it printed: %s", words)
    return f"; it printed {len(said)} bytes, which `weftd -v=1` shows" if words else ""
