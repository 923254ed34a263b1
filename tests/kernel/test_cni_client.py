"""The client in C alone: what it answers itself, what it starts without a daemon, and what it refuses from one."""

import errno
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.kernel.cniclient import (
    answering,
    compiled,
    done_frame,
    read_frame,
    run,
    run_frame,
    server,
)
from tests.support.netns import Netns
from tests.support.waiting import HANGS
from weft.cni import build, registry
from weft.cni.host.sysctls import is_outside
from weft.cni.install.executables import as_plugin, install
from weft.model.value import replace
from weft.wire import cni, frames
from weft.wire.frames import Frame, Kind


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
                timeout=HANGS,
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
