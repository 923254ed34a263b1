"""The daemon's CNI server, as a process in a namespace, with the real client and with clients that break the rules."""

import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.cni.call import SECONDS, Started
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.frames import (
    call,
    decode_done,
    descriptors,
    encode_call,
    encode_opened,
    exchange,
    read_begun,
    read_done,
)
from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.cni import build
from weft.cni.host.host import NodeHandles, open_node
from weft.cni.host.locks import ContainerLocks
from weft.cni.host.sysctls import open_all_settings, open_settings
from weft.cni.install.executables import install
from weft.cni.serve.server import LEAST_DESCRIPTORS
from weft.cni.serve.session import Service, Session
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Call, Frame, Kind

NewNetns = Callable[[], Netns]
NETLINK_NETFILTER = 12  # linux/netlink.h
# What the daemon of these tests keeps waiting, and a real plugin does.
WAITING = {"do": "wait", "path": "/none", "cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
ENV = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "raw", "CNI_IFNAME": "eth0"}


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, bin_dir: Path) -> Iterator[CniDaemon]:
    with Netns() as netns:
        started = CniDaemon(tmp_path_factory.mktemp("daemon"), netns, bin_dir)
        yield started
        assert started.stop() == 0


@pytest.fixture
def own_daemon(tmp_path: Path, bin_dir: Path, netns: Netns) -> Iterator[CniDaemon]:
    started = CniDaemon(tmp_path / "d", netns, bin_dir, limit=0.5)
    yield started
    started.stop()


def test_a_plugin_sees_the_host_and_the_container(daemon: CniDaemon, netns: Netns):
    daemon.netns.bridge("seen-host")
    netns.bridge("seen-inside")
    answer = daemon.call("ADD", {"do": "look"}, CNI_NETNS=netns.path, CNI_ARGS="IgnoreUnknown=1;é=ü")
    assert "seen-host" in answer["host"]
    assert "seen-inside" not in answer["host"]
    assert answer["links"] == ["lo", "seen-inside"]
    assert answer["same"] is False
    assert answer["gone"] is False
    assert answer["problem"] == ""
    assert answer["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    sent = daemon.environment("ADD", CNI_NETNS=netns.path, CNI_ARGS="IgnoreUnknown=1;é=ü")
    assert answer["env"] == {name: value for name, value in sent.items() if name.startswith("CNI_")}


def test_settings_of_the_container_are_changed_and_the_hosts_are_not(daemon: CniDaemon, netns: Netns):
    def host_forwards() -> str:
        return daemon.netns.run("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding").split()

    machine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    before = host_forwards()
    names = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "core/somaxconn", "unix/max_dgram_qlen")
    for name in (f"net/{name}" for name in names):
        change = {"do": "set", "name": name, "value": "1"}
        answer = daemon.call("ADD", change, plugin="tuning", CNI_NETNS=netns.path)
        assert answer["container"] == "1"
        assert answer["host"] != "1"
    assert netns.run("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding").split() == ["1", "1"]
    assert host_forwards() == before == ["0", "0"]
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == machine


def test_the_callers_files_are_used_not_the_daemons(daemon: CniDaemon, tmp_path: Path):
    """Client and daemon in different mount namespaces: one path, two files."""
    shared = tmp_path / "conf"
    shared.mkdir()
    (shared / "which").write_text("the daemon's")
    config = {"do": "read", "path": str(shared / "which")}
    command = [
        "unshare",
        "-m",
        "sh",
        "-ec",
        'mount -t tmpfs none "$1"; printf caller > "$1/which"; exec "$2"',
        "sh",
        str(shared),
        str(daemon.bin_dir / "bridge"),
    ]
    done = subprocess.run(
        ["nsenter", f"--net={daemon.netns.path}", *command],
        env=daemon.environment("ADD"),
        input=json.dumps(config).encode(),
        capture_output=True,
        timeout=200,
        check=True,
    )
    assert json.loads(done.stdout)["read"] == "caller"
    assert daemon.call("ADD", config)["read"] == "the daemon's"


@pytest.mark.parametrize(
    "path, gone, problem",
    [
        ("", False, ""),
        ("/run/netns/none-here", True, 'failed to Statfs "/run/netns/none-here": no such file or directory'),
        ("/dev/null", True, 'unknown FS magic on "/dev/null": '),
        ("/proc/self/ns/uts", True, 'failed to setns "/proc/self/ns/uts": invalid argument'),
    ],
)
def test_a_namespace_that_cannot_be_used_is_named(daemon: CniDaemon, path: str, gone: bool, problem: str):
    answer = daemon.call("ADD", {"do": "look"}, CNI_NETNS=path)
    assert answer["links"] is None
    assert answer["gone"] is gone
    assert answer["problem"].startswith(problem)
    assert bool(answer["problem"]) is bool(problem)


def test_the_own_namespace_is_recognised(daemon: CniDaemon):
    assert daemon.call("ADD", {"do": "look"}, CNI_NETNS=daemon.netns.path)["same"] is True


def test_exit_status_and_log_are_the_plugins(daemon: CniDaemon):
    client = daemon.start("ADD", {"do": "fail"})
    out, err = client.process.communicate(b'{"do": "fail"}', 20)
    assert (client.process.returncode, out, err) == (3, b'{"code": 100}', b"why\n")


def test_a_large_answer_arrives_and_one_too_large_is_an_error(daemon: CniDaemon):
    assert len(daemon.call("ADD", {"do": "big", "size": 1_000_000})) == 1_000_000
    assert daemon.call("ADD", {"do": "big", "size": 1 << 20})["code"] == 999


def test_a_large_configuration_arrives_and_one_too_large_is_named(daemon: CniDaemon):
    assert daemon.call("ADD", {"do": "look", "pad": "x" * 1_000_000})["stdin_error"] == ""
    answer = daemon.call("ADD", {"do": "look", "pad": "x" * (1 << 20)})
    assert answer["stdin_error"] == "more than 1 MiB"


