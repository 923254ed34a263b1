"""Hands a command inside the lab our terminal, or pipes."""

import fcntl
import os
import pty
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from weft.lab.call import Call
from weft.lab.places import Place
from weft.lab.protocol import Exec
from weft.model.errors import Problem, Unavailable

T = TypeVar("T")

FOUND: Final = 3  # the status of a command that has found something wrong
_CHUNK: Final = 1 << 16
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

# Makes the request with these descriptors; True if they are a terminal of its own.
Start = Callable[[list[int], bool], Call[int]]


def command(place: Place, where: str, words: Sequence[str], environ: Mapping[str, str] | None = None) -> Start:
    """Run in this directory, with the descriptors that are given."""

    def start(descriptors: list[int], tty: bool) -> Call[int]:  # noqa: FBT001 - the meaning is Start's
        variables = dict(environ or {})
        wanted = Exec(where=where, command=list(words), environ=variables, tty=tty, directory=_directory())
        return Call(place.socket, wanted, descriptors=descriptors)

    return start


def _directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"


def run(start: Start) -> int:
    """With our standard streams; returns the exit status."""
    if os.isatty(0) and os.isatty(1):
        return _on_terminal(start)
    # A signal that comes while the command is being started waits until it can be passed on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        call = start([0, 1, 2], False)  # noqa: FBT003 - the meaning is Start's
        with _signals(call.signal):
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return _status(call)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Captured:
    """A command that runs there with `given` as its input. `close` ends it."""

    def __init__(self, start: Start, *, given: str = "") -> None:
        self._files = [os.memfd_create(name) for name in ("stdout", "stderr")]
        try:
            with os.fdopen(os.memfd_create("stdin"), "w+") as stdin:
                stdin.write(given)
                stdin.seek(0)
                self._call = start([stdin.fileno(), *self._files], False)  # noqa: FBT003 - the meaning is Start's
        except BaseException:
            self._close_files()
            raise

    def result(self) -> tuple[int, str, str]:
        status = self._call.result()
        stdout, stderr = (os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace") for file in self._files)
        return status, stdout, stderr

    def close(self) -> None:
        self._call.close()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            os.close(file)


def captured(start: Start, *, given: str = "") -> tuple[int, str, str]:
    with closing(Captured(start, given=given)) as running:
        return running.result()


def answer(place: Place, node: str, words: Sequence[str], kind: type[T]) -> T:
    """Return what a command of weft says on a node, as the value that its `-o json` is. Raises `Unavailable`."""
    status, stdout, stderr = captured(command(place, node, ["weft", *words, "-o", "json"]))
    if status not in (0, FOUND):
        seen = f"exit {status}: {' '.join(stderr.split())[:300]}"
        raise Unavailable(Problem("LAB-002", f"weft {words[0]} on {node}", seen))
    try:
        return msgspec.json.decode(stdout, type=kind)
    except msgspec.MsgspecError as error:
        seen = f"its answer is of another version of weft: {error}"
        raise Unavailable(Problem("LAB-002", f"weft {words[0]} on {node}", seen)) from error


def _on_terminal(start: Start) -> int:
    """Give the command a terminal of its own, which ours is copied to and from."""
    ours, theirs = pty.openpty()
    _copy_size(ours)
    call = start([theirs] * 3, True)  # noqa: FBT003
    os.close(theirs)
    before = termios.tcgetattr(0)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(ours))
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead stays
        _copy(call, ours)
        return _status(call)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, resized)
        os.close(ours)


def _copy(call: Call[int], ours: int) -> None:
    """Copy keys in and characters out until the answer comes and all its characters are shown."""
    inputs = [0, ours, call.fileno()]
    while ours in inputs:
        # Once the command has ended, only what it still has to say is waited for.
        ready, _, _ = select.select(inputs, [], [], None if call.fileno() in inputs else 0)
        if not ready:
            return
        if 0 in ready and not _move(0, ours):
            inputs.remove(0)
        if ours in ready and not _move(ours, 1):
            return
        if call.fileno() in ready:
            inputs.remove(call.fileno())


def _move(source: int, target: int) -> bool:
    """False at the end. Reading a terminal that is open nowhere else is an error: EIO."""
    data = b""
    with suppress(OSError):
        data = os.read(source, _CHUNK)
    rest = data
    while rest:
        rest = rest[os.write(target, rest) :]
    return bool(data)


def _copy_size(ours: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))


def _status(call: Call[int]) -> int:
    try:
        return call.result()
    finally:
        call.close()


@contextmanager
def _signals(passed: Callable[[int], None]) -> Iterator[None]:
    """Pass signals to the command there instead of ending."""
    sys.stdout.flush()
    before = {number: signal.signal(number, lambda number, _: passed(number)) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
