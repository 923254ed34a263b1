"""The daemon's CNI server, as a process in a namespace, with the real client and with clients that break the rules."""

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kernel.cniserved import ENV, connections, hangs, has_ended
from tests.support.cni.call import SECONDS
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.frames import (
    call,
    descriptors,
    read_done,
)
from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.wire.cni import Ran

# What the daemon of these tests keeps waiting, and a real plugin does.
WAITING = {"do": "wait", "path": "/none", "cniVersion": "1.0.0", "name": "lo", "type": "loopback"}


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
        ("/dev/null/p1", True, 'failed to Statfs "/dev/null/p1": not a directory'),
        (f"/{'p' * 256}", True, f'failed to Statfs "/{"p" * 256}": file name too long'),
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


def test_a_link_to_itself_leads_to_no_namespace(daemon: CniDaemon, tmp_path: Path):
    link = tmp_path / "p1"
    link.symlink_to(link)
    answer = daemon.call("ADD", {"do": "look"}, CNI_NETNS=str(link))
    assert (answer["gone"], answer["problem"]) == (
        True,
        f'failed to Statfs "{link}": too many levels of symbolic links',
    )


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
        with hangs(tmp_path, body) as process:
            config = {"do": "delegate", "name": "hangs", "command": "ADD"}
            client = own_daemon.start("ADD", config, container="dies", CNI_PATH=str(tmp_path)).feed()
            assert not has_ended(process())
            own_daemon.process.kill()
            assert "CNI_NETNS" in client.end().json["msg"]  # by the stand-in, whose plugins are real
            assert has_ended(process())

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
