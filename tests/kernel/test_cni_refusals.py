"""Whom and what the socket of the daemon refuses: other users, frames out of turn, descriptors of another kind."""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.kernel.cniserved import ENV
from tests.support.cni.call import SECONDS
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
from weft.cni.host.sysctls import open_all_settings, open_settings
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Call, Frame, Kind

NETLINK_NETFILTER = 12  # linux/netlink.h


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