def test_a_fault_in_a_plugin_is_error_11_and_the_daemon_lives(daemon: CniDaemon):
    assert daemon.call("ADD", {"do": "fault"})["code"] == 11
    assert daemon.call("ADD", {"do": "look"})["plugin"] == "bridge"


class TestRefusals:
    def test_a_client_that_is_not_root(self, own_daemon: CniDaemon):
        own_daemon.socket.parent.chmod(0o755)
        own_daemon.socket.chmod(0o666)
        for parent in own_daemon.socket.parents[:-1]:
            if not parent.stat().st_mode & 0o001 and parent != Path("/tmp"):
                parent.chmod(0o755)
        script = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(9);"
            "sys.stdout.buffer.write(s.recv(65536))"
        )
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=nobody",
                "--regid=nogroup",
                "--clear-groups",
                "/usr/bin/python3",
                "-c",
                script,
                str(own_daemon.socket),
            ],
            capture_output=True,
            timeout=200,
            check=True,
        )
        frame = frames.FrameReader().feed(done.stdout)
        assert frame
        refusal = json.loads(decode_done(frame).stdout)
        assert "only root" in refusal["msg"]
        assert own_daemon.journal() == []

    def test_a_client_in_another_namespace(self, daemon: CniDaemon):
        before = daemon.journal()
        with descriptors() as named:
            done = exchange(daemon.socket, call(ENV, named), fds=tuple(named.values()))
        assert done
        assert done.exit == 1
        assert json.loads(done.stdout) == {"code": 8, "msg": "the client is in another network namespace than weftd"}
        assert daemon.journal() == before

    def ask(self, daemon: CniDaemon, container: int | None = None, **others: int) -> dict[str, object]:
        """As a client in the daemon's namespace, with descriptors of the test's choice."""

        def inside() -> Ran | None:
            with descriptors(container, **others) as named:
                return exchange(daemon.socket, call(ENV, named), fds=tuple(named.values()))

        done = daemon.netns.call(inside)
        assert done
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def route_socket(self, netns: Netns, kind: int = socket.NETLINK_ROUTE) -> socket.socket:
        return netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, kind))

    def test_a_good_one_is_served(self, daemon: CniDaemon, netns: Netns):
        with self.route_socket(netns) as sock:
            assert "code" not in self.ask(daemon, netns.fd, route=sock.fileno())

    def test_a_socket_of_another_namespace(self, daemon: CniDaemon, netns: Netns):
        with self.route_socket(daemon.netns) as sock:
            answer = self.ask(daemon, netns.fd, route=sock.fileno())
        assert answer == {"code": 8, "msg": "the socket is in another network namespace than the container"}

    def test_a_socket_of_another_kind(self, daemon: CniDaemon, netns: Netns):
        with self.route_socket(netns, NETLINK_NETFILTER) as sock:
            assert "not of rtnetlink" in str(self.ask(daemon, netns.fd, route=sock.fileno())["msg"])

    def test_an_older_client_that_sends_one_for_who_works_outside(self, daemon: CniDaemon, netns: Netns):
        def inside() -> Ran | None:
            with self.route_socket(netns) as sock, descriptors(netns.fd, route=sock.fileno()) as named:
                env = {**ENV, "CNI_COMMAND": "ADD"}
                data = call(env, named, plugin="portmap", stdin=b'{"do": "look"}')
                return exchange(daemon.socket, data, fds=tuple(named.values()))

        done = daemon.netns.call(inside)
        assert done
        answer = json.loads(done.stdout)
        assert answer["same"] is False
        assert answer["links"] is None, "it has no container to look into"

    def test_no_socket_at_all(self, daemon: CniDaemon, netns: Netns):
        assert "no socket" in str(self.ask(daemon, netns.fd)["msg"])

    @pytest.mark.parametrize("name", ["own", "netns", "route"])
    def test_files_in_place_of_namespaces_and_sockets(self, daemon: CniDaemon, netns: Netns, name: str):
        with self.route_socket(netns) as sock, Path("/dev/null").open() as null:
            answer = self.ask(daemon, netns.fd, **{"route": sock.fileno(), name: null.fileno()})
        assert answer["code"] == 8
        assert "is none" in str(answer["msg"])

    def test_a_namespace_of_another_kind(self, daemon: CniDaemon):
        with Path("/proc/self/ns/mnt").open() as mount:
            assert self.ask(daemon, mount.fileno())["code"] == 8

    def give(self, daemon: CniDaemon, netns: Netns, number: int, *fds: int) -> Ran | None:
        """As a client that answers with this when it is asked for the container's settings of IPv4."""

        def inside() -> Ran | None:
            with self.route_socket(netns) as route, descriptors(netns.fd, route=route.fileno()) as named:
                stdin = b'{"del": "set", "name": "net/ipv4/ip_forward", "value": "1"}'
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.settimeout(SECONDS)
                    sock.connect(str(daemon.socket))
                    socket.send_fds(sock, [call(ENV, named, stdin=stdin)], list(named.values()))
                    read_begun(sock)
                    assert sock.recv(1 << 16) == frames.encode_open("ipv4")
                    socket.send_fds(sock, [encode_opened(number)], fds)
                    return read_done(sock)

        return daemon.netns.call(inside)

    @pytest.mark.parametrize("path", ["/proc/sys/net", "/proc/sys/net/ipv6", "/proc/sys/net/ipv4/conf", "/etc"])
    def test_settings_that_are_not_what_they_say(self, daemon: CniDaemon, netns: Netns, path: str):
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
        try:
            done = self.give(daemon, netns, 0, fd)
        finally:
            os.close(fd)
        assert done
        assert "directory of settings 'ipv4'" in json.loads(done.stdout)["msg"]

    def test_the_hosts_settings_in_place_of_the_containers(self, daemon: CniDaemon, netns: Netns):
        fd = daemon.netns.call(lambda: open_settings("ipv4"))
        try:
            done = self.give(daemon, netns, 0, fd)
        finally:
            os.close(fd)
        assert done
        said = {"code": 8, "msg": "the directory of settings 'ipv4' is the host's, not the container's"}
        assert json.loads(done.stdout) == said

    def test_the_containers_settings(self, daemon: CniDaemon, netns: Netns):
        fd = netns.call(lambda: open_settings("ipv4"))
        try:
            done = self.give(daemon, netns, 0, fd)
        finally:
            os.close(fd)
        assert done
        assert json.loads(done.stdout)["container"] == "1"
        assert netns.run("cat /proc/sys/net/ipv4/ip_forward") == "1\n"

    def test_settings_that_are_said_to_be_opened_and_do_not_come(self, daemon: CniDaemon, netns: Netns):
        assert self.give(daemon, netns, 0) is None
        assert daemon.call("ADD", {"do": "look"})["plugin"] == "bridge"

    def test_settings_that_cannot_be_opened(self, daemon: CniDaemon, netns: Netns):
        done = self.give(daemon, netns, errno.ENOENT)
        assert done
        assert "No such file" in json.loads(done.stdout)["error"]

    def test_an_older_client_that_sends_three_directories(self, daemon: CniDaemon, netns: Netns):
        opened = netns.call(open_all_settings)
        old = {name: opened[name] for name in ("ipv4", "ipv6", "core")}
        try:
            with self.route_socket(netns) as sock:
                assert "code" not in self.ask(daemon, netns.fd, route=sock.fileno(), **old)
        finally:
            for fd in opened.values():
                os.close(fd)

    def test_a_namespace_and_a_reason_why_there_is_none(self, daemon: CniDaemon, netns: Netns):
        def inside() -> Ran | None:
            with self.route_socket(netns) as sock, descriptors(netns.fd, route=sock.fileno()) as named:
                asked = Call(plugin="bridge", stdin=b"{}", env=ENV, descriptors=tuple(named), netns_problem="statfs 2")
                return exchange(daemon.socket, encode_call(asked), fds=tuple(named.values()))

        done = daemon.netns.call(inside)
        assert done
        assert json.loads(done.stdout)["msg"] == "the client has sent a network namespace, and why there is none"

    def test_names_without_descriptors(self, daemon: CniDaemon):
        done = exchange(daemon.socket, call(ENV, {"own": -1, "root": -1}))
        assert done
        assert "0 descriptors" in json.loads(done.stdout)["msg"]

    def test_descriptors_without_names(self, daemon: CniDaemon):
        done = exchange(daemon.socket, call(ENV, {}), fds=[0, 0])
        assert done
        assert "2 descriptors" in json.loads(done.stdout)["msg"]

    def test_more_descriptors_than_are_taken(self, daemon: CniDaemon):
        done = exchange(daemon.socket, call(ENV, {}), fds=[0] * 100)
        assert done
        assert "more than 32 descriptors" in json.loads(done.stdout)["msg"]

    def test_nothing_of_it_stays_open(self, daemon: CniDaemon):
        def count() -> int:
            return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))

        daemon.call("ADD", {"do": "look"})
        eventually(lambda: count() <= before, seconds=5) if (before := count()) else None
        for _ in range(20):
            exchange(daemon.socket, call(ENV, {}), fds=[0, 0])
            exchange(daemon.socket, call(ENV, {}), fds=[0] * 100)
            exchange(daemon.socket, b"\0\0\0\x09\0\1\0\1abc", fds=[0, 0, 0], shutdown=True)
        eventually(lambda: count() <= before + 1, seconds=5)

    @pytest.mark.parametrize(
        "data, reason",
        [
            (b"\xff\xff\xff\xff\0\1\0\1", "at most 1048576"),
            (b"\0\0\0\4\0\1\0\1\0\0\0\7", "7 bytes where 0"),
            (b"\0\0\0\0\0\1\0\1", "is no call"),
            (b"\0\0\0\0\0\1\0\2", "is no call"),
            (
                frames.encode(Frame(kind=Kind.CALL, fields=(b"bridge", b"", b"", b"", b"", b"PATH=/"))),
                "no CNI_ variable",
            ),
            (frames.encode(Frame(kind=Kind.CALL, fields=(b"bridge", b"", b"", b"", b"", b"CNI_X=\xff"))), "not UTF-8"),
        ],
    )
    def test_frames_that_break_the_rules(self, daemon: CniDaemon, data: bytes, reason: str):
        done = exchange(daemon.socket, data)
        assert done
        assert reason in json.loads(done.stdout)["msg"]

    def test_a_variable_that_is_not_utf_8_is_the_callers_fault(self, daemon: CniDaemon):
        client = daemon.start("ADD", {"do": "look"}, CNI_X="\udcff").feed()
        assert client.end().json == {"code": 4, "msg": "the environment variable CNI_X is not UTF-8"}

    @pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\x09\0\1\0\1abc"])
    def test_frames_that_end_too_soon(self, daemon: CniDaemon, data: bytes):
        done = exchange(daemon.socket, data or b"\0", shutdown=True)
        assert done
        assert "middle of a frame" in json.loads(done.stdout)["msg"]

    def test_a_version_of_the_future(self, daemon: CniDaemon):
        done = exchange(daemon.socket, call(ENV, {}, version=frames.VERSION + 1))
        assert done
        answer = json.loads(done.stdout)
        assert answer["code"] == 11
        assert "version 3 of the protocol, this daemon versions 1 and 2: upgrade the older" in answer["msg"]

    def test_the_previous_version_is_served(self, daemon: CniDaemon):
        def inside() -> Ran | None:
            with descriptors() as named:
                data = call(ENV, named, version=frames.VERSION - 1)
                return exchange(daemon.socket, data, fds=tuple(named.values()))

        done = daemon.netns.call(inside)
        assert done
        assert done.exit == 0


