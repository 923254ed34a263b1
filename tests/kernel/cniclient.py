"""The client in C, built and run by tests, and daemons for it that say what a test wants."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.checkout import CHECKOUT
from weft.cni import build
from weft.wire import frames
from weft.wire.frames import Frame, Kind

SOURCE = Path(build.__file__).parent / "client"
SANITIZE = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
# Any fault that a sanitizer sees ends the client with 99.
SANITIZED = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "exitcode=99:print_stacktrace=1"}


_ALONE_SECONDS = 2


def fake_interpreter(path: Path) -> None:
    """Put a program there that a client may take for an interpreter with weft."""
    path.write_text(f'#!/bin/sh\nPYTHONPATH={CHECKOUT}:{CHECKOUT}/src exec {sys.executable} -m {__name__} "$@"\n')
    path.chmod(0o755)


def compiled(directory: Path, compiler: str, *flags: str, source: Path = SOURCE) -> Path:
    """Build the client with another compiler, not static; what is a warning ends the test."""
    out = directory / "bridge"
    command = ["make", "-B", "-C", str(source), f"OUT={out}", f"CC={compiler}", f"CFLAGS_EXTRA={' '.join(flags)}"]
    done = subprocess.run([*command, "LDFLAGS="], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def check_sane(done: "subprocess.CompletedProcess[bytes]") -> None:
    """Refuse an end by a sanitizer or a signal."""
    assert done.returncode != 99, done.stderr.decode(errors="replace")
    assert done.returncode >= 0, done.returncode
    assert b"Sanitizer" not in done.stderr


def run(program: Path, stdin: bytes = b"", **env: str) -> "subprocess.CompletedProcess[bytes]":
    everything = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0", "CNI_PATH": "/none", **env}
    return subprocess.run([str(program)], env=everything, input=stdin, capture_output=True, timeout=200, check=False)


def error(done: "subprocess.CompletedProcess[bytes]") -> str:
    """The message of error 11, which `done` must be."""
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert sorted(answer) == ["code", "msg"]
    assert answer["code"] == 11
    return str(answer["msg"])


@contextmanager
def server(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[dict[str, str]]:
    """Accept connections and hand each to `serve`; yields the environment that leads there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def work() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError, TimeoutError):
                connection.settimeout(10)
                serve(connection)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield {"WEFT_CNI_SOCKET": str(path)}
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def read_frame(connection: socket.socket) -> Frame:
    reader = frames.FrameReader()
    while data := connection.recv(1 << 16):
        frame = reader.feed(data)
        if frame is not None:
            return frame
    raise ConnectionResetError("the client has gone")


def answering(*answers: bytes, begun: bool = True) -> Callable[[socket.socket], None]:
    """Read the request, say that it is `begun`, then send these bytes as they are."""

    def serve(connection: socket.socket) -> None:
        read_frame(connection)
        for answer in (*[frames.encode_begun()] * begun, *answers):
            connection.sendall(answer)

    return serve


def done_frame(*fields: bytes, version: int = frames.VERSION) -> bytes:
    return frames.encode(Frame(kind=Kind.DONE, version=version, fields=fields))


def run_frame(*fields: bytes, version: int = frames.VERSION) -> bytes:
    return frames.encode(Frame(kind=Kind.RUN, version=version, fields=fields))


def stand_in(listener: socket.socket) -> None:
    """Answer with the plugin's name and its input, and with what is wrong with that, until nobody comes."""
    listener.settimeout(_ALONE_SECONDS)
    while True:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):
            call = frames.decode_call(read_frame(connection))
            connection.sendall(frames.encode_begun())
            out = f"stand-in: {call.plugin}\n".encode() + call.stdin
            connection.sendall(done_frame(b"0", out, call.stdin_error.encode()))


if __name__ == "__main__":
    assert sys.argv[1:4] == ["-I", "-m", "weft.cni"], sys.argv
    with suppress(TimeoutError):
        stand_in(socket.socket(fileno=3))
