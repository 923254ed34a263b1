"""The client's side of the protocol, which the product has in C alone; for clients that break its rules, too."""

import os
import socket
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.wire import frames
from weft.wire.cni import Ran

SECONDS = 60


def exchange(path: Path, data: bytes, *, fds: Sequence[int] = (), shutdown: bool = False) -> Ran | None:
    """Send bytes as they are and return the answer; None if the connection ends without one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SECONDS)
        sock.connect(str(path))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        sent = sock.sendmsg([data], rights)
        with suppress(BrokenPipeError):  # it may have seen enough
            sock.sendall(data[sent:])
        if shutdown:
            sock.shutdown(socket.SHUT_WR)
        return read_done(sock)


def read_done(sock: socket.socket) -> Ran | None:
    """Read the answer, after the word that the request is begun if that comes."""
    reader = frames.FrameReader()
    try:
        while data := sock.recv(frames.HEADER_SIZE if reader.empty else 1 << 16):
            frame = reader.feed(data)
            if frame is not None and frame.kind != frames.Kind.BEGUN:
                return decode_done(frame)
    except ConnectionResetError:
        pass
    return None


def read_begun(sock: socket.socket) -> None:
    """Read the word that the request is begun, and nothing behind it."""
    assert sock.recv(frames.HEADER_SIZE) == frames.encode_begun()


@contextmanager
def descriptors(container: int | None = None, **others: int) -> Iterator[dict[str, int]]:
    """The descriptors of a good client in this process's namespace, by name; `others` take the place of some."""
    opened = {
        "own": os.open("/proc/thread-self/ns/net", os.O_RDONLY),
        "root": os.open("/", os.O_PATH | os.O_DIRECTORY),
    }
    if container is not None:
        opened["netns"] = os.dup(container)
    opened |= {name: os.dup(fd) for name, fd in others.items()}
    try:
        yield opened
    finally:
        for fd in opened.values():
            os.close(fd)


def call(
    env: Mapping[str, str],
    named: Mapping[str, int],
    *,
    plugin: str = "bridge",
    stdin: bytes = b"{}",
    version: int = frames.VERSION,
) -> bytes:
    """A frame that names these descriptors."""
    return encode_call(frames.Call(plugin=plugin, stdin=stdin, env=env, descriptors=tuple(named)), version=version)


def encode_call(call: frames.Call, *, version: int = frames.VERSION) -> bytes:
    """Return the frame of a call, as the client sends it."""
    texts = (call.plugin, " ".join(call.descriptors), call.netns_problem, call.stdin_error)
    variables = (f"{name}={value}".encode() for name, value in call.env.items())
    return frames.encode(
        frames.Frame(
            kind=frames.Kind.CALL, version=version, fields=(*(text.encode() for text in texts), call.stdin, *variables)
        )
    )


def decode_run(frame: frames.Frame) -> frames.Run:
    """Read what a client is asked to run. `FrameError` if the frame does not say so."""
    if frame.kind != frames.Kind.RUN or len(frame.fields) < 2:
        raise frames.FrameError(
            f"a frame of kind {frame.kind} with {len(frame.fields)} fields is no order to run something"
        )
    name, stdin, *changes = frame.fields
    wanted: dict[str, str] = {}
    for change in changes:
        variable, _, wanted_value = frames._text(change, "a change of the environment").partition("=")
        wanted[variable] = wanted_value
    return frames.Run(name=frames._text(name, "the delegate's name"), stdin=stdin, changes=wanted)


def encode_ran(ran: Ran | None) -> bytes:
    """Return the client's frame after a delegate's end; None is one that it has not found."""
    fields = (b"missing", b"", b"") if ran is None else (str(ran.exit).encode(), ran.stdout, ran.stderr)
    return frames.encode(frames.Frame(kind=frames.Kind.RAN, fields=fields))


def encode_opened(number: int) -> bytes:
    """Return the client's frame about a directory that it was to open; with 0 a descriptor goes along."""
    return frames.encode(frames.Frame(kind=frames.Kind.OPENED, fields=(str(number).encode(),)))


def decode_done(frame: frames.Frame) -> Ran:
    """Read the daemon's answer. `FrameError` if the frame is none."""
    if frame.kind != frames.Kind.DONE or len(frame.fields) != 3:
        raise frames.FrameError(f"a frame of kind {frame.kind} with {len(frame.fields)} fields is no answer")
    status, stdout, stderr = frame.fields
    return Ran(exit=frames._number(status, 255, "exit status"), stdout=stdout, stderr=stderr)
