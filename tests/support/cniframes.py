"""A CNI client that does not keep to the rules, and a server that does not either."""

import os
import socket
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.wire import frames

SECONDS = 10


def exchange(path: Path, data: bytes, *, fds: Sequence[int] = (), shutdown: bool = False) -> frames.Done | None:
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


def read_done(sock: socket.socket) -> frames.Done | None:
    reader = frames.Reader()
    try:
        while data := sock.recv(1 << 16):
            frame = reader.feed(data)
            if frame is not None:
                return frames.decode_done(frame)
    except ConnectionResetError:
        pass
    return None


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
    env: Mapping[str, str], named: Mapping[str, int], *, stdin: bytes = b"{}", version: int = frames.VERSION
) -> bytes:
    """A frame that names these descriptors."""
    return frames.encode_call(
        frames.Call(plugin="bridge", stdin=stdin, env=env, descriptors=tuple(named)), version=version
    )
