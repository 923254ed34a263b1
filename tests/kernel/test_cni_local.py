"""Without a daemon: the real client becomes Python, and the same plugins do the same work in their own process."""

import errno
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cnidaemon import CniDaemon, wait_for
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.host.descriptors import describe_netns_problem
from weft.cni.host.files import RootedFiles
from weft.cni.host.locks import ContainerLocks
from weft.cni.host.openat import open_root
from weft.cni.install.executables import install
from weft.cni.serve import afterwards
from weft.cni.serve.local import _Delegates, _open_descriptors
from weft.kernel.netfilter.nfnetlink import NfSocket


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


class Node:
    """A host namespace without a daemon."""

    def __init__(self, netns: Netns, bin_dir: Path, directory: Path) -> None:
        self.netns = netns
        self.bin_dir = bin_dir
        self.state = directory / "state"
        self.config = {
            "cniVersion": "1.0.0",
            "name": "local",
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(directory / "nets"),
                "ranges": [[{"subnet": "10.9.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }

    def start(self, command: str, pod: str, *, plugin: str = "bridge", **env: str) -> "subprocess.Popen[bytes]":
        everything = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": pod,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(self.bin_dir),
            "WEFT_CNI_SOCKET": str(self.state / "none"),
            "WEFT_STATE_DIR": str(self.state),
            **env,
        }
        return self.netns.popen(
            [str(self.bin_dir / plugin)], env=everything, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, command: str, pod: str, config: dict[str, object] | None = None, **more: str) -> Any:
        process = self.start(command, pod, **more)
        out, _ = process.communicate(json.dumps(config or self.config).encode(), 30)
        return json.loads(out) if out else None


@pytest.fixture
def node(netns: Netns, bin_dir: Path, tmp_path: Path) -> Node:
    return Node(netns, bin_dir, tmp_path)


def test_a_pod_is_attached_and_detached(node: Node, make_netns):
    pod = make_netns()
    machine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    result = node.call("ADD", pod.path)
    assert result["ips"] == [{"interface": 2, "address": "10.9.0.2/24", "gateway": "10.9.0.1"}]
    assert node.netns.run("ping -c1 -W2 10.9.0.2")
    assert pod.run("ping -c1 -W2 10.9.0.1")
    assert node.call("DEL", pod.path) is None
    assert pod.rtnl.link("eth0") is None
    # No daemon comes to delete the links: a process that the plugin has left does.
    wait_for(lambda: [link.kind for link in node.netns.rtnl.links() if link.kind == "veth"] == [])
    assert node.call("DEL", pod.path) is None
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == machine


def test_whoever_deletes_the_links_holds_up_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It has no descriptor of the plugin's, so that whoever reads the answer comes to its end."""
    read, write = os.pipe()
    go, done = tmp_path / "go", tmp_path / "done"

    def delete(retired: list[int]) -> None:
        wait_for(go.exists)
        held = [each.name for each in Path("/proc/self/fd").iterdir()]
        done.write_text(f"{retired} in {Path.cwd()} with {len(held)} descriptors")

    monkeypatch.setattr(afterwards, "delete", delete)
    afterwards.leave([7, 8], [])
    os.close(write)
    assert os.read(read, 1) == b"", "the end, while the child still works"
    os.close(read)
    go.touch()
    wait_for(lambda: done.exists() and done.read_text().endswith("descriptors"))
    # No more than the one that lists them, and the one by which it hears of the plugin's end.
    assert done.read_text() == "[7, 8] in / with 2 descriptors"
    os.wait()


def test_a_socket_that_deleted_is_closed_last_by_whoever_waits_for_it(
    netns: Netns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The kernel frees what was deleted before the last one who has the socket has closed it."""
    _, slow = sockets = [netns.call(NfSocket.open) for _ in range(2)]
    slow.slow_to_close = True
    numbers, done = [sock.fileno() for sock in sockets], tmp_path / "done"

    def delete(_: Sequence[int]) -> None:
        wait_for(go.exists)
        done.write_text(" ".join(str(Path(f"/proc/self/fd/{number}").exists()) for number in numbers))

    go = tmp_path / "go"
    monkeypatch.setattr(afterwards, "delete", delete)
    afterwards.leave([], sockets)
    assert not any(Path(f"/proc/self/fd/{number}").exists() for number in numbers)
    go.touch()
    wait_for(lambda: done.exists() and done.read_text())
    assert done.read_text() == "False True", "it has the slow one still, when here it is closed"
    os.wait()


def test_without_room_for_a_process_the_links_go_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    deleted: list[int] = []
    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(afterwards, "delete", deleted.extend)
    afterwards.leave([7], [])
    assert deleted == [7]


def test_a_second_add_fails_and_a_del_without_namespace_frees(node: Node, tmp_path: Path, make_netns):
    pod = make_netns()
    assert node.call("ADD", pod.path)["ips"]
    # Again by another process, as a runtime that has lost count would: an error, and nothing of the first is lost.
    assert node.call("ADD", pod.path)["code"]
    assert pod.rtnl.link("eth0") is not None
    assert node.call("DEL", "") is None
    assert not (tmp_path / "nets" / "local" / "10.9.0.2").exists()


def test_it_waits_for_the_containers_turn(node: Node, make_netns):
    pod = make_netns()
    node.call("VERSION", pod.path)
    (node.state / "cni").mkdir(parents=True)
    root = open_root(str(node.state / "cni"))
    locks = ContainerLocks(RootedFiles(root))
    with locks.hold({"CNI_CONTAINERID": "c1"}):
        process = node.start("ADD", pod.path)
        assert process.stdin
        process.stdin.write(json.dumps(node.config).encode())
        process.stdin.close()
        process.stdin = None
        # Another container's call comes and goes meanwhile.
        assert node.call("ADD", make_netns().path, CNI_CONTAINERID="c2")["ips"]
        assert process.poll() is None
        assert pod.rtnl.link("eth0") is None
    out, _ = process.communicate(timeout=20)
    assert json.loads(out)["ips"]
    assert pod.rtnl.link("eth0") is not None
    os.close(root)


@pytest.mark.spec("flannel.md §10.3/absent")
def test_a_missing_subnet_file_is_blamed_on_the_missing_daemon(node: Node, make_netns, tmp_path: Path):
    config = {"cniVersion": "1.0.0", "name": "n", "type": "flannel", "subnetFile": str(tmp_path / "none")}
    answer = node.call("ADD", make_netns().path, config, plugin="flannel")
    assert "weftd does not run on this node" in json.dumps(answer)


@pytest.mark.spec("flannel.md §10.1/banner")
@pytest.mark.parametrize("plugin", ["bridge", "flannel", "host-local", "loopback", "portmap"])
def test_without_a_command_a_plugin_says_what_it_is(node: Node, bin_dir: Path, plugin: str):
    env = {"WEFT_CNI_SOCKET": str(node.state / "none"), "WEFT_STATE_DIR": str(node.state)}
    read, write = os.pipe()
    done = subprocess.run(
        [bin_dir / plugin], env=env, stdin=read, capture_output=True, text=True, timeout=20, check=True
    )
    os.close(read)
    os.close(write)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].startswith(f"CNI {plugin} plugin ")
    assert done.stderr.splitlines()[1].startswith("CNI protocol versions supported: 0.1.0, 0.2.0, ")


def test_a_variable_that_is_not_utf_8_is_error_4(node: Node, make_netns):
    answer = node.call("ADD", make_netns().path, CNI_ARGS="\udcff")
    assert answer == {"code": 4, "msg": "the environment variable CNI_ARGS is not UTF-8"}


def test_a_state_directory_that_cannot_be_used_is_error_11(node: Node, make_netns):
    answer = node.call("ADD", make_netns().path, WEFT_STATE_DIR="/proc/none")
    assert answer["code"] == 11
    assert "/proc/none" in answer["msg"]


@pytest.mark.parametrize(
    "path", ["/run/netns/none-here", "/dev/null", "/proc/self/ns/uts", "/proc/1/ns/none", "/etc/hostname/x"]
)
def test_a_namespace_that_cannot_be_used_is_described_as_by_the_daemon(
    tmp_path: Path, netns: Netns, bin_dir: Path, path: str
):
    from contextlib import ExitStack

    daemon = CniDaemon(tmp_path / "d", netns, bin_dir)
    said = daemon.call("ADD", {"do": "look"}, CNI_NETNS=path)["problem"]
    daemon.stop()
    with ExitStack() as opened:
        found = _open_descriptors("bridge", path, opened)
        assert "netns" not in found.descriptors
        assert describe_netns_problem(found.problem, path) == said != ""


@pytest.mark.parametrize("problem", ["open 99999", "open " + "9" * 50, "open ²", "open x", "statfs"])
def test_a_reason_that_no_client_of_ours_gives_is_passed_on_as_it_is(problem: str):
    assert problem in describe_netns_problem(problem, "/run/netns/x")


class TestDelegates:
    def delegates(self, directory: Path) -> _Delegates:
        return _Delegates(
            {"CNI_PATH": f":/nowhere:{directory}", "CNI_COMMAND": "ADD", "PATH": os.environ["PATH"]}, None
        )

    def program(self, path: Path, body: str) -> None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def test_one_gets_environment_and_configuration(self, tmp_path: Path):
        self.program(tmp_path / "theirs", 'cat; echo "$CNI_COMMAND $CNI_ARGS" >&2; exit 7')
        ran = self.delegates(tmp_path).run("theirs", "DEL", {"CNI_ARGS": "a=b"}, b"{}")
        assert ran
        assert (ran.exit, ran.stdout, ran.stderr) == (7, b"{}", b"DEL a=b\n")

    def test_a_signal_counts_from_128(self, tmp_path: Path):
        self.program(tmp_path / "theirs", "kill -9 $$")
        ran = self.delegates(tmp_path).run("theirs", "ADD", {}, b"")
        assert ran
        assert ran.exit == 128 + 9

    @pytest.mark.parametrize("name", ["", ".", "..", "none", "../theirs", "directory", "a\0b", "\ud800"])
    def test_what_is_no_file_of_that_name_is_missing(self, tmp_path: Path, name: str):
        (tmp_path / "directory").mkdir()
        self.program(tmp_path.parent / "theirs", "true")
        assert self.delegates(tmp_path).run(name, "ADD", {}, b"") is None

    def test_what_cannot_be_executed_says_so(self, tmp_path: Path):
        (tmp_path / "theirs").write_text("data")
        ran = self.delegates(tmp_path).run("theirs", "ADD", {}, b"")
        assert ran
        assert ran.exit == 126
        assert b"ermission denied" in ran.stderr

    @pytest.mark.spec("flannel.md §10.4/run-delegate")
    def test_text_file_busy_is_tried_again(self, tmp_path: Path):
        program = tmp_path / "theirs"
        program.write_bytes(Path("/bin/true").read_bytes())
        program.chmod(0o755)
        writer = program.open("r+b")
        timer = threading.Timer(0.3, writer.close)
        timer.start()
        ran = self.delegates(tmp_path).run("theirs", "ADD", {}, b"")
        timer.join()
        assert ran
        assert ran.exit == 0

    def test_one_that_calls_us_back_does_not_wait_for_itself(self, node: Node, make_netns, tmp_path: Path):
        """A foreign IPAM program that calls host-local of ours for the container whose turn it is."""
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        self.program(theirs / "their-ipam", f"exec {node.bin_dir}/host-local")
        config = json.loads(json.dumps(node.config))
        config["ipam"]["type"] = "their-ipam"
        pod = make_netns()
        result = node.call("ADD", pod.path, config, CNI_PATH=f"{theirs}:{node.bin_dir}")
        assert [ip["address"] for ip in result["ips"]] == ["10.9.0.2/24"]
