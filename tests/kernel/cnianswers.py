"""Answers of a daemon by chance, and a model of what the client must make of them (weft/cni/client/weft.h).

The model reads the same bytes: it says which answer the client prints, or that there is only error 11.
"""

import errno
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from struct import pack, unpack_from
from subprocess import CompletedProcess
from threading import Event
from typing import Final

from tests.kernel.cniclient import check_sane, error, read_frame
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import MAX_FIELDS, MAX_PAYLOAD, Frame, Kind

# The client's own limits.
MAX_NAME: Final = 64
MAX_CHANGES: Final = 16 << 10
MAX_KEPT: Final = MAX_PAYLOAD - (64 << 10) - 64

NAMES: Final = (
    *(b"cat", b"cat", b"cat", b"cat", b"loud", b"killed", b"deaf", b"status", b"no-exec", b"directory", b"dangling"),
    *(b"", b".", b"..", b"../path/cat", b"/bin/sh", b"./cat", b"cat/", b"none", b"x" * 63, b"x" * 64, b"x" * 5000),
    *(b"cat\0", b"\0", b"cat\n", b"\xff\xfe", b"c\xc3\xa4t", b"%s%n%s", b"cat;reboot", b"$(reboot)"),
)
CHANGES: Final = (
    *(b"A=b", b"A", b"A=", b"PATH=/none", b"PATH", b"CNI_PATH=/", b"CNI_PATH", b"CNI_COMMAND=DEL", b"=", b"=x", b"==="),
    *(b"", b"a\0b", b"\0", b"\xff=\xff", b"A=\n\n", b"LD_BIND_NOW=1", b"K=" + b"v" * 8000, b"K" * 16_384, b"%n=%n"),
)
DIRECTORIES: Final = (
    *(b"ipv4", b"ipv6", b"core", b"", b".", b"..", b"../net/ipv4", b"ipv4/conf", b"none", b"x" * 63, b"x" * 64),
    *(b"ipv4\0", b"\xff\xfe", b"%s%n", b"\n"),
)
STATUSES: Final = (b"0", b"1", b"7", b"255", b"256", b"0000255", b"00000255", b"-1", b"+1", b" 1", b"1 ", b"0x1", b"")
PATHS: Final = (
    "{0}",
    "{0}",
    "{0}",
    "{0}:",
    ":{0}",
    "/none:{0}",
    "",
    ":::",
    "/" * 5000,
    "x" * 300 + ":{0}",
    "\udcff:{0}",
)