class TestTurns:
    def test_requests_of_one_container_come_in_order(self, daemon: CniDaemon, tmp_path: Path):
        go = tmp_path / "go"
        first = daemon.start("ADD", {"do": "wait", "path": str(go), "word": "first"}, container="ordered").feed()
        eventually(lambda: "ADD ordered first" in daemon.journal())
        second = daemon.start("ADD", {"word": "second"}, container="ordered").feed()
        # Somebody else passes both.
        assert daemon.call("ADD", {"word": "other"}, container="another")
        assert "ADD ordered second" not in daemon.journal()
        go.touch()
        assert first.end().json
        assert second.end().json
        mine = [line for line in daemon.journal() if " ordered " in line]
        assert mine == ["ADD ordered first", "end ordered first", "ADD ordered second", "end ordered second"]

    def test_gc_waits_for_what_runs_and_what_comes_waits_for_gc(self, daemon: CniDaemon, tmp_path: Path):
        """A runtime whose client was killed takes the ADD for failed and may ask for GC while it runs."""
        added, collected = tmp_path / "added", tmp_path / "collected"
        client = daemon.start("ADD", {"do": "wait", "path": str(added), "word": "add"}, container="killed").feed()
        eventually(lambda: "ADD killed add" in daemon.journal())
        client.kill()
        gc = daemon.start("GC", {"do": "wait", "path": str(collected), "word": "gc"}, container="").feed()
        # Others do not wait for a GC that waits itself.
        assert daemon.call("ADD", {"word": "before"}, container="before")
        assert "GC  gc" not in daemon.journal()
        added.touch()
        eventually(lambda: "GC  gc" in daemon.journal())
        later = daemon.start("ADD", {"word": "later"}, container="later").feed()
        assert daemon.call("STATUS", {}, container="")
        assert "ADD later later" not in daemon.journal()
        collected.touch()
        assert gc.end().json
        assert later.end().json
        lines = daemon.journal()
        assert lines.index("end killed add") < lines.index("GC  gc") < lines.index("end  gc")
        assert lines.index("end  gc") < lines.index("ADD later later")

    def test_those_that_wait_leave_room_for_what_they_wait_for(self, daemon: CniDaemon, tmp_path: Path):
        """GCs wait for an ADD, whose delegate of somebody else's calls a plugin of ours."""
        go = tmp_path / "go"
        _program(tmp_path / "theirs", f"while ! test -e {go}; do sleep 0.02; done; exec {daemon.bin_dir}/host-local")
        config = {"do": "delegate", "name": "theirs", "command": "DEL", "word": "outer", "del": "look"}
        add = daemon.start("ADD", config, container="outer", CNI_PATH=str(tmp_path)).feed()
        eventually(lambda: "ADD outer outer" in daemon.journal())
        several = [daemon.start("GC", {"word": f"crowd{n}"}, container="").feed() for n in range(5)]
        assert daemon.call("STATUS", {}, container="")
        assert not [line for line in daemon.journal() if "crowd" in line]
        go.touch()
        assert add.end().json["ran"][0] == 0
        assert all(client.end().json for client in several)

    def test_many_at_once(self, daemon: CniDaemon):
        clients = [daemon.start("ADD", {"word": f"{n}"}, container=f"many{n % 7}").feed() for n in range(30)]
        assert all(client.end().json["plugin"] == "bridge" for client in clients)

    def test_more_at_once_than_the_usual_limit_of_descriptors(self, tmp_path: Path, bin_dir: Path, netns: Netns):
        daemon = CniDaemon(tmp_path / "d", netns, bin_dir, wrapper="prlimit --nofile=64:4096")
        go = tmp_path / "go"
        config = {"do": "wait", "path": str(go)}
        clients = [
            daemon.start("ADD", config, container=f"c{number}", CNI_NETNS=netns.path).feed() for number in range(20)
        ]
        eventually(lambda: sum(1 for _ in Path(f"/proc/{daemon.process.pid}/fd").iterdir()) > 100)
        go.touch()
        assert [client.end().json.get("plugin") for client in clients] == ["bridge"] * 20
        daemon.stop()

    def test_a_delegate_of_ours_inside_a_delegate_of_theirs_does_not_wait(self, daemon: CniDaemon, tmp_path: Path):
        """As ptp calls host-local: a foreign program calls a plugin of ours for the container whose turn it is."""
        _program(tmp_path / "theirs", f"exec {daemon.bin_dir}/host-local")
        config = {"do": "delegate", "name": "theirs", "command": "DEL", "word": "outer", "del": "look"}
        answer = daemon.call("ADD", config, container="nested", CNI_PATH=str(tmp_path))
        status, out, _ = answer["ran"]
        assert status == 0
        assert json.loads(out)["plugin"] == "host-local"
        eventually(lambda: not list((daemon.state / "cni" / "turns").iterdir()))


