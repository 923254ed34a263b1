"""Frames between the CNI client and the daemon: bytes to values and back. The other side is cni/client/frame.c.

A frame is a header (size of what follows, 4 bytes; version, 2; kind, 2; big-endian) and fields, each a size of 4 bytes
and that many bytes; at most `MAX_PAYLOAD` bytes follow the header. The header and `Done` stay the same in every
version, so that a refusal can always be read.

    client → daemon   Call        plugin, names of descriptors, netns problem, stdin error, stdin, K=V …
    daemon → client   Begun       nothing                                         before anything is done
    daemon → client   Run         name, stdin, K=V …                              any number of times,
    client → daemon   Ran         exit status or "missing", stdout, stderr        each answered by this
    daemon → client   Open        name                                            any number of times,
    client → daemon   Opened      errno, 0 if a descriptor comes with it          each answered by this
    daemon → client   Done        exit status, stdout, stderr                     once, at the end

A client without `Begun` may do the work itself: it first shuts its end down and reads once more, and a daemon that
cannot send `Begun` does nothing. A `Done` without `Begun` is a refusal. Version 1 has no `Begun`.

Descriptors come with the first byte of `Call` (SCM_RIGHTS), in the order of their names: `own` and `netns` (network
namespaces of the client and of the container), `root` (the client's /) and `route` (a NETLINK_ROUTE socket of the
container's namespace); unknown ones are ignored. For a plugin that works in the host's namespace alone, `netns-only`
replaces the last three: it is compared, not entered.

`Open` asks for a directory of the container's /proc/sys/net (`ipv6`). Few plugins need one, and opening one costs 0.4
ms on a node with 1,000 namespaces.
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final

from weft.model.value import Value, field
from weft.wire.cni import Ran

VERSION: Final = 2
# From this version on a client hears that its request is begun.
TELLS_BEGUN: Final = 2
# Its own version and the previous one: node and client are upgraded in any order.
ACCEPTED: Final = frozenset({VERSION - 1, VERSION})
MAX_PAYLOAD: Final = 1 << 20
MAX_FIELDS: Final = 320
MAX_NAME: Final = 64
HEADER_SIZE: Final = 8

_HEADER: Final = Struct(">IHH")
_SIZE: Final = Struct(">I")
_CALL_FIELDS: Final = 5
_ANSWER_FIELDS: Final = 3
_MISSING: Final = b"missing"
_MAX_EXIT: Final = 255
_MAX_ERRNO: Final = 4095  # linux/err.h


class FrameError(Exception):
    """The other side has broken the protocol."""


class VersionError(FrameError):
    def __init__(self, theirs: int) -> None:
        super().__init__(
            f"the client speaks version {theirs} of the protocol, this daemon versions "
            f"{' and '.join(map(str, sorted(ACCEPTED)))}: upgrade the older of the two"
        )


class VariableError(FrameError):
    """An unreadable environment variable: a fault of the caller, not of the client."""


class Kind(IntEnum):
    CALL = 1
    RUN = 2
    RAN = 3
    DONE = 4
    OPEN = 5
    OPENED = 6
    BEGUN = 7


class Frame(Value):
    kind: int
    fields: tuple[bytes, ...]
    version: int = VERSION


class Call(Value):
    """`netns_problem` says which step failed for CNI_NETNS and how (`statfs 2`)."""

    plugin: str
    stdin: bytes
    env: Mapping[str, str]
    descriptors: tuple[str, ...] = ()
    netns_problem: str = ""
    stdin_error: str = ""


class Run(Value):
    """Run a delegate; `changes` are variables with new values."""

    name: str
    stdin: bytes
    changes: Mapping[str, str] = field(default_factory=dict)


def encode(frame: Frame) -> bytes:
    """Raises `FrameError` for a frame that is too large."""
    size = sum(_SIZE.size + len(field) for field in frame.fields)
    if size > MAX_PAYLOAD or len(frame.fields) > MAX_FIELDS:
        raise FrameError(f"{len(frame.fields)} fields of {size} bytes do not fit into a frame")
    parts = [_HEADER.pack(size, frame.version, frame.kind)]
    for each in frame.fields:
        parts += (_SIZE.pack(len(each)), each)
    return b"".join(parts)


class FrameReader:
    """Joins a stream of bytes to frames. After an error it must not be used again."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Frame | None:
        """Take the next bytes; return the frame that they complete. Raises `FrameError`.

        Bytes behind a complete frame are an error: neither side ever sends two frames in a row.
        """
        self._held += data
        if len(self._held) < HEADER_SIZE:
            return None
        size, version, kind = _HEADER.unpack_from(self._held)
        if size > MAX_PAYLOAD:
            raise FrameError(f"a frame of {size} bytes; at most {MAX_PAYLOAD} are allowed")
        if version not in ACCEPTED:
            raise VersionError(version)
        end = HEADER_SIZE + size
        if len(self._held) < end:
            return None
        if len(self._held) > end:
            raise FrameError("more bytes than one frame")
        payload = bytes(memoryview(self._held)[HEADER_SIZE:])
        self._held.clear()
        return Frame(kind=kind, version=version, fields=_fields(payload))

    @property
    def empty(self) -> bool:
        """True between frames: the stream may end here."""
        return not self._held