def delegates(directory: Path) -> Path:
    """Make programs that a client may be told to run."""
    directory.mkdir()
    shutil.copy2("/bin/cat", directory / "cat")
    scripts = {
        "loud": "/usr/bin/head -c 3000000 /dev/zero",
        "killed": "kill -9 $$",
        "deaf": "exec <&-",
        "status": "exit 7",
    }
    for name, body in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    (directory / "no-exec").write_text("data")
    (directory / "directory").mkdir()
    (directory / "dangling").symlink_to("/none")
    return directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a daemon says, and the CNI_PATH of the client that it says it to. It waits for the answer of each order."""

    data: bytes
    path: str


def make_stream(chance: Random, directory: Path) -> Stream:
    """Some orders and an answer, as they should be or not."""
    frames_ = [chance.choice((_open, _run, _run, _run))(chance) for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3)))]
    frames_ += [_any(chance) for _ in range(chance.choice((0, 0, 0, 1)))]
    frames_[:0] = [_frame(chance, Kind.BEGUN, []) for _ in range(chance.choice((0, *(1,) * 12, 2)))]
    frames_.append(_done(chance))
    data = bytearray(b"".join(frames_))
    for _ in range(chance.choice((0, 0, 0, 0, 1, 1, 2, 5))):
        _mutate(chance, data)
    return Stream(data=bytes(data), path=chance.choice(PATHS).format(directory))


def _frame(chance: Random, kind: int, fields: list[bytes]) -> bytes:
    """As `frames.encode`, which would refuse what is too much; sometimes with a size that is a little wrong."""
    sizes = [len(each) for each in fields]
    if sizes and chance.random() < 0.1:
        sizes[chance.randrange(len(sizes))] += chance.choice((1, 2, 4, 8, 100))
    payload = b"".join(pack(">I", size) + each for size, each in zip(sizes, fields, strict=True))
    return pack(">IHH", len(payload), _version(chance), kind) + payload


def _version(chance: Random) -> int:
    return chance.choice((frames.VERSION,) * 12 + (0, 1, 3, 0xFFFF))


def _blob(chance: Random) -> bytes:
    size = chance.choice((0, 0, 1, 3, 100, 5000, 70_000) * 8 + (MAX_KEPT, MAX_KEPT + 1, MAX_PAYLOAD - 100))
    return chance.choice((b"x", b"\0", b"\xff", b"{}")) * size if size > 100_000 else chance.randbytes(size)


def _run(chance: Random) -> bytes:
    changes = [chance.choice(CHANGES) for _ in range(chance.choice((0, 0, 1, 2, 3, 8)))]
    match chance.randrange(20):
        case 0:  # about as many as there may be
            changes = [b"N%d=" % number for number in range(MAX_FIELDS - 2 + chance.choice((-1, 0, 1, 90)))]
        case 1 | 2:  # about as much as there may be
            each = MAX_CHANGES // chance.choice((1, 2, 4))
            changes = [b"N%d=" % number + b"v" * (each - 5) for number in range(MAX_CHANGES // each)]
            changes[-1] += b"v" * chance.randrange(30)
        case number if number < 15:  # mostly what can be carried out
            changes = [change for change in changes if change and 0 not in change and len(change) < 1000]
    return _frame(chance, Kind.RUN, [chance.choice(NAMES), _blob(chance), *changes])


def _open(chance: Random) -> bytes:
    fields = [chance.choice(DIRECTORIES) for _ in range(chance.choice((1,) * 9 + (0, 2)))]
    return _frame(chance, Kind.OPEN, fields)


def _done(chance: Random) -> bytes:
    status = chance.choice((b"0", b"1") * 8 + STATUSES)
    return _frame(chance, Kind.DONE, [status, _blob(chance), chance.randbytes(chance.choice((0, 9, 70_000)))])


def _any(chance: Random) -> bytes:
    kind = chance.choice((*Kind, 0, 9, 0xFFFF))
    return _frame(chance, kind, [chance.randbytes(chance.randrange(9)) for _ in range(chance.randrange(7))])


def _mutate(chance: Random, data: bytearray) -> None:
    at = chance.randrange(min(len(data), 40) if chance.random() < 0.7 else len(data)) if data else 0
    match chance.randrange(7):
        case 0:
            del data[at:]
        case 1:
            del data[at : at + chance.choice((1, 4, 8))]
        case 2:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 8)))
        case 3:  # a size
            data[at : at + 4] = chance.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x10\0\1", bytes(4))
            )
        case 4 if data:
            data[at] = chance.randrange(256)
        case 5 if data:
            data[at] ^= 1 << chance.randrange(8)
        case _:
            data += chance.randbytes(chance.choice((1, 8, 100)))


@dataclass(slots=True)
class _Meaning:
    """What a stream means: the orders that must be carried out, then an answer, or None for error 11.

    An order is a delegate's name and stdin, or that of a directory alone. `ends` says where each ends in the stream.
    """

    orders: list[tuple[bytes, ...]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    answer: Ran | None = None


def meaning(data: bytes) -> _Meaning:
    """Read a stream as the client must."""
    read, at, begun = _Meaning(), 0, False
    while len(data) - at >= frames.HEADER_SIZE:
        size, version, kind = unpack_from(">IHH", data, at)
        at += frames.HEADER_SIZE
        fields = _fields(data[at : at + size]) if size <= min(MAX_PAYLOAD, len(data) - at) else None
        at += size
        if fields is not None and kind == Kind.DONE and (begun or version >= frames.VERSION):
            read.answer = _answer(fields)
        if fields is None or version != frames.VERSION or (kind == Kind.BEGUN) == begun:
            break
        if kind == Kind.BEGUN:
            begun = True
            continue
        if not begun or not _is_order(kind, fields):
            break
        read.orders.append(tuple(fields[:2]))
        read.ends.append(at)
    return read


def _fields(payload: bytes) -> list[bytes] | None:
    found: list[bytes] = []
    at = 0
    while at < len(payload):
        size = unpack_from(">I", payload, at)[0] if len(payload) - at >= 4 else len(payload)
        at += 4 + size
        if at > len(payload) or len(found) == MAX_FIELDS:
            return None
        found.append(payload[at - size : at])
    return found


def _answer(fields: list[bytes]) -> Ran | None:
    if len(fields) != 3 or not re.fullmatch(rb"[0-9]{1,7}", fields[0]) or int(fields[0]) > 255:
        return None
    return Ran(exit=int(fields[0]), stdout=fields[1], stderr=fields[2])


def _is_order(kind: int, fields: list[bytes]) -> bool:
    named = len(fields) > 0 and 0 < len(fields[0]) < MAX_NAME and 0 not in fields[0]
    if kind == Kind.OPEN:
        return named and len(fields) == 1
    if kind != Kind.RUN or not named or len(fields) < 2:
        return False
    room = MAX_CHANGES
    for change in fields[2:]:
        if not 0 < len(change) < room or 0 in change:
            return False
        room -= len(change) + 1
    return True


class Judge:
    """Plays the daemon of one call after the other, and judges what the client made of it."""

    def __init__(self) -> None:
        self._stream = Stream(data=b"", path="")
        self._expected = meaning(b"")
        self._heard: list[Frame] = []
        self._rest = b""
        self._over = Event()

    def next(self, stream: Stream) -> None:
        """Have the next client be told this."""
        self._stream, self._expected, self._heard = stream, meaning(stream.data), []
        self._rest = b""
        self._over.clear()

    def serve(self, connection: socket.socket) -> None:
        """Read the request, say everything, and hear what comes back."""
        read_frame(connection)
        said = 0
        with suppress(ConnectionError):  # it may have heard enough
            for end in self._expected.ends:
                connection.sendall(self._stream.data[said:end])
                said = end
                self._heard.append(read_frame(connection))
            connection.sendall(self._stream.data[said:])
            connection.shutdown(socket.SHUT_WR)
            self._rest = connection.recv(1)
        self._over.set()

    def judge(self, done: "CompletedProcess[bytes]") -> None:
        """Compare what the client did with the model."""
        check_sane(done)
        expected = self._expected
        if expected.answer is None:
            error(done)
            return
        assert (done.returncode, done.stdout) == (expected.answer.exit, expected.answer.stdout)
        assert done.stderr == expected.answer.stderr
        assert self._over.wait(10)
        assert self._rest == b""
        for order, frame in zip(expected.orders, self._heard, strict=True):
            if len(order) == 1:
                # These calls have no container.
                assert frames.decode_opened(frame) == errno.ENOENT
            else:
                _check_ran(*order, frames.decode_ran(frame))


def _check_ran(name: bytes, stdin: bytes, ran: Ran | None) -> None:
    runs: dict[bytes, Callable[[], Ran]] = {
        b"cat": lambda: Ran(exit=0, stdout=stdin) if len(stdin) <= MAX_KEPT else Ran(exit=125),
        b"loud": lambda: Ran(exit=125),
        b"killed": lambda: Ran(exit=128 + 9),
        b"deaf": lambda: Ran(exit=0),
        b"status": lambda: Ran(exit=7),
        b"no-exec": lambda: Ran(exit=126),
    }
    if ran is not None:
        expected = runs[name]()
        assert (ran.exit, ran.stdout) == (expected.exit, expected.stdout), name