def connections(daemon: CniDaemon) -> list[str]:
    """The daemon's socket and the connections to it, with those that it has not accepted."""
    lines = daemon.netns.run("cat /proc/net/unix").splitlines()
    return [line for line in lines if str(daemon.socket) in line]


class TestLimits:
    """What hangs costs what it must, and nothing of what others need."""

    def threads(self, daemon: CniDaemon) -> int:
        return len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))

    def open_files(self, daemon: CniDaemon) -> int:
        return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))

    def host_local(self, name: str, tmp_path: Path) -> dict[str, object]:
        ipam = {"type": "host-local", "dataDir": str(tmp_path / "nets"), "subnet": "10.9.0.0/24"}
        return {"cniVersion": "1.0.0", "name": name, "type": "host-local", "ipam": ipam}

    @contextmanager
    def waiting(
        self, daemon: CniDaemon, config: dict[str, object], tmp_path: Path, netns: Netns
    ) -> Iterator[list[Started]]:
        """Keep the lock of host-local's network `held`; yields 25 ADDs that wait for it."""
        (tmp_path / "nets" / "held").mkdir(parents=True)
        with (tmp_path / "nets" / "held" / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            adds = [
                daemon.start("ADD", config, plugin="host-local", container=f"c{number}", CNI_NETNS=netns.path).feed()
                for number in range(25)
            ]
            eventually(lambda: self.threads(daemon) > 20)
            yield adds

    def test_a_gc_whose_delegate_hangs_gives_the_node_up(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "hangs", f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
        config = {"do": "delegate-gone", "name": "hangs", "command": "GC", "word": "hung"}
        gcs = [daemon.start("GC", config, container="", CNI_PATH=str(tmp_path)).feed() for _ in range(9)]
        eventually(lambda: "GC  hung" in daemon.journal())
        before = self.threads(daemon)
        others = [daemon.start("ADD", {"word": "passes"}, container=f"other{number}").feed() for number in range(9)]
        assert all(other.end().json.get("plugin") == "bridge" for other in others)
        assert self.threads(daemon) <= before + 9
        eventually(lambda: any(gc.process.poll() is not None for gc in gcs))  # whichever of them came first
        (tmp_path / "go").touch()
        answers = [gc.end().json for gc in gcs]
        given_up = [answer["msg"] for answer in answers if answer.get("code") == 11]
        assert any("the plugin 'hangs' has not ended within 8 s" in words for words in given_up)

    @pytest.mark.parametrize("body", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60"])
    def test_a_delegate_that_is_given_up_is_ended(self, daemon: CniDaemon, tmp_path: Path, body: str):
        with _hangs(tmp_path, body) as process:
            config = {"do": "delegate-gone", "name": "hangs", "command": "GC"}
            gc = daemon.start("GC", config, container="", CNI_PATH=str(tmp_path)).feed()
            assert not _has_ended(process())
            answer = gc.end().json
            assert answer["code"] == 11
            assert "the plugin 'hangs' has not ended within 8 s and is not waited for any more" in answer["msg"]
            assert _has_ended(process())

    def test_a_lock_that_another_program_keeps_bars_those_that_need_it_alone(
        self, tmp_path: Path, bin_dir: Path, netns: Netns, make_netns: Callable[[], Netns]
    ):
        daemon = CniDaemon(tmp_path / "d", make_netns(), bin_dir, ours=True)
        config = self.host_local("held", tmp_path)
        with self.waiting(daemon, config, tmp_path, netns) as adds:
            for number in range(5):
                free = daemon.call(
                    "ADD",
                    self.host_local("free", tmp_path),
                    plugin="host-local",
                    container=f"f{number}",
                    CNI_NETNS=netns.path,
                )
                assert free["ips"]
            assert all(add.process.poll() is None for add in adds), "they wait meanwhile"
            answers = [add.end().json for add in adds]
        assert {answer["code"] for answer in answers} == {11}
        seen = f"locked by process {os.getpid()}, and not given free within 10 s"
        assert answers[0]["msg"] == f"{tmp_path}/nets/held/lock is {seen}"
        assert daemon.stop() == 0

    def test_a_container_whose_request_hangs_bars_its_own_requests_alone(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "hangs", f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
        config = {"do": "delegate-gone", "name": "hangs", "command": "ADD", "word": "hung"}
        hung = daemon.start("ADD", config, container="hung", CNI_PATH=str(tmp_path)).feed()
        eventually(lambda: "ADD hung hung" in daemon.journal())
        open_before, threads = self.open_files(daemon), self.threads(daemon)
        again = [daemon.start("DEL", {}, container="hung").feed() for _ in range(30)]
        eventually(lambda: self.open_files(daemon) >= open_before + 60)
        assert self.threads(daemon) <= threads + 1
        for client in again:
            client.kill()
        eventually(lambda: self.open_files(daemon) <= open_before)
        assert daemon.call("ADD", {}, container="free")["plugin"] == "bridge"
        (tmp_path / "go").touch()
        hung.end()

    def test_whatever_hangs_in_however_many_requests_others_pass(self, daemon: CniDaemon, tmp_path: Path):
        go = tmp_path / "go"
        config = {"do": "wait", "path": str(go), "word": "hangs"}
        clients = [daemon.start("ADD", config, container=f"hangs{number}").feed() for number in range(40)]
        eventually(lambda: len([line for line in daemon.journal() if "hangs" in line]) == 40)
        assert daemon.call("ADD", {}, container="passes")["plugin"] == "bridge"
        go.touch()
        assert [client.end().json.get("plugin") for client in clients] == ["bridge"] * 40

    def test_a_daemon_stops_although_a_lock_is_kept(self, tmp_path: Path, bin_dir: Path, make_netns: NewNetns):
        daemon, pod = CniDaemon(tmp_path / "d", make_netns(), bin_dir, ours=True), make_netns()
        with self.waiting(daemon, self.host_local("held", tmp_path), tmp_path, pod) as adds:
            assert daemon.stop() == 0
            assert {add.end().json["code"] for add in adds} == {11}

    @pytest.mark.parametrize("do", ["wait", "program"])
    def test_more_than_there_is_room_for_wait_in_the_backlog(
        self, tmp_path: Path, bin_dir: Path, netns: Netns, do: str
    ):
        limit = LEAST_DESCRIPTORS
        daemon = CniDaemon(tmp_path / "d", netns, bin_dir, wrapper=f"prlimit --nofile={limit}:{limit}")
        go = tmp_path / "go"
        config = {"do": do, "path": str(go)}
        clients = [daemon.start("ADD", config, container=f"c{number}").feed() for number in range(20)]
        eventually(lambda: len(connections(daemon)) == 21)
        eventually(lambda: len(daemon.journal()) == 4)
        assert self.open_files(daemon) < limit
        go.touch()
        assert [client.end().json.get("plugin") for client in clients] == ["bridge"] * 20
        assert (daemon.directory / "log").read_text() == ""
        daemon.stop()

    def test_thirty_wait_at_once_within_a_small_limit_of_memory(self, tmp_path: Path, bin_dir: Path, netns: Netns):
        """With one heap, as weftd and what stands in for it have."""
        wrapper = f"env MALLOC_ARENA_MAX=1 prlimit --as={256 << 20}"
        daemon = CniDaemon(tmp_path / "d", netns, bin_dir, wrapper=wrapper)
        go = tmp_path / "go"
        config = {"do": "wait", "path": str(go)}
        clients = [daemon.start("ADD", config, container=f"c{number}").feed() for number in range(30)]
        eventually(lambda: len(daemon.journal()) == 30)
        go.touch()
        assert [client.end().json.get("plugin") for client in clients] == ["bridge"] * 30
        assert (daemon.directory / "log").read_text() == ""
        daemon.stop()

    def test_without_descriptors_accepting_rests_and_says_so_once(self, own_daemon: CniDaemon):
        own_daemon.call("ADD", {}, container="c0")
        pid, log = own_daemon.process.pid, own_daemon.directory / "log"
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, usual[1]))
        client = own_daemon.start("ADD", {}, container="c1").feed()
        eventually(lambda: "RES-001 --cni-socket: cannot accept a client" in log.read_text())
        time.sleep(2)  # two more looks, or a hundred thousand
        assert log.read_text().count("\n") == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        assert client.end().json["plugin"] == "bridge"


def _program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@contextmanager
def _hangs(directory: Path, body: str) -> Iterator[Callable[[], int]]:
    """Make a program `hangs`; yields what waits until it runs and returns its process id. It is ended at last."""
    started = directory / "started"
    _program(directory / "hangs", f"echo $$ >{started}.new; mv {started}.new {started}; {body}")

    def process() -> int:
        eventually(started.exists)
        return int(started.read_text())

    try:
        yield process
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(started.read_text()), signal.SIGKILL)


def _has_ended(process: int) -> bool:
    """Tell whether a process of the client has ended, and been waited for."""
    return not Path(f"/proc/{process}").exists()


class TestDelegates:
    @pytest.mark.spec("flannel.md §10.4/run-delegate")
    def test_a_delegate_has_the_callers_environment_with_changes(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", 'cat; echo "$CNI_COMMAND $CNI_IFNAME ${CNI_ARGS-none} $TRACEPARENT" >&2; exit 7')
        config = {"do": "delegate", "name": "theirs", "command": "CHECK", "env": {"CNI_ARGS": "a=b"}}
        more = {"CNI_PATH": f"/nowhere:{tmp_path}", "TRACEPARENT": "00-1"}
        answer = daemon.call("ADD", config, **more)
        assert answer["ran"] == [7, json.dumps(config), "CHECK eth0 a=b 00-1\n"]

    @pytest.mark.parametrize("name", ["WEFT_T", "WEFT_TESTED"])
    def test_a_change_is_of_the_variable_of_that_name_alone(self, daemon: CniDaemon, tmp_path: Path, name: str):
        _program(tmp_path / "theirs", 'echo "${WEFT_TEST-none} ${WEFT_T-none} ${WEFT_TESTED-none}" >&2')
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "env": {name: "new"}}
        answer = daemon.call("ADD", config, CNI_PATH=str(tmp_path), WEFT_TEST="old")
        assert answer["ran"][2] == ("old new none\n" if name == "WEFT_T" else "old none new\n")

    def test_a_large_conversation(self, daemon: CniDaemon, tmp_path: Path):
        _program(
            tmp_path / "theirs",
            "head -c 900000 /dev/zero | tr '\\0' x; cat >/dev/null; head -c 99999 /dev/zero | tr '\\0' y >&2",
        )
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "pad": "y" * 500_000}
        status, out, err = daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"]
        assert (status, len(out), len(err)) == (0, 900_000, 65536)

    def test_a_delegate_that_does_not_read(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", "exec 0<&-; echo done")
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "pad": "y" * 500_000}
        assert daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"] == [0, "done\n", ""]

    def test_output_without_end_is_an_error(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", "head -c 3000000 /dev/zero")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        status, out, err = daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"]
        assert (status, out) == (125, "")
        assert "more than fits" in err

    def test_a_signal_is_128_and_more(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", "kill -9 $$")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        assert daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"][0] == 128 + 9

    def test_a_delegate_does_not_ignore_what_the_client_ignores(self, daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", "exec sed -n 's/^SigIgn:\t//p' /proc/self/status")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        ignored = int(daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"][1], 16)
        assert not ignored & 1 << (signal.SIGPIPE - 1)

    def test_what_a_delegate_leaves_behind_is_heard_to_its_end(self, daemon: CniDaemon, tmp_path: Path):
        """As the reference does: a result may come from a process that outlives the one that was started."""
        go, pid = tmp_path / "go", tmp_path / "pid"
        wait = f"while ! test -e {go}; do sleep 0.02; done"
        _program(tmp_path / "theirs", f"({wait}; echo late) 2>&- & echo $$ >{pid}.new; mv {pid}.new {pid}")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        client = daemon.start("ADD", config, container="late", CNI_PATH=str(tmp_path)).feed()
        eventually(pid.exists)
        stat = Path(f"/proc/{pid.read_text().strip()}/stat")
        eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("Z"))
        assert not select.select([client.process.stdout], [], [], 0.2)[0]
        go.touch()
        assert client.end().json["ran"] == [0, "late\n", ""]

    @pytest.mark.parametrize("name", ["none-here", "..", "../bin", "directory", "pipe", "", "a\0b", "x" * 64, "\ud800"])
    def test_what_is_no_file_of_that_name_is_missing(self, daemon: CniDaemon, tmp_path: Path, name: str):
        (tmp_path / "directory").mkdir()
        os.mkfifo(tmp_path / "pipe")
        config = {"do": "delegate", "name": name, "command": "ADD"}
        assert daemon.call("ADD", config, CNI_PATH=f":{tmp_path}::")["ran"] is None

    def test_what_cannot_be_executed_says_so(self, daemon: CniDaemon, tmp_path: Path):
        (tmp_path / "theirs").write_text("data")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        status, _, err = daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"]
        assert status == 126
        assert "ermission denied" in err

    @pytest.mark.spec("flannel.md §10.4/run-delegate")
    def test_text_file_busy_is_tried_again(self, daemon: CniDaemon, tmp_path: Path):
        program = tmp_path / "theirs"
        program.write_bytes(Path("/bin/true").read_bytes())
        program.chmod(0o755)
        writer = program.open("r+b")
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "word": "busy"}
        client = daemon.start("ADD", config, container="busy", CNI_PATH=str(tmp_path)).feed()
        eventually(lambda: "ADD busy busy" in daemon.journal())
        time.sleep(1.3)  # the second try, too, finds it so
        writer.close()
        assert client.end().json["ran"][0] == 0

    def test_a_delegates_time_is_not_ours(self, own_daemon: CniDaemon, tmp_path: Path):
        _program(tmp_path / "theirs", "sleep 2.5")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        assert own_daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"][0] == 0


