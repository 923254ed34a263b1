"""The client in C alone: what it answers itself, what it starts without a daemon, and what it refuses from one."""

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from struct import unpack
from typing import Any

import pytest

from tests.kernel.cniclient import (
    answering,
    compiled,
    done_frame,
    error,
    fake_interpreter,
    read_frame,
    run,
    run_frame,
    server,
)
from tests.support.netns import Netns
from tests.support.waiting import eventually, in_time
from weft.cni import build, registry
from weft.cni.host.sysctls import is_outside
from weft.cni.install.executables import as_plugin, install
from weft.model.value import replace
from weft.wire import cni, frames
from weft.wire.cni import Ran
from weft.wire.frames import Frame, Kind


@pytest.fixture(scope="module")
def program() -> Path:
    built = build.PROGRAM.build()
    assert built, "musl-gcc is missing"
    return built


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with limits of seconds."""
    # Of a large request the stand-in reads the end once its interpreter has started.
    limits = ["-DSEND_SECONDS=4", "-DBEGIN_SECONDS=1", "-DANSWER_SECONDS=4", "-DCOMING_SECONDS=1"]
    return compiled(tmp_path_factory.mktemp("hasty"), "musl-gcc", *limits, "-static")


@pytest.fixture
def bin_dir(tmp_path: Path, program: Path) -> Path:
    """A directory with the client as `bridge`, and an interpreter that tells what a stand-in is asked for."""
    directory = tmp_path / "bin"
    directory.mkdir()
    shutil.copy2(program, directory / "bridge")
    fake_interpreter(directory / "python")
    (directory / ".weft-python").write_text(f"{directory}/python\n")
    return directory


def test_it_is_small_and_needs_nothing(program: Path):
    assert program.stat().st_size <= 51_000
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3 -D_FORTIFY_SOURCE=2"])
def test_no_compiler_has_a_warning(tmp_path: Path, compiler: str, level: str):
    built = compiled(tmp_path, compiler, level)
    assert run(built, CNI_COMMAND="VERSION").stdout == cni.render_versions(cni.VERSIONS)


class TestDescriptors:
    def ask(self, program: Path, path: Path, netns: str) -> dict[str, str]:
        """What the client sends, by name, with what each descriptor is."""
        sent: dict[str, str] = {}

        def serve(connection: socket.socket) -> None:
            data, fds, _, _ = socket.recv_fds(connection, 1 << 20, 64)
            frame = frames.FrameReader().feed(data)
            assert frame
            names = frames.decode_call(frame).descriptors
            sent.update(zip(names, (str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in fds), strict=True))
            for fd in fds:
                os.close(fd)
            connection.sendall(done_frame(b"0", b"", b""))

        with server(path, serve) as env:
            assert run(program, b"{}", CNI_NETNS=netns, **env).returncode == 0
        return sent

    def test_namespaces_the_root_and_a_socket(self, program: Path, tmp_path: Path, netns: Netns):
        sent = self.ask(program, tmp_path / "sock", netns.path)
        assert sent.pop("own") == str(Path("/proc/self/ns/net").readlink())
        assert sent.pop("netns") == f"net:[{os.fstat(netns.fd).st_ino}]"
        assert sent.pop("root") == "/"
        assert sent.pop("route").startswith("socket:")
        assert sent == {}

    @pytest.mark.parametrize("plugin", registry.NAMES)
    def test_who_works_outside_is_given_the_namespace_alone(
        self, program: Path, tmp_path: Path, netns: Netns, plugin: str
    ):
        sent = self.ask(shutil.copy2(program, tmp_path / plugin), tmp_path / "sock", netns.path)
        namespace = f"net:[{os.fstat(netns.fd).st_ino}]"
        if is_outside(plugin):
            assert sent["netns-only"] == namespace
            assert sorted(sent) == ["netns-only", "own", "root"]
        else:
            assert sent["netns"] == namespace
            assert sorted(sent) == ["netns", "own", "root", "route"]

    @pytest.mark.parametrize("plugin", ["bridge", "portmap"])
    def test_what_is_no_network_namespace_is_not_sent(self, program: Path, tmp_path: Path, plugin: str):
        sent: list[frames.Call] = []

        def serve(connection: socket.socket) -> None:
            data, fds, _, _ = socket.recv_fds(connection, 1 << 20, 64)
            frame = frames.FrameReader().feed(data)
            assert frame
            sent.append(frames.decode_call(frame))
            for fd in fds:
                os.close(fd)
            connection.sendall(done_frame(b"0", b"", b""))

        copy = shutil.copy2(program, tmp_path / plugin)
        with server(tmp_path / "sock", serve) as env:
            for path in ("/proc", "/proc/self/ns/mnt"):
                assert run(copy, b"{}", CNI_NETNS=path, **env).returncode == 0
        assert [(call.descriptors, call.netns_problem) for call in sent] == [
            (("own", "root"), f"setns {errno.EINVAL}")
        ] * 2

    def test_without_a_namespace_there_are_none(self, program: Path, tmp_path: Path):
        assert sorted(self.ask(program, tmp_path / "sock", "")) == ["own", "root"]


class TestSettings:
    """Directories of the container's settings, which are opened when the daemon asks for them."""

    def ask(self, program: Path, path: Path, netns: str, *names: bytes) -> tuple[dict[bytes, str], bytes]:
        """How the client answers for each name: the path of what it sends, or the errno; and its own end."""
        said: dict[bytes, str] = {}

        def serve(connection: socket.socket) -> None:
            answering()(connection)
            for name in names:
                connection.sendall(frames.encode(Frame(kind=Kind.OPEN, fields=(name,))))
                data, fds, _, _ = socket.recv_fds(connection, 1 << 16, 9)
                frame = frames.FrameReader().feed(data)
                assert frame
                number = frames.decode_opened(frame)
                said[name] = errno.errorcode[number] if number else str(Path(f"/proc/self/fd/{fds[0]}").readlink())
                assert len(fds) == (number == 0)
                said[name] += f" {self.forwarding(fds[0])}" if name == b"ipv4" and fds else ""
                for fd in fds:
                    os.close(fd)
            connection.sendall(done_frame(b"0", b"fine", b""))

        with server(path, serve) as env:
            return said, run(program, b"{}", CNI_NETNS=netns, **env).stdout

    def forwarding(self, fd: int) -> str:
        setting = os.open("ip_forward", os.O_RDONLY, dir_fd=fd)
        try:
            return os.read(setting, 9).decode().strip()
        finally:
            os.close(setting)

    def test_those_of_the_container(self, program: Path, tmp_path: Path, netns: Netns):
        machine = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
        for value in ("0", "1"):
            netns.run(f"sysctl -qw net.ipv4.ip_forward={value}")
            said, _ = self.ask(program, tmp_path / f"sock{value}", netns.path, b"ipv4", b"core")
            assert said == {b"ipv4": f"/proc/sys/net/ipv4 {value}", b"core": "/proc/sys/net/core"}
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == machine

    @pytest.mark.parametrize("name", [b"..", b".", b"../net/ipv4", b"ipv4/conf", b"none", b"/etc", b"\xff"])
    def test_what_is_none_has_an_errno(self, program: Path, tmp_path: Path, netns: Netns, name: bytes):
        said, out = self.ask(program, tmp_path / "sock", netns.path, name, b"core")
        assert said == {name: "ENOENT", b"core": "/proc/sys/net/core"}
        assert out == b"fine"

    def test_without_a_container_there_are_none(self, program: Path, tmp_path: Path):
        assert self.ask(program, tmp_path / "sock", "", b"ipv6") == ({b"ipv6": "ENOENT"}, b"fine")

    def test_delegates_run_in_the_callers_namespace_after_it(self, program: Path, tmp_path: Path, netns: Netns):
        (tmp_path / "where").write_text("#!/bin/sh\nreadlink /proc/self/ns/net\n")
        (tmp_path / "where").chmod(0o755)
        said: list[bytes] = []

        def serve(connection: socket.socket) -> None:
            answering(frames.encode_open("core"))(connection)
            read_frame(connection)
            connection.sendall(run_frame(b"where", b""))
            said.append(frames.decode_ran(read_frame(connection)).stdout)
            connection.sendall(done_frame(b"0", b"", b""))

        with server(tmp_path / "sock", serve) as env:
            run(program, b"{}", CNI_NETNS=netns.path, CNI_PATH=str(tmp_path), **env)
        assert said == [f"{Path('/proc/self/ns/net').readlink()}\n".encode()]


