"""What the client sends to a daemon and what it makes of its answers; which daemons it refuses."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import termios
from contextlib import suppress
from pathlib import Path
from struct import unpack

import pytest

from tests.kernel.cniclient import (
    answering,
    done_frame,
    error,
    read_frame,
    run,
    run_frame,
    server,
)
from tests.support.waiting import HANGS, eventually
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Frame, Kind


class TestDaemonsItRefuses:
    def test_one_that_is_not_root(self, clients: Path, tmp_path: Path):
        directory = tmp_path / "theirs"
        directory.mkdir()
        for parent in (directory, *directory.parents[:-2]):
            parent.chmod(parent.stat().st_mode | 0o001)
        directory.chmod(0o777)
        script = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True);"
            "c, _ = s.accept(); sys.stdout.write(repr(c.recv(100)))"
        )
        command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "/usr/bin/python3", "-c", script]
        with subprocess.Popen([*command, str(directory / "sock")], stdout=subprocess.PIPE) as theirs:
            assert theirs.stdout
            theirs.stdout.readline()
            message = error(run(clients / "bridge", b"secret", WEFT_CNI_SOCKET=str(directory / "sock")))
            assert message == "the daemon's socket is not served by root"
            assert theirs.stdout.read() == b"b''", "it was told something all the same"


class TestAnswers:
    def test_the_answer_is_printed(self, clients: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"7", b"out", b"err"))) as env:
            done = run(clients / "bridge", b"{}", **env)
        assert (done.returncode, done.stdout, done.stderr) == (7, b"out", b"err")

    def test_a_frame_may_have_all_the_fields_that_fit(self, clients: Path, tmp_path: Path):
        order = run_frame(b"absent", b"", *(b"V%d=" % number for number in range(frames.MAX_FIELDS - 2)))
        with server(tmp_path / "sock", answering(order, done_frame(b"0", b"fine", b""))) as env:
            assert run(clients / "bridge", b"{}", **env).stdout == b"fine"

    def test_what_is_behind_the_last_field_makes_a_frame_none(self, clients: Path, tmp_path: Path):
        fields = b"".join(len(field).to_bytes(4, "big") + field for field in (b"0", b"out"))
        payload = fields + bytes(2)  # with what stood there before, this could be the length of a third
        header = len(payload).to_bytes(4, "big") + frames.VERSION.to_bytes(2, "big") + Kind.DONE.to_bytes(2, "big")
        with server(tmp_path / "sock", answering(header + payload)) as env:
            assert "answer" in error(run(clients / "bridge", b"{}", **env))

    def test_a_refusal_of_another_version_is_printed(self, clients: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"1", b"no", b"", version=9))) as env:
            assert run(clients / "bridge", b"{}", **env).stdout == b"no"

    def test_an_order_of_another_version_is_not_carried_out(self, clients: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(run_frame(b"x", b"", version=9))) as env:
            assert "another version" in error(run(clients / "bridge", b"{}", **env))

    def test_without_a_command_stdin_is_left_alone(self, clients: Path, tmp_path: Path):
        seen: list[frames.Call] = []

        def serve(connection: socket.socket) -> None:
            seen.append(frames.decode_call(read_frame(connection)))
            connection.sendall(done_frame(b"0", b"", b"about"))

        with server(tmp_path / "sock", serve) as env:
            read, write = os.pipe()
            done = subprocess.run(
                [clients / "bridge"], env=env, stdin=read, capture_output=True, timeout=HANGS, check=True
            )
            os.close(read)
            os.close(write)
        assert done.stderr == b"about"
        assert seen[0].plugin == "bridge"
        assert seen[0].descriptors == ("own", "root")

    def test_missing_standard_streams_are_no_descriptors_of_ours(self, clients: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"0", b"out", b"err"))) as env:
            script = 'exec "$0" <&- >&- 2>&-'
            done = subprocess.run(
                ["sh", "-c", script, str(clients / "bridge")],
                env={"CNI_COMMAND": "ADD", **env},
                timeout=HANGS,
                check=False,
            )
        assert done.returncode == 0


@pytest.mark.usefixtures("program")
class TestRequests:
    def test_an_empty_name_of_the_socket_is_none(self, program: Path, tmp_path: Path):
        there = 'mount -t tmpfs weft /run; mkdir /run/weft; mount --bind "$1" /run/weft; exec "$2"'
        with server(tmp_path / "cni.sock", answering(done_frame(b"0", b"fine", b""))):
            done = subprocess.run(
                ["unshare", "--mount", "sh", "-ec", there, "sh", tmp_path, program],
                env={"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": "", "PATH": os.environ["PATH"]},
                input=b"{}",
                capture_output=True,
                check=False,
            )
        assert done.stdout == b"fine"

    def test_a_name_that_no_plugin_has_is_told_at_once(self, program: Path, tmp_path: Path):
        for size, asked in ((63, True), (64, False)):
            shutil.copy2(program, tmp_path / ("x" * size))
            with server(tmp_path / f"sock{size}", answering(done_frame(b"0", b"asked", b""))) as env:
                done = run(tmp_path / ("x" * size), b"{}", **env)
            assert done.stdout == b"asked" if asked else error(done) == "unknown plugin name"

    def test_one_that_a_signal_cuts_in_two_arrives_whole(self, program: Path, tmp_path: Path):
        heard: list[Frame] = []
        descriptors: list[int] = []

        def serve(connection: socket.socket) -> None:
            pid, _, _ = unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            eventually(lambda: fcntl.ioctl(connection, termios.FIONREAD, bytes(4)) != bytes(4))
            # It sends more than fits; where it has a limit for that, a stop ends the system call (signal(7)).
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED)
            os.kill(pid, signal.SIGCONT)
            reader = frames.FrameReader()
            while not heard:
                data, got, _, _ = socket.recv_fds(connection, 1 << 16, 16)
                descriptors.extend(got)
                heard.extend(filter(None, [reader.feed(data)]))
            connection.sendall(frames.encode_begun() + done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(program, b"x" * 900_000, **env, CNI_ARGS="last").stdout == b"fine"
        assert heard[0].fields[4] == b"x" * 900_000
        assert heard[0].fields[-1] == b"CNI_ARGS=last"
        assert len(descriptors) == len(frames.decode_call(heard[0]).descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def test_variables_of_cni_are_sent_and_no_others(self, program: Path, tmp_path: Path):
        heard: list[frames.Call] = []

        def serve(connection: socket.socket) -> None:
            heard.append(frames.decode_call(read_frame(connection)))
            connection.sendall(done_frame(b"0", b"", b""))

        with server(tmp_path / "sock", serve) as env:
            run(program, b"{}", **env, CNI_ODD="sent", CNIX="kept", CNI="kept")
        assert heard[0].env.keys() & {"CNI_ODD", "CNIX", "CNI"} == {"CNI_ODD"}

    @pytest.mark.parametrize("size, fits", [(500_000, True), (600_000, False)])
    def test_the_variables_may_be_half_of_one(self, program: Path, tmp_path: Path, size: int, fits: bool):
        variables = {f"CNI_{number}": "x" * (size // 10) for number in range(10)}
        with server(tmp_path / "sock", answering(done_frame(b"0", b"fine", b""))) as env:
            done = run(program, b"{}", **env, **variables)
        if fits:
            assert done.stdout == b"fine"
        else:
            answer = json.loads(done.stdout)
            assert (answer["code"], "too large" in answer["msg"]) == (4, True)

    def test_a_delegate_whose_reader_is_gone_ends_as_any_program(self, program: Path, tmp_path: Path):
        """The client itself ignores SIGPIPE."""
        (tmp_path / "ends").write_text("#!/bin/sh\n(kill -PIPE $$); echo survived\n")
        (tmp_path / "ends").chmod(0o755)
        said: list[bytes] = []

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"ends", b""))(connection)
            said.append(frames.decode_ran(read_frame(connection)).stdout)
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(program, b"{}", CNI_PATH=str(tmp_path), **env).stdout == b"fine"
        assert said == [b""]

    @pytest.mark.parametrize(
        "script, expected",
        [
            ("exec yes", (125, b"", b"prints without end")),
            ("exec yes >&2", (125, b"", b"prints without end")),
            ("sleep 300 & echo fine; exit 3", (3, b"fine\n", b"")),
            ("sleep 300 >/dev/null & echo fine >&2", (0, b"", b"fine\n")),
            ("exec >&- 2>&-; sleep 0.3; exit 7", (7, b"", b"")),
        ],
    )
    def test_a_delegate_is_waited_for_and_nobody_else(
        self, program: Path, tmp_path: Path, script: str, expected: tuple[int, bytes, bytes]
    ):
        """The daemon's limit for delegates is five minutes: longer than a runtime waits."""
        (tmp_path / "odd").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "odd").chmod(0o755)
        heard: list[Ran | None] = []

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"odd", b""))(connection)
            heard.append(frames.decode_ran(read_frame(connection)))
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as there:
            env = {"CNI_COMMAND": "ADD", "PATH": os.environ["PATH"], **there, "CNI_PATH": str(tmp_path)}
            with subprocess.Popen([program], env=env, stdin=subprocess.PIPE, process_group=0) as client:
                client.communicate(b"{}", timeout=200)
                with suppress(ProcessLookupError):
                    os.killpg(client.pid, signal.SIGKILL)  # what the delegate has left
        [ran] = heard
        assert ran is not None
        status, out, log = expected
        assert (ran.exit, ran.stdout) == (status, out)
        assert log in ran.stderr
        assert bool(ran.stderr) is bool(log)

    def test_a_delegate_is_looked_for_in_cni_path_alone(self, program: Path, tmp_path: Path):
        """What follows CNI_PATH in memory is the next variable, which is no directory of it."""
        (tmp_path / "NEXT=1").mkdir()
        (tmp_path / "NEXT=1" / "plug").write_text("#!/bin/sh\n")
        (tmp_path / "NEXT=1" / "plug").chmod(0o755)
        heard: list[Frame] = []

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"plug", b""))(connection)
            heard.append(read_frame(connection))
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as there:
            env = {"CNI_COMMAND": "ADD", **there, "CNI_PATH": "/nowhere", "NEXT": "1"}
            subprocess.run([program], env=env, input=b"{}", capture_output=True, cwd=tmp_path, timeout=200, check=True)
        assert heard[0].fields[0] == b"missing"