class TestErrors:
    def test_what_fails_before_the_plugin_runs_is_told_as_what_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def refuse(*_: object) -> NoReturn:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(NodeHandles, "keep_root", refuse)
        node = open_node(str(tmp_path), retire=lambda _: None, lease_problem=lambda: "")
        service = Service(node=node, locks=ContainerLocks(node.state), run=lambda *_: Ran(exit=0), limit=SECONDS)
        asked = Call(plugin="bridge", stdin=b"{}", env=ENV)
        client, served = socket.socketpair()
        with client, descriptors() as named:
            own = {name: os.dup(number) for name, number in named.items()}
            Session(service, connection=served, call=asked, version=frames.VERSION, descriptors=own).serve()
            done = read_done(client)
        node.close()
        assert done
        assert json.loads(done.stdout) == {"code": 999, "msg": "[Errno 24] Too many open files"}

    def test_what_fails_after_the_answer_is_logged(self, own_daemon: CniDaemon, tmp_path: Path):
        go, turns = tmp_path / "go", own_daemon.state / "cni" / "turns"
        _program(tmp_path / "theirs", f"until test -e {go}; do sleep 0.02; done")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        client = own_daemon.start("ADD", config, CNI_PATH=str(tmp_path)).feed()
        eventually(lambda: turns.exists() and list(turns.iterdir()))
        [token] = turns.iterdir()
        token.unlink()
        token.mkdir()
        go.touch()
        assert client.end().json["ran"][0] == 0
        log = own_daemon.directory / "log"
        eventually(lambda: "after the answer to a CNI request: [Errno 21] Is a directory" in log.read_text())


