"""How long the client waits, how much it takes and gives, and what it says when a daemon or a stand-in is slower."""

import errno
import fcntl
import shutil
import socket
import subprocess
import termios
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kernel.cniclient import (
    answering,
    compiled,
    done_frame,
    error,
    read_frame,
    run,
    run_frame,
    server,
)
from tests.support.waiting import eventually
from weft.wire import frames
from weft.wire.frames import Kind


class TestLimits:
    """What the daemon keeps waiting: nothing waits for ever. The limits are seconds here."""

    @pytest.fixture
    def impatient(self, clients: Path, hasty: Path) -> Path:
        shutil.copy2(hasty, clients / "bridge")
        return clients / "bridge"

    @pytest.fixture
    def short(self, clients: Path) -> Path:
        """A client that has three seconds in all."""
        compiled(clients, "musl-gcc", "-DTOTAL_SECONDS=3", "-static")
        return clients / "bridge"

    @pytest.mark.parametrize("size", [2, 900_000])
    def test_a_backlog_that_stays_full(self, impatient: Path, tmp_path: Path, size: int):
        with ExitStack() as sockets:
            listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(tmp_path / "sock"))
            listener.listen(0)
            others = [sockets.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
            for other in others:
                other.setblocking(False)
            assert errno.EAGAIN in [other.connect_ex(str(tmp_path / "sock")) for other in others]
            done = run(impatient, b"x" * size, WEFT_CNI_SOCKET=str(tmp_path / "sock"))
        assert done.stdout == b"stand-in: bridge\n" + b"x" * size

    @pytest.mark.parametrize("size", [2, 900_000])
    def test_a_daemon_that_is_stopped(self, impatient: Path, tmp_path: Path, size: int):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "sock"))
            listener.listen()
            done = run(impatient, b"x" * size, WEFT_CNI_SOCKET=str(tmp_path / "sock"))
        assert done.stdout == b"stand-in: bridge\n" + b"x" * size

    def test_a_daemon_that_wants_to_begin_too_late_cannot(self, impatient: Path, tmp_path: Path):
        refused: list[Exception] = []

        def serve(connection: socket.socket) -> None:
            read_frame(connection)
            assert not connection.recv(1), "it has not given up"
            with pytest.raises(BrokenPipeError) as error:
                connection.sendall(frames.encode_begun())
            refused.append(error.value)

        with server(tmp_path / "sock", serve) as env:
            assert run(impatient, b"{}", **env).stdout == b"stand-in: bridge\n{}"
        assert refused

    @pytest.mark.parametrize("part", [b"", done_frame(b"0", b"out", b"")[:-1]])
    @pytest.mark.parametrize("command, then", [("ADD", "call DEL"), ("DEL", "call it again")])
    def test_a_daemon_that_does_not_answer(self, impatient: Path, tmp_path: Path, command: str, then: str, part: bytes):
        def serve(connection: socket.socket) -> None:
            answering(part)(connection)
            connection.recv(1)

        with server(tmp_path / "sock", serve) as env:
            message = error(run(impatient, b"{}", **env, CNI_COMMAND=command))
        assert f"weftd has begun {command} and not answered in time: {then}" in message

    def test_a_daemon_that_is_stopped_while_it_says_that_it_begins(self, impatient: Path, tmp_path: Path):
        """A part of its first word is enough: it may have begun, so nothing is done here."""

        def serve(connection: socket.socket) -> None:
            answering(frames.encode_begun()[:3], begun=False)(connection)
            connection.recv(1)

        with server(tmp_path / "sock", serve) as env:
            assert "call DEL" in error(run(impatient, b"{}", **env))

    def test_an_answer_may_take_longer_than_the_beginning(self, impatient: Path, tmp_path: Path):
        def serve(connection: socket.socket) -> None:
            answering()(connection)
            threading.Event().wait(1.5)
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(impatient, b"{}", **env).stdout == b"fine"

    def test_one_that_asks_for_ever_instead_of_answering(self, short: Path, tmp_path: Path):
        def serve(connection: socket.socket) -> None:
            answering()(connection)
            for _ in range(200):  # a minute
                connection.sendall(frames.encode_open("none"))
                assert read_frame(connection)
                threading.Event().wait(0.3)
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert "weftd has begun ADD and not answered in time" in error(run(short, b"{}", **env))

    def test_servers_that_are_lost_and_then_hang(self, short: Path, tmp_path: Path):
        """The second one would be waited for 15 s, and then stood in for."""
        asked: list[int] = []

        def serve(connection: socket.socket) -> None:
            asked.append(1)
            if len(asked) == 1:
                answering()(connection)
            else:
                read_frame(connection)
                assert not connection.recv(1), "it has not given up"

        with server(tmp_path / "sock", serve) as env:
            message = error(run(short, b"{}", **env))
        assert "nor does its stand-in (no time left)" in message
        assert len(asked) == 2

    def test_the_time_of_a_delegate_is_its_own(self, short: Path, tmp_path: Path):
        (tmp_path / "slow").write_text("#!/bin/sh\nexec /bin/sleep 4\n")
        (tmp_path / "slow").chmod(0o755)

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"slow", b""))(connection)
            assert read_frame(connection).kind == Kind.RAN
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(short, b"{}", **env, CNI_PATH=str(tmp_path)).stdout == b"fine"

    def test_a_delegates_answer_that_nobody_reads(self, impatient: Path, tmp_path: Path):
        (tmp_path / "loud").write_text("#!/bin/sh\nexec /usr/bin/head -c 900000 /dev/zero\n")
        (tmp_path / "loud").chmod(0o755)
        over = threading.Event()

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"loud", b""))(connection)
            over.wait(20)

        with server(tmp_path / "sock", serve) as env:
            message = error(run(impatient, b"{}", **env, CNI_PATH=str(tmp_path)))
            over.set()
        assert "could not be passed to it" in message

    def test_input_may_come_late(self, clients: Path, tmp_path: Path):
        """The daemon allows some seconds for a request: it is not asked before the request is complete."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "sock"))
            listener.listen()
            listener.setblocking(False)
            env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "sock")}
            with subprocess.Popen([clients / "bridge"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
                assert it.stdin
                it.stdin.write(b"{")
                it.stdin.flush()
                eventually(lambda: fcntl.ioctl(it.stdin, termios.FIONREAD, bytes(4)) == bytes(4))
                with pytest.raises(BlockingIOError):
                    listener.accept()
                it.stdin.write(b"}")
                it.stdin.close()
                listener.settimeout(10)
                connection, _ = listener.accept()
                with connection:
                    assert frames.decode_call(read_frame(connection)).stdin == b"{}"
                    connection.sendall(done_frame(b"0", b"fine", b""))
                assert it.stdout
                assert it.stdout.read() == b"fine"
