"""The client where no daemon answers: which interpreter it starts, with what, and whether a daemon is coming."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from struct import unpack
from typing import Any

import pytest

from tests.kernel.cniclient import (
    answering,
    done_frame,
    error,
    read_frame,
    run,
    server,
)
from tests.support.waiting import in_time
from weft.wire import frames
from weft.wire.frames import Frame


class TestStandIn:
    def test_without_a_daemon_one_is_started(self, clients: Path, tmp_path: Path):
        done = run(clients / "bridge", b'{"a": 1}', WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert done.stdout == b'stand-in: bridge\n{"a": 1}'

    def test_a_socket_that_nobody_listens_on(self, clients: Path, tmp_path: Path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(tmp_path / "sock"))
        assert run(clients / "bridge", WEFT_CNI_SOCKET=str(tmp_path / "sock")).stdout.startswith(b"stand-in: bridge")

    def test_a_link_leads_to_the_directory_of_the_program(self, clients: Path, tmp_path: Path):
        (tmp_path / "flannel").symlink_to(clients / "bridge")
        done = run(tmp_path / "flannel", WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert done.stdout == b"stand-in: flannel\n"

    @pytest.mark.parametrize("answer", [b"", b"\0", b"\0\0\0\0\0\2\0\4", frames.encode(Frame(kind=9, fields=()))])
    def test_never_once_begun(self, clients: Path, tmp_path: Path, answer: bytes):
        with server(tmp_path / "sock", answering(answer)) as env:
            assert "weftd" in error(run(clients / "bridge", b"{}", **env))

    @pytest.mark.parametrize("answer", [b"\0\0\0\0\0\2\0\4", frames.encode(Frame(kind=9, fields=())), b"\xff" * 8])
    def test_never_with_a_daemon_that_breaks_the_rules(self, clients: Path, tmp_path: Path, answer: bytes):
        with server(tmp_path / "sock", answering(answer, begun=False)) as env:
            assert "weftd" in error(run(clients / "bridge", b"{}", **env))

    @pytest.mark.parametrize("size", [0, 1, 1000, 900_000, (1 << 20) + 1])
    @pytest.mark.parametrize("serve", [lambda _: None, lambda it: it.recv(100), answering(begun=False)])
    def test_a_daemon_that_ends_before_it_has_begun(
        self, clients: Path, tmp_path: Path, size: int, serve: Callable[[socket.socket], None]
    ):
        with server(tmp_path / "sock", serve) as env:
            for _ in range(5):
                done = run(clients / "bridge", b"x" * size, **env)
                too_much = size > 1 << 20
                assert done.stdout == b"stand-in: bridge\n" + b"x" * size * (not too_much)
                assert done.stderr == b"more than 1 MiB" * too_much

    def test_an_older_daemon_that_refuses_our_version(self, clients: Path, tmp_path: Path):
        refusal = done_frame(b"1", b'{"code": 11}', b"", version=frames.VERSION - 1)
        with server(tmp_path / "sock", answering(refusal, begun=False)) as env:
            assert run(clients / "bridge", b"{}", **env).stdout == b"stand-in: bridge\n{}"

    def test_a_refusal_is_an_answer(self, clients: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"1", b"no", b""), begun=False)) as env:
            assert run(clients / "bridge", b"{}", **env).stdout == b"no"

    @pytest.mark.parametrize(
        "name, flags, problem",
        [("", os.O_RDONLY, b"Is a directory"), ("written", os.O_WRONLY | os.O_CREAT, b"Bad file descriptor")],
    )
    def test_an_input_that_cannot_be_read_is_told_as_that(
        self, clients: Path, tmp_path: Path, name: str, flags: int, problem: bytes
    ):
        stdin = os.open(tmp_path / name, flags)
        env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]}
        command = [clients / "bridge"]
        done = subprocess.run(command, env=env, stdin=stdin, capture_output=True, check=True, timeout=200)
        os.close(stdin)
        assert (done.stdout, done.stderr) == (b"stand-in: bridge\n", problem)

    def test_an_input_that_is_too_large_is_told_as_that(self, clients: Path, tmp_path: Path):
        done = run(clients / "bridge", b"x" * (frames.MAX_PAYLOAD + 1), WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert (done.stdout, done.stderr) == (b"stand-in: bridge\n", b"more than 1 MiB")

    def test_an_input_that_breaks_off_is_not_taken_for_a_whole_one(self, clients: Path, tmp_path: Path):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b'{"cniVersion": "1.0.0"}')
            theirs.setblocking(False)  # the first read gives something, the second an error
            env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]}
            done = subprocess.run([clients / "bridge"], env=env, stdin=theirs, capture_output=True, check=False)
        assert done.stdout == b"stand-in: bridge\n"
        assert b"temporarily unavailable" in done.stderr

    @pytest.mark.parametrize(
        "make, problem",
        [
            (lambda path: path.chmod(0o666), "writable by others"),
            (lambda path: path.chmod(0o664), "writable by others"),
            (lambda path: os.chown(path, 1, 0), "not owned by root"),
            (lambda path: path.write_text("bin/python\n"), "does not hold one absolute path"),
            (lambda path: path.write_text(""), "does not hold one absolute path"),
            (lambda path: path.write_text("/bin/echo\n/bin/echo\n"), "does not hold one absolute path"),
            (lambda path: path.write_bytes(b"/bin/echo\0x"), "does not hold one absolute path"),
            (lambda path: path.write_text("/" * 5000), "too long"),
            (lambda path: path.rename(path.with_name("x")).parent.joinpath(".weft-python").symlink_to("x"), "link"),
            (lambda path: path.unlink() or os.mkfifo(path), "not a regular file"),
            (lambda path: path.unlink() or path.mkdir(), "not a regular file"),
            (lambda path: path.write_text("/none/python"), "/none/python, named in"),
        ],
    )
    def test_a_settings_file_that_cannot_be_trusted_is_named(
        self, clients: Path, tmp_path: Path, make: Callable[[Path], Any], problem: str
    ):
        make(clients / ".weft-python")
        message = error(run(clients / "bridge", WEFT_CNI_SOCKET=str(tmp_path / "none")))
        assert problem in message
        assert str(clients / ".weft-python") in message


class TestComing:
    """Where no Python has weft, as where the daemon is a pod, nothing stands in for it: it is waited for."""

    @pytest.fixture
    def alone(self, tmp_path: Path, hasty: Path) -> Path:
        return Path(shutil.copy2(hasty, tmp_path / "bridge"))

    @pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC"])
    def test_a_daemon_that_comes_is_asked(self, program: Path, tmp_path: Path, command: str):
        with ExitStack() as coming, ThreadPoolExecutor() as pool:
            lone = Path(shutil.copy2(program, tmp_path / "bridge"))
            path = tmp_path / "run" / "sock"
            call = pool.submit(run, lone, b"{}", CNI_COMMAND=command, WEFT_CNI_SOCKET=str(path))
            with pytest.raises(TimeoutError):
                call.result(0.3)
            path.parent.mkdir()
            coming.enter_context(server(path, answering(done_frame(b"0", b"fine", b""))))
            assert call.result(10).stdout == b"fine"

    def test_one_that_does_not_come_is_an_error_that_says_what_to_look_at(self, alone: Path, tmp_path: Path):
        message = error(run(alone, WEFT_CNI_SOCKET=str(tmp_path / "none")))
        assert message == (
            "weftd does not answer (No such file or directory), and without "
            f"{tmp_path}/.weft-python nothing stands in for it: see whether it runs"
        )

    def test_a_socket_that_a_killed_daemon_has_left_is_waited_for(self, program: Path, tmp_path: Path):
        lone = Path(shutil.copy2(program, tmp_path / "bridge"))
        path = tmp_path / "sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        with ThreadPoolExecutor() as pool:
            call = pool.submit(run, lone, b"{}", WEFT_CNI_SOCKET=str(path))
            with pytest.raises(TimeoutError):
                call.result(0.3)
            path.unlink()
            with server(path, answering(done_frame(b"0", b"fine", b""))):
                assert call.result(10).stdout == b"fine"

    def test_status_asks_how_it_is_now(self, program: Path, tmp_path: Path):
        lone = Path(shutil.copy2(program, tmp_path / "bridge"))
        began = time.monotonic()
        error(run(lone, CNI_COMMAND="STATUS", WEFT_CNI_SOCKET=str(tmp_path / "none")))
        assert in_time(began, 10)  # half of `COMING_SECONDS`

    def test_one_that_hangs_up_or_is_of_the_last_version_is_about_to_go(self, program: Path, tmp_path: Path):
        """It is asked until its successor is there, with the same descriptors each time."""
        lone = Path(shutil.copy2(program, tmp_path / "bridge"))
        open_there: list[int] = []

        def serve(connection: socket.socket) -> None:
            read_frame(connection)
            pid, _, _ = unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            open_there.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
            if len(open_there) == 3:
                connection.sendall(frames.encode_begun() + done_frame(b"0", b"fine", b""))
            elif len(open_there) == 2:
                connection.sendall(done_frame(b"1", b"", b"", version=frames.VERSION - 1))

        with server(tmp_path / "sock", serve) as where:
            assert run(lone, b"{}", **where).stdout == b"fine"
        assert len(open_there) == 3
        assert len(set(open_there)) == 1

    def test_one_that_hangs_up_each_time_is_an_error(self, alone: Path, tmp_path: Path):
        with server(tmp_path / "sock", lambda _: None) as where:
            assert "nothing stands in for it" in error(run(alone, b"{}", **where))


class TestInterpreter:
    """Whoever can exchange what `.weft-python` names is root; nothing of it is looked at while a daemon answers."""

    @pytest.fixture
    def python(self, clients: Path, tmp_path: Path) -> Path:
        """An interpreter behind links: `way/link` leads to `a`, which has `b/python`."""
        (tmp_path / "a" / "b").mkdir(parents=True)
        shutil.copy2(clients / "python", tmp_path / "a" / "b" / "python")
        (tmp_path / "way").mkdir()
        (tmp_path / "way" / "link").symlink_to("../way/../a")
        (tmp_path / "absolute").symlink_to(tmp_path / "way" / "link" / "b")
        self.name(clients, tmp_path / "absolute" / "python")
        return tmp_path / "absolute" / "python"

    def name(self, clients: Path, python: Path) -> None:
        (clients / ".weft-python").write_text(f"{python}\n")

    def without(self, clients: Path, directory: Path) -> "subprocess.CompletedProcess[bytes]":
        return run(clients / "bridge", b"{}", WEFT_CNI_SOCKET=str(directory / "none"))

    @pytest.mark.usefixtures("python")
    def test_of_root_all_the_way(self, clients: Path, tmp_path: Path):
        assert self.without(clients, tmp_path).stdout == b"stand-in: bridge\n{}"

    @pytest.mark.usefixtures("python")
    @pytest.mark.parametrize("place", ["a/b/python", "a/b", "a", "way", "way/link", "absolute"])
    def test_of_another_user_at_any_place(self, clients: Path, tmp_path: Path, place: str):
        os.chown(tmp_path / place, 65534, 65534, follow_symlinks=False)
        message = error(self.without(clients, tmp_path))
        assert message.endswith(f"cannot be used: {tmp_path / place}: not owned by root")
        assert f"{tmp_path}/absolute/python, named in {clients}/.weft-python" in message

    @pytest.mark.usefixtures("python")
    @pytest.mark.parametrize("mode", [0o777, 0o775])
    @pytest.mark.parametrize("place", ["a/b/python", "a/b", "a", "way"])
    def test_that_others_may_write_to(self, clients: Path, tmp_path: Path, place: str, mode: int):
        (tmp_path / place).chmod(mode)
        message = error(self.without(clients, tmp_path))
        assert message.endswith(f"cannot be used: {tmp_path / place}: writable by others than root")

    @pytest.mark.usefixtures("python")
    def test_the_sticky_bit_protects_what_is_in_a_directory_and_no_file(self, clients: Path, tmp_path: Path):
        (tmp_path / "a").chmod(0o1777)
        assert self.without(clients, tmp_path).stdout == b"stand-in: bridge\n{}"
        (tmp_path / "a" / "b" / "python").chmod(0o1777)
        assert "a/b/python: writable by others" in error(self.without(clients, tmp_path / "another"))

    @pytest.mark.usefixtures("python")
    def test_nothing_is_looked_at_while_a_daemon_answers(self, clients: Path, tmp_path: Path):
        (tmp_path / "a").chmod(0o777)
        with server(tmp_path / "sock", answering(done_frame(b"0", b"fine", b""))) as env:
            assert run(clients / "bridge", b"{}", **env).stdout == b"fine"

    def test_a_name_that_json_has_to_escape_is_told_as_it_is(self, clients: Path, tmp_path: Path):
        odd = os.fsencode(tmp_path) + b'/back\\slash "quoted" \x7f\xff'
        (clients / ".weft-python").write_bytes(odd)
        assert f"{odd.decode('latin-1')}, named in" in error(self.without(clients, tmp_path))

    def test_links_without_end(self, clients: Path, tmp_path: Path):
        (tmp_path / "x").symlink_to("x")
        self.name(clients, tmp_path / "x")
        assert "ymbolic link" in error(self.without(clients, tmp_path))

    @pytest.mark.parametrize("links, allowed", [(40, True), (41, False)])
    def test_as_many_links_as_the_kernel_follows(self, clients: Path, tmp_path: Path, links: int, allowed: bool):
        (tmp_path / "link0").symlink_to(clients / "python")
        for number in range(1, links):
            (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
        self.name(clients, tmp_path / f"link{links - 1}")
        assert (self.without(clients, tmp_path).returncode == 0) == allowed

    def test_a_way_that_links_make_too_long(self, clients: Path, tmp_path: Path):
        (tmp_path / "long").symlink_to("./" * 2043 + "bin")
        self.name(clients, tmp_path / "long" / "python")
        assert "too long" in error(self.without(clients, tmp_path)).lower()

    def test_in_a_users_own_namespace_what_is_of_outside_counts_as_roots(self, clients: Path):
        """As in a lab of an ordinary user: all of outside has the number of the overflow user there."""
        with tempfile.TemporaryDirectory() as folder:  # a way that this user may go
            shutil.copytree(clients, folder, dirs_exist_ok=True)
            (Path(folder) / "python").write_text("#!/bin/sh\necho started >&2\n")
            for path in (Path(folder), *Path(folder).iterdir()):
                os.chown(path, 1000, 1000)
            self.name(Path(folder), Path(folder) / "python")
            done = subprocess.run(
                ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "unshare", "-Ur", f"{folder}/bridge"],
                env={"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": f"{folder}/run/none", "PATH": os.environ["PATH"]},
                input=b"{}",
                capture_output=True,
                check=False,
            )
        assert error(done).endswith("its stand-in has ended: started")

    def test_in_a_namespace_with_several_users_none_of_them_counts_as_root(self, clients: Path, tmp_path: Path):
        self.name(clients, clients / "python")
        os.chown(clients / "python", 5, 5)
        holder = subprocess.Popen(
            ["unshare", "--user", "sh", "-c", "echo there; exec sleep 60"], stdout=subprocess.PIPE
        )
        with holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{holder.pid}/{name}").write_text("0 0 10")
            done = subprocess.run(
                ["nsenter", f"--user=/proc/{holder.pid}/ns/user", clients / "bridge"],
                env={"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]},
                input=b"{}",
                capture_output=True,
                check=False,
            )
            holder.kill()
        assert error(done).endswith(f"cannot be used: {clients}/python: not owned by root")