class TestUndo:
    def test_a_client_that_goes_while_an_add_runs(self, daemon: CniDaemon, tmp_path: Path, netns: Netns):
        go = tmp_path / "go"
        config = {"do": "wait", "path": str(go), "word": "w", "del": "look"}
        client = daemon.start("ADD", config, container="killed", CNI_NETNS=netns.path).feed()
        eventually(lambda: "ADD killed w" in daemon.journal())
        client.kill()
        go.touch()
        eventually(lambda: "end killed w" in daemon.journal()[-1:] and "DEL killed w" in daemon.journal())

    def test_a_client_that_does_not_read_its_answer(self, daemon: CniDaemon):
        def inside() -> None:
            with descriptors() as named, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(str(daemon.socket))
                env = {**ENV, "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "unread"}
                socket.send_fds(sock, [call(env, named, stdin=b'{"word": "u"}')], list(named.values()))
                sock.settimeout(5)
                read_begun(sock)
                eventually(lambda: "end unread u" in daemon.journal())
                sock.recv(1, socket.MSG_PEEK)  # the answer has come, and stays where it is

        daemon.netns.call(inside)
        eventually(lambda: "DEL unread u" in daemon.journal())

    def test_a_client_that_has_its_answer_is_not_undone(self, daemon: CniDaemon):
        assert daemon.call("ADD", {"word": "kept"}, container="kept")
        assert daemon.call("ADD", {"word": "again"}, container="kept")
        assert not [line for line in daemon.journal() if line.startswith("DEL kept")]

    def test_a_failed_add_is_not_undone_by_the_server(self, daemon: CniDaemon):
        assert daemon.call("ADD", {"do": "fail", "word": "f"}, container="failed") == {"code": 100}
        assert daemon.call("ADD", {"word": "g"}, container="failed")
        assert "DEL failed f" not in daemon.journal()

    def test_a_client_that_goes_while_its_delegate_runs(self, daemon: CniDaemon, tmp_path: Path):
        started = tmp_path / "started"
        _program(tmp_path / "theirs", f"touch {started}; exec sleep 30")
        config = {"do": "delegate-gone", "name": "theirs", "command": "ADD", "word": "d"}
        client = daemon.start("ADD", config, container="gone", CNI_PATH=str(tmp_path)).feed()
        eventually(started.exists)
        children = daemon.netns.run(["pgrep", "-P", str(client.process.pid)], check=False).split()
        client.kill()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        eventually(lambda: "gone gone d" in daemon.journal() and "DEL gone d" in daemon.journal())

    def test_what_takes_too_long_is_answered_and_undone(self, own_daemon: CniDaemon, tmp_path: Path):
        go = tmp_path / "go"
        client = own_daemon.start("ADD", {"do": "wait", "path": str(go), "word": "slow"}, container="slow").feed()
        answer = client.end().json
        assert answer == {"code": 11, "msg": "weftd did not finish within 0.5 s"}
        go.touch()
        eventually(lambda: "DEL slow slow" in own_daemon.journal())


class TestEndings:
    def test_what_a_daemon_has_begun_when_it_dies_is_done_again_without_it(
        self, own_daemon: CniDaemon, make_netns: Callable[[], Netns]
    ):
        netns = make_netns()
        client = own_daemon.start("ADD", WAITING, plugin="loopback", container="c", CNI_NETNS=netns.path).feed()
        eventually(lambda: "ADD c " in own_daemon.journal())
        own_daemon.process.kill()
        assert client.end().json["interfaces"][0]["name"] == "lo"
        assert own_daemon.journal() == ["ADD c "]

    def test_where_nothing_does_it_again_it_is_said_what_to_do(
        self, own_daemon: CniDaemon, tmp_path: Path, make_netns: Callable[[], Netns]
    ):
        lone = Path(shutil.copy2(own_daemon.bin_dir / "loopback", tmp_path / "loopback"))
        netns = make_netns()
        own_daemon.bin_dir = lone.parent
        client = own_daemon.start("ADD", WAITING, plugin="loopback", container="c", CNI_NETNS=netns.path).feed()
        eventually(lambda: "ADD c " in own_daemon.journal())
        own_daemon.process.kill()
        out, _ = client.process.communicate(timeout=60)  # it waits for another daemon
        answer = json.loads(out)
        assert answer["code"] == 11
        assert "call DEL, which removes what ADD has made" in answer["msg"]
        assert "nothing stands in for it" in answer["msg"]

    @pytest.mark.parametrize("body", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60"])
    def test_a_daemon_that_dies_takes_the_delegates_of_its_requests_along(
        self, own_daemon: CniDaemon, tmp_path: Path, body: str
    ):
        """The call is made again then, which must not meet one that goes on."""
        with _hangs(tmp_path, body) as process:
            config = {"do": "delegate", "name": "hangs", "command": "ADD"}
            client = own_daemon.start("ADD", config, container="dies", CNI_PATH=str(tmp_path)).feed()
            assert not _has_ended(process())
            own_daemon.process.kill()
            assert "CNI_NETNS" in client.end().json["msg"]  # by the stand-in, whose plugins are real
            assert _has_ended(process())

    def test_a_daemon_that_stops_lets_requests_end(self, tmp_path: Path, bin_dir: Path, netns: Netns):
        daemon = CniDaemon(tmp_path / "d", netns, bin_dir)
        go = tmp_path / "go"
        client = daemon.start("ADD", {"do": "wait", "path": str(go), "word": "s"}, container="stop").feed()
        eventually(lambda: "ADD stop s" in daemon.journal())
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: not daemon.socket.exists())
        go.touch()
        assert client.end().json["plugin"] == "bridge"
        assert daemon.process.wait(SECONDS) == 0  # a second signal would kill it at its very end
        daemon.log.close()
        assert "DEL stop s" not in daemon.journal()

    def test_what_a_daemon_has_not_begun_when_it_dies_is_done_without_it(
        self, own_daemon: CniDaemon, make_netns: Callable[[], Netns]
    ):
        """One request waits for its turn, the other one in the backlog."""
        netns = make_netns()
        config = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
        first = own_daemon.start("ADD", WAITING, plugin="loopback", container="c", CNI_NETNS=netns.path).feed()
        eventually(lambda: "ADD c " in own_daemon.journal())
        waits = own_daemon.start("ADD", config, plugin="loopback", container="c", CNI_NETNS=netns.path).feed()
        eventually(lambda: len(connections(own_daemon)) == 3)
        own_daemon.process.send_signal(signal.SIGSTOP)
        unseen = own_daemon.start("ADD", config, plugin="loopback", container="d", CNI_NETNS=netns.path).feed()
        eventually(lambda: len(connections(own_daemon)) == 4)
        own_daemon.process.kill()
        assert first.end().json["interfaces"][0]["name"] == "lo"
        assert waits.end().json["interfaces"][0]["name"] == "lo"
        assert unseen.end().json["interfaces"][0]["name"] == "lo"

    def test_a_daemon_that_stops_serves_those_that_have_come(self, tmp_path: Path, bin_dir: Path, netns: Netns):
        """They wait in the backlog when the signal comes. By clients that could not do without it."""
        daemon = CniDaemon(tmp_path / "d", netns, bin_dir)
        daemon.call("ADD", {}, container="c0")
        daemon.process.send_signal(signal.SIGSTOP)

        def inside() -> list[Ran | None]:
            with ExitStack() as opened:
                sockets = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(60)]
                for number, sock in enumerate(sockets):
                    sock.settimeout(SECONDS)
                    sock.connect(str(daemon.socket))
                    with descriptors() as named:
                        env = {**ENV, "CNI_CONTAINERID": f"c{number}"}
                        socket.send_fds(sock, [call(env, named, version=1)], list(named.values()))
                daemon.process.send_signal(signal.SIGTERM)
                daemon.process.send_signal(signal.SIGCONT)
                return [read_done(sock) for sock in sockets]

        answers = netns.call(inside)
        assert [done and done.exit for done in answers] == [0] * 60
        assert daemon.process.wait(SECONDS) == 0
        daemon.log.close()

    def test_a_second_daemon_for_one_socket_is_told_so(self, daemon: CniDaemon):
        from weft.cni.serve.endpoint import Endpoint
        from weft.model.errors import Unavailable

        with pytest.raises(Unavailable, match=r"INST-001.*another daemon serves it"):
            Endpoint.open(str(daemon.socket))
        assert daemon.call("ADD", {"do": "look"})

    def test_what_a_dead_daemon_has_left_is_taken_over(self, tmp_path: Path, bin_dir: Path, netns: Netns):
        first = CniDaemon(tmp_path / "d", netns, bin_dir)
        first.process.kill()
        first.process.wait()
        first.log.close()
        assert first.socket.exists()
        second = CniDaemon(tmp_path / "d", netns, bin_dir)
        assert second.call("ADD", {"do": "look"})
        second.stop()
        assert not second.socket.exists()

    def test_a_connection_without_a_word_costs_nothing(self, daemon: CniDaemon):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.connect(str(daemon.socket))
            assert daemon.call("ADD", {"do": "look"})
            silent.settimeout(15)
            done = read_done(silent)
        assert done
        assert "no request within 5 s" in json.loads(done.stdout)["msg"]