class TestVersion:
    @pytest.mark.spec("flannel.md §10.1/versions")
    @pytest.mark.parametrize("name", registry.NAMES)
    def test_it_is_answered_without_daemon_stdin_and_python(self, program: Path, tmp_path: Path, name: str):
        (tmp_path / name).hardlink_to(shutil.copy2(program, tmp_path / "copy"))
        with server(tmp_path / "sock", lambda _: pytest.fail("it has asked the daemon")) as env:
            read, write = os.pipe()
            done = subprocess.run(
                [tmp_path / name],
                env={"CNI_COMMAND": "VERSION", **env},
                stdin=read,
                capture_output=True,
                timeout=5,
                check=True,
            )
            os.close(read)
            os.close(write)
        plugin = registry.find(name)
        assert plugin
        assert done.stdout == cni.render_versions(plugin.versions)
        assert done.stderr == b""


class TestNames:
    """A copy of a plugin, or a link to it, is that plugin under any name, as with the reference's programs."""

    @pytest.fixture
    def installed(self, tmp_path: Path) -> Path:
        install(tmp_path / "bin", interpreter=None)
        return tmp_path / "bin"

    @pytest.mark.parametrize("name", registry.NAMES)
    @pytest.mark.parametrize("how", ["copy", "link", "symbolic link"])
    def test_a_copy_is_what_it_was_copied_from(self, installed: Path, tmp_path: Path, name: str, how: str):
        other = installed / f"{name}-wg"
        if how == "copy":
            shutil.copy2(installed / name, other)
        elif how == "link":
            other.hardlink_to(installed / name)
        else:
            other.symlink_to(name)
        plugin = registry.find(name)
        assert plugin
        asked = []

        def serve(connection: socket.socket) -> None:
            asked.append(frames.decode_call(read_frame(connection)).plugin)
            connection.sendall(frames.encode_begun() + done_frame(b"0", b"fine", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(other, CNI_COMMAND="VERSION", **env).stdout == cni.render_versions(plugin.versions)
            assert run(other, b"{}", **env).stdout == b"fine"
        assert asked == [name]

    def test_one_of_our_names_is_that_plugin_whatever_was_copied_there(self, installed: Path):
        shutil.copy2(installed / "flannel", installed / "firewall")
        plugin = registry.find("firewall")
        assert plugin
        assert run(installed / "firewall", CNI_COMMAND="VERSION").stdout == cni.render_versions(plugin.versions)

    @pytest.mark.parametrize(
        "tail", [b"", b"\nweft plugin: ", b"\nweft plugin: nope\n", b"weft plugin: flannel", b"\n" * 99]
    )
    def test_what_does_not_say_is_no_plugin(self, program: Path, tmp_path: Path, tail: bytes):
        other = tmp_path / "flannel-wg"
        other.write_bytes(program.read_bytes() + tail)
        other.chmod(0o755)
        asked = []

        def serve(connection: socket.socket) -> None:
            asked.append(frames.decode_call(read_frame(connection)).plugin)
            connection.sendall(frames.encode_begun() + done_frame(b"1", b"no", b""))

        with server(tmp_path / "sock", serve) as env:
            assert run(other, b"{}", **env).stdout == b"no"
        assert asked == ["flannel-wg"]


class TestStandIn:
    def test_without_a_daemon_one_is_started(self, bin_dir: Path, tmp_path: Path):
        done = run(bin_dir / "bridge", b'{"a": 1}', WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert done.stdout == b'stand-in: bridge\n{"a": 1}'

    def test_a_socket_that_nobody_listens_on(self, bin_dir: Path, tmp_path: Path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(tmp_path / "sock"))
        assert run(bin_dir / "bridge", WEFT_CNI_SOCKET=str(tmp_path / "sock")).stdout.startswith(b"stand-in: bridge")

    def test_a_link_leads_to_the_directory_of_the_program(self, bin_dir: Path, tmp_path: Path):
        (tmp_path / "flannel").symlink_to(bin_dir / "bridge")
        done = run(tmp_path / "flannel", WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert done.stdout == b"stand-in: flannel\n"

    @pytest.mark.parametrize("answer", [b"", b"\0", b"\0\0\0\0\0\2\0\4", frames.encode(Frame(kind=9, fields=()))])
    def test_never_once_begun(self, bin_dir: Path, tmp_path: Path, answer: bytes):
        with server(tmp_path / "sock", answering(answer)) as env:
            assert "weftd" in error(run(bin_dir / "bridge", b"{}", **env))

    @pytest.mark.parametrize("answer", [b"\0\0\0\0\0\2\0\4", frames.encode(Frame(kind=9, fields=())), b"\xff" * 8])
    def test_never_with_a_daemon_that_breaks_the_rules(self, bin_dir: Path, tmp_path: Path, answer: bytes):
        with server(tmp_path / "sock", answering(answer, begun=False)) as env:
            assert "weftd" in error(run(bin_dir / "bridge", b"{}", **env))

    @pytest.mark.parametrize("size", [0, 1, 1000, 900_000, (1 << 20) + 1])
    @pytest.mark.parametrize("serve", [lambda _: None, lambda it: it.recv(100), answering(begun=False)])
    def test_a_daemon_that_ends_before_it_has_begun(
        self, bin_dir: Path, tmp_path: Path, size: int, serve: Callable[[socket.socket], None]
    ):
        with server(tmp_path / "sock", serve) as env:
            for _ in range(5):
                done = run(bin_dir / "bridge", b"x" * size, **env)
                too_much = size > 1 << 20
                assert done.stdout == b"stand-in: bridge\n" + b"x" * size * (not too_much)
                assert done.stderr == b"more than 1 MiB" * too_much

    def test_an_older_daemon_that_refuses_our_version(self, bin_dir: Path, tmp_path: Path):
        refusal = done_frame(b"1", b'{"code": 11}', b"", version=frames.VERSION - 1)
        with server(tmp_path / "sock", answering(refusal, begun=False)) as env:
            assert run(bin_dir / "bridge", b"{}", **env).stdout == b"stand-in: bridge\n{}"

    def test_a_refusal_is_an_answer(self, bin_dir: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"1", b"no", b""), begun=False)) as env:
            assert run(bin_dir / "bridge", b"{}", **env).stdout == b"no"

    @pytest.mark.parametrize(
        "name, flags, problem",
        [("", os.O_RDONLY, b"Is a directory"), ("written", os.O_WRONLY | os.O_CREAT, b"Bad file descriptor")],
    )
    def test_an_input_that_cannot_be_read_is_told_as_that(
        self, bin_dir: Path, tmp_path: Path, name: str, flags: int, problem: bytes
    ):
        stdin = os.open(tmp_path / name, flags)
        env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]}
        command = [bin_dir / "bridge"]
        done = subprocess.run(command, env=env, stdin=stdin, capture_output=True, check=True, timeout=200)
        os.close(stdin)
        assert (done.stdout, done.stderr) == (b"stand-in: bridge\n", problem)

    def test_an_input_that_is_too_large_is_told_as_that(self, bin_dir: Path, tmp_path: Path):
        done = run(bin_dir / "bridge", b"x" * (frames.MAX_PAYLOAD + 1), WEFT_CNI_SOCKET=str(tmp_path / "none"))
        assert (done.stdout, done.stderr) == (b"stand-in: bridge\n", b"more than 1 MiB")

    def test_an_input_that_breaks_off_is_not_taken_for_a_whole_one(self, bin_dir: Path, tmp_path: Path):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b'{"cniVersion": "1.0.0"}')
            theirs.setblocking(False)  # the first read gives something, the second an error
            env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]}
            done = subprocess.run([bin_dir / "bridge"], env=env, stdin=theirs, capture_output=True, check=False)
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
        self, bin_dir: Path, tmp_path: Path, make: Callable[[Path], Any], problem: str
    ):
        make(bin_dir / ".weft-python")
        message = error(run(bin_dir / "bridge", WEFT_CNI_SOCKET=str(tmp_path / "none")))
        assert problem in message
        assert str(bin_dir / ".weft-python") in message


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
    def python(self, bin_dir: Path, tmp_path: Path) -> Path:
        """An interpreter behind links: `way/link` leads to `a`, which has `b/python`."""
        (tmp_path / "a" / "b").mkdir(parents=True)
        shutil.copy2(bin_dir / "python", tmp_path / "a" / "b" / "python")
        (tmp_path / "way").mkdir()
        (tmp_path / "way" / "link").symlink_to("../way/../a")
        (tmp_path / "absolute").symlink_to(tmp_path / "way" / "link" / "b")
        self.name(bin_dir, tmp_path / "absolute" / "python")
        return tmp_path / "absolute" / "python"

    def name(self, bin_dir: Path, python: Path) -> None:
        (bin_dir / ".weft-python").write_text(f"{python}\n")

    def without(self, bin_dir: Path, directory: Path) -> "subprocess.CompletedProcess[bytes]":
        return run(bin_dir / "bridge", b"{}", WEFT_CNI_SOCKET=str(directory / "none"))

    @pytest.mark.usefixtures("python")
    def test_of_root_all_the_way(self, bin_dir: Path, tmp_path: Path):
        assert self.without(bin_dir, tmp_path).stdout == b"stand-in: bridge\n{}"

    @pytest.mark.usefixtures("python")
    @pytest.mark.parametrize("place", ["a/b/python", "a/b", "a", "way", "way/link", "absolute"])
    def test_of_another_user_at_any_place(self, bin_dir: Path, tmp_path: Path, place: str):
        os.chown(tmp_path / place, 65534, 65534, follow_symlinks=False)
        message = error(self.without(bin_dir, tmp_path))
        assert message.endswith(f"cannot be used: {tmp_path / place}: not owned by root")
        assert f"{tmp_path}/absolute/python, named in {bin_dir}/.weft-python" in message

    @pytest.mark.usefixtures("python")
    @pytest.mark.parametrize("mode", [0o777, 0o775])
    @pytest.mark.parametrize("place", ["a/b/python", "a/b", "a", "way"])
    def test_that_others_may_write_to(self, bin_dir: Path, tmp_path: Path, place: str, mode: int):
        (tmp_path / place).chmod(mode)
        message = error(self.without(bin_dir, tmp_path))
        assert message.endswith(f"cannot be used: {tmp_path / place}: writable by others than root")

    @pytest.mark.usefixtures("python")
    def test_the_sticky_bit_protects_what_is_in_a_directory_and_no_file(self, bin_dir: Path, tmp_path: Path):
        (tmp_path / "a").chmod(0o1777)
        assert self.without(bin_dir, tmp_path).stdout == b"stand-in: bridge\n{}"
        (tmp_path / "a" / "b" / "python").chmod(0o1777)
        assert "a/b/python: writable by others" in error(self.without(bin_dir, tmp_path / "another"))

    @pytest.mark.usefixtures("python")
    def test_nothing_is_looked_at_while_a_daemon_answers(self, bin_dir: Path, tmp_path: Path):
        (tmp_path / "a").chmod(0o777)
        with server(tmp_path / "sock", answering(done_frame(b"0", b"fine", b""))) as env:
            assert run(bin_dir / "bridge", b"{}", **env).stdout == b"fine"

    def test_a_name_that_json_has_to_escape_is_told_as_it_is(self, bin_dir: Path, tmp_path: Path):
        odd = os.fsencode(tmp_path) + b'/back\\slash "quoted" \x7f\xff'
        (bin_dir / ".weft-python").write_bytes(odd)
        assert f"{odd.decode('latin-1')}, named in" in error(self.without(bin_dir, tmp_path))

    def test_links_without_end(self, bin_dir: Path, tmp_path: Path):
        (tmp_path / "x").symlink_to("x")
        self.name(bin_dir, tmp_path / "x")
        assert "ymbolic link" in error(self.without(bin_dir, tmp_path))

    @pytest.mark.parametrize("links, allowed", [(40, True), (41, False)])
    def test_as_many_links_as_the_kernel_follows(self, bin_dir: Path, tmp_path: Path, links: int, allowed: bool):
        (tmp_path / "link0").symlink_to(bin_dir / "python")
        for number in range(1, links):
            (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
        self.name(bin_dir, tmp_path / f"link{links - 1}")
        assert (self.without(bin_dir, tmp_path).returncode == 0) == allowed

    def test_a_way_that_links_make_too_long(self, bin_dir: Path, tmp_path: Path):
        (tmp_path / "long").symlink_to("./" * 2043 + "bin")
        self.name(bin_dir, tmp_path / "long" / "python")
        assert "too long" in error(self.without(bin_dir, tmp_path)).lower()

    def test_in_a_users_own_namespace_what_is_of_outside_counts_as_roots(self, bin_dir: Path):
        """As in a lab of an ordinary user: all of outside has the number of the overflow user there."""
        with tempfile.TemporaryDirectory() as folder:  # a way that this user may go
            shutil.copytree(bin_dir, folder, dirs_exist_ok=True)
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

    def test_in_a_namespace_with_several_users_none_of_them_counts_as_root(self, bin_dir: Path, tmp_path: Path):
        self.name(bin_dir, bin_dir / "python")
        os.chown(bin_dir / "python", 5, 5)
        holder = subprocess.Popen(
            ["unshare", "--user", "sh", "-c", "echo there; exec sleep 60"], stdout=subprocess.PIPE
        )
        with holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{holder.pid}/{name}").write_text("0 0 10")
            done = subprocess.run(
                ["nsenter", f"--user=/proc/{holder.pid}/ns/user", bin_dir / "bridge"],
                env={"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), "PATH": os.environ["PATH"]},
                input=b"{}",
                capture_output=True,
                check=False,
            )
            holder.kill()
        assert error(done).endswith(f"cannot be used: {bin_dir}/python: not owned by root")


class TestLimits:
    """What the daemon keeps waiting: nothing waits for ever. The limits are seconds here."""

    @pytest.fixture
    def impatient(self, bin_dir: Path, hasty: Path) -> Path:
        shutil.copy2(hasty, bin_dir / "bridge")
        return bin_dir / "bridge"

    @pytest.fixture
    def short(self, bin_dir: Path) -> Path:
        """A client that has three seconds in all."""
        compiled(bin_dir, "musl-gcc", "-DTOTAL_SECONDS=3", "-static")
        return bin_dir / "bridge"

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

    def test_input_may_come_late(self, bin_dir: Path, tmp_path: Path):
        """The daemon allows some seconds for a request: it is not asked before the request is complete."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "sock"))
            listener.listen()
            listener.setblocking(False)
            env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "sock")}
            with subprocess.Popen([bin_dir / "bridge"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
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


class TestDaemonsItRefuses:
    def test_one_that_is_not_root(self, bin_dir: Path, tmp_path: Path):
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
            message = error(run(bin_dir / "bridge", b"secret", WEFT_CNI_SOCKET=str(directory / "sock")))
            assert message == "the daemon's socket is not served by root"
            assert theirs.stdout.read() == b"b''", "it was told something all the same"


class TestAnswers:
    def test_the_answer_is_printed(self, bin_dir: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"7", b"out", b"err"))) as env:
            done = run(bin_dir / "bridge", b"{}", **env)
        assert (done.returncode, done.stdout, done.stderr) == (7, b"out", b"err")

    def test_a_frame_may_have_all_the_fields_that_fit(self, bin_dir: Path, tmp_path: Path):
        order = run_frame(b"absent", b"", *(b"V%d=" % number for number in range(frames.MAX_FIELDS - 2)))
        with server(tmp_path / "sock", answering(order, done_frame(b"0", b"fine", b""))) as env:
            assert run(bin_dir / "bridge", b"{}", **env).stdout == b"fine"

    def test_what_is_behind_the_last_field_makes_a_frame_none(self, bin_dir: Path, tmp_path: Path):
        fields = b"".join(len(field).to_bytes(4, "big") + field for field in (b"0", b"out"))
        payload = fields + bytes(2)  # with what stood there before, this could be the length of a third
        header = len(payload).to_bytes(4, "big") + frames.VERSION.to_bytes(2, "big") + Kind.DONE.to_bytes(2, "big")
        with server(tmp_path / "sock", answering(header + payload)) as env:
            assert "answer" in error(run(bin_dir / "bridge", b"{}", **env))

    def test_a_refusal_of_another_version_is_printed(self, bin_dir: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"1", b"no", b"", version=9))) as env:
            assert run(bin_dir / "bridge", b"{}", **env).stdout == b"no"

    def test_an_order_of_another_version_is_not_carried_out(self, bin_dir: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(run_frame(b"x", b"", version=9))) as env:
            assert "another version" in error(run(bin_dir / "bridge", b"{}", **env))

    def test_without_a_command_stdin_is_left_alone(self, bin_dir: Path, tmp_path: Path):
        seen: list[frames.Call] = []

        def serve(connection: socket.socket) -> None:
            seen.append(frames.decode_call(read_frame(connection)))
            connection.sendall(done_frame(b"0", b"", b"about"))

        with server(tmp_path / "sock", serve) as env:
            read, write = os.pipe()
            done = subprocess.run([bin_dir / "bridge"], env=env, stdin=read, capture_output=True, timeout=5, check=True)
            os.close(read)
            os.close(write)
        assert done.stderr == b"about"
        assert seen[0].plugin == "bridge"
        assert seen[0].descriptors == ("own", "root")

    def test_missing_standard_streams_are_no_descriptors_of_ours(self, bin_dir: Path, tmp_path: Path):
        with server(tmp_path / "sock", answering(done_frame(b"0", b"out", b"err"))) as env:
            script = 'exec "$0" <&- >&- 2>&-'
            done = subprocess.run(
                ["sh", "-c", script, str(bin_dir / "bridge")], env={"CNI_COMMAND": "ADD", **env}, timeout=5, check=False
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


class TestInstallation:
    def test_all_names_are_one_program_in_files_of_their_own_and_the_settings_are_safe(self, tmp_path: Path):
        for _ in range(2):
            done = install(tmp_path / "bin")
            # But for the name at their end, by which a copy knows what it is.
            for name in done.names:
                assert (tmp_path / "bin" / name).read_bytes() == as_plugin(build.PROGRAM.path.read_bytes(), name)
            assert len({(tmp_path / "bin" / name).stat().st_ino for name in done.names}) == len(done.names)
            ours = sorted([*done.names, ".weft-installed", ".weft-python"])
            assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ours
        settings = tmp_path / "bin" / ".weft-python"
        assert settings.read_text() == f"{done.interpreter}\n"
        assert settings.stat().st_mode & 0o777 == 0o644

    def test_a_running_program_can_be_replaced(self, tmp_path: Path):
        done = install(tmp_path)
        with server(tmp_path / "sock", lambda connection: read_frame(connection) and gate.wait(10)) as env:
            gate = threading.Event()
            command = [tmp_path / "bridge"]
            with subprocess.Popen(
                command, env={"CNI_COMMAND": "ADD", **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            ):
                install(tmp_path)
                gate.set()
        assert (tmp_path / "bridge").read_bytes() == done.bin_dir.joinpath("bridge").read_bytes()

    def test_an_interpreter_that_others_may_change_is_refused(self, tmp_path: Path):
        from weft.model.errors import ConfigError

        python = tmp_path / "python"
        python.touch(mode=0o755)
        python.chmod(0o777)
        with pytest.raises(ConfigError, match=r"CNI-001.*mode 0777"):
            install(tmp_path / "bin", interpreter=python)
        assert not (tmp_path / "bin").exists()

    def test_without_a_compiler_there_is_no_client_and_it_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        from weft.model.errors import ConfigError

        monkeypatch.setenv("PATH", str(tmp_path))
        assert build.PROGRAM.main() == 0
        assert build.PROGRAM.hint in capsys.readouterr().out
        monkeypatch.setattr(build, "PROGRAM", replace(build.PROGRAM, path=tmp_path / "none"))
        with pytest.raises(ConfigError, match=r"CNI-001.*built without its client.*apt-get install musl-tools"):
            install(tmp_path / "bin")
        assert not (tmp_path / "bin").exists()