def _fields(payload: bytes) -> tuple[bytes, ...]:
    found: list[bytes] = []
    at, end = 0, len(payload)
    while at < end:
        if end - at < _SIZE.size:
            raise FrameError("a field without its size")
        (size,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size
        if size > end - at:
            raise FrameError(f"a field of {size} bytes where {end - at} are left")
        if len(found) == MAX_FIELDS:
            raise FrameError(f"more than {MAX_FIELDS} fields")
        found.append(payload[at : at + size])
        at += size
    return tuple(found)


def decode_call(frame: Frame) -> Call:
    if frame.kind != Kind.CALL or len(frame.fields) < _CALL_FIELDS:
        raise FrameError(f"a frame of kind {frame.kind} with {len(frame.fields)} fields is no call")
    plugin, descriptors, netns_problem, stdin_error, stdin, *variables = frame.fields
    env: dict[str, str] = {}
    for variable in variables:
        try:
            name, equals, value = _text(variable, _named(variable)).partition("=")
        except FrameError as error:
            raise VariableError(str(error)) from error
        if not equals or not name.startswith("CNI_"):
            raise FrameError("a variable that is no CNI_ variable")
        env[name] = value
    return Call(
        plugin=_text(plugin, "the plugin's name"),
        descriptors=tuple(_text(descriptors, "the names of descriptors").split()),
        netns_problem=_text(netns_problem, "the problem of the namespace"),
        stdin_error=_text(stdin_error, "the problem of stdin"),
        stdin=stdin,
        env=env,
    )


def is_name(name: str) -> bool:
    """A file's name, shorter than `MAX_NAME` bytes, as the client demands."""
    try:
        data = name.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(data) < MAX_NAME and not any(byte in data for byte in b"/\0")


def _named(variable: bytes) -> str:
    return f"the environment variable {variable.partition(b'=')[0].decode('ascii', 'replace')}"


def encode_begun(*, version: int = VERSION) -> bytes:
    return encode(Frame(kind=Kind.BEGUN, version=version, fields=()))


def encode_run(run: Run, *, version: int = VERSION) -> bytes:
    changes = (f"{name}={value}".encode() for name, value in run.changes.items())
    fields = (run.name.encode(), run.stdin, *changes)
    return encode(Frame(kind=Kind.RUN, version=version, fields=fields))


def decode_ran(frame: Frame) -> Ran | None:
    """None if CNI_PATH holds no such program."""
    if frame.kind != Kind.RAN or len(frame.fields) != _ANSWER_FIELDS:
        raise FrameError(f"a frame of kind {frame.kind} with {len(frame.fields)} fields instead of a delegate's end")
    status, stdout, stderr = frame.fields
    if status == _MISSING:
        return None
    return Ran(exit=_number(status, _MAX_EXIT, "exit status"), stdout=stdout, stderr=stderr)


def encode_open(name: str, *, version: int = VERSION) -> bytes:
    return encode(Frame(kind=Kind.OPEN, version=version, fields=(name.encode(),)))


def decode_opened(frame: Frame) -> int:
    """0, or an errno."""
    if frame.kind != Kind.OPENED or len(frame.fields) != 1:
        raise FrameError(f"a frame of kind {frame.kind} with {len(frame.fields)} fields instead of a directory")
    return _number(frame.fields[0], _MAX_ERRNO, "errno")


def encode_done(done: Ran, *, version: int = VERSION) -> bytes:
    """Of a long log the end is kept: it says why something failed."""
    room = MAX_PAYLOAD - _ANSWER_FIELDS * (_SIZE.size + 1) - len(done.stdout)
    log = done.stderr if len(done.stderr) <= room else done.stderr[len(done.stderr) - max(room, 0) :]
    return encode(Frame(kind=Kind.DONE, version=version, fields=(str(done.exit).encode(), done.stdout, log)))


def _number(text: bytes, most: int, what: str) -> int:
    if not text.isdigit() or len(text) > len(str(most)) or int(text) > most:
        raise FrameError(f"{text[:16]!r} is no {what}")
    return int(text)


def _text(data: bytes, what: str) -> str:
    """UTF-8 without NUL, which neither an environment variable nor a path can hold."""
    if 0 in data:
        raise FrameError(f"{what} holds a NUL byte")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"{what} is not UTF-8") from error
