"""Without a daemon: the first client starts a stand-in, which serves all calls of the node until none comes."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.standinnode import Node
from tests.support.checkout import CHECKOUT
from tests.support.cni.call import Answer
from tests.support.cni.standins import kill_stand_ins, stand_ins
from tests.support.netns import SECONDS, Netns
from tests.support.waiting import eventually
from weft.cni.host.files import RootedFiles
from weft.cni.host.host import describe_netns_problem
from weft.cni.host.locks import ContainerLocks
from weft.cni.host.openat import open_root
from weft.cni.serve.server import LEAST_DESCRIPTORS

LIMITS = ("SEND", "BEGIN", "START", "ANSWER", "REPEAT")


@pytest.fixture
def node(netns: Netns, bin_dir: Path, tmp_path: Path) -> Iterator[Node]:
    yield Node(netns, bin_dir, tmp_path)
    kill_stand_ins(tmp_path)


def test_a_pod_is_attached_and_detached(node: Node, make_netns):
    pod = make_netns()
    machine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    result = node.ask("ADD", pod.path)
    assert result["ips"] == [{"interface": 2, "address": "10.9.0.2/24", "gateway": "10.9.0.1"}]
    assert node.netns.run("ping -c1 -W2 10.9.0.2")
    assert pod.run("ping -c1 -W2 10.9.0.1")
    assert node.ask("DEL", pod.path) is None
    assert pod.rtnl.link("eth0") is None
    eventually(lambda: [link.kind for link in node.netns.rtnl.links() if link.kind == "veth"] == [])
    assert node.ask("DEL", pod.path) is None
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == machine


def test_a_second_add_fails_and_a_del_without_namespace_frees(node: Node, tmp_path: Path, make_netns):
    pod = make_netns()
    assert node.ask("ADD", pod.path)["ips"]
    # Again by another process, as a runtime that has lost count would: an error, and nothing of the first is lost.
    assert node.ask("ADD", pod.path)["code"]
    assert pod.rtnl.link("eth0") is not None
    assert node.ask("DEL", "") is None
    assert not (tmp_path / "nets" / "local" / "10.9.0.2").exists()


def test_it_waits_for_the_containers_turn(node: Node, make_netns):
    pod = make_netns()
    node.ask("VERSION", pod.path)
    (node.state / "cni").mkdir(parents=True)
    root = open_root(str(node.state / "cni"))
    locks = ContainerLocks(RootedFiles(root))
    with locks.hold({"CNI_CONTAINERID": "c1"}):
        call = node.begin("ADD", pod.path)
        # Another container's call comes and goes meanwhile.
        assert node.ask("ADD", make_netns().path, CNI_CONTAINERID="c2")["ips"]
        assert call.process.poll() is None
        assert pod.rtnl.link("eth0") is None
    assert call.end().result["ips"]
    assert pod.rtnl.link("eth0") is not None
    os.close(root)


@pytest.mark.spec("flannel.md §10.3/absent")
def test_a_missing_subnet_file_is_blamed_on_the_missing_daemon(node: Node, make_netns, tmp_path: Path):
    config = {"cniVersion": "1.0.0", "name": "n", "type": "flannel", "subnetFile": str(tmp_path / "none")}
    answer = node.ask("ADD", make_netns().path, config, plugin="flannel")
    assert "weftd does not run on this node" in json.dumps(answer)


@pytest.mark.spec("flannel.md §10.1/banner")
@pytest.mark.parametrize("plugin", ["bridge", "flannel", "host-local", "loopback", "portmap"])
def test_without_a_command_a_plugin_says_what_it_is(node: Node, bin_dir: Path, plugin: str):
    env = {"WEFT_CNI_SOCKET": str(node.run / "cni.sock"), "WEFT_STATE_DIR": str(node.state)}
    read, write = os.pipe()
    done = subprocess.run(
        [bin_dir / plugin], env=env, stdin=read, capture_output=True, text=True, timeout=200, check=True
    )
    os.close(read)
    os.close(write)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].startswith(f"CNI {plugin} plugin ")
    assert done.stderr.splitlines()[1].startswith("CNI protocol versions supported: 0.1.0, 0.2.0, ")


def test_a_variable_that_is_not_utf_8_is_error_4(node: Node, make_netns):
    answer = node.ask("ADD", make_netns().path, CNI_ARGS="\udcff")
    assert answer == {"code": 4, "msg": "the environment variable CNI_ARGS is not UTF-8"}


def test_a_state_directory_that_cannot_be_used_is_error_11(node: Node, make_netns):
    answer = node.ask("ADD", make_netns().path, WEFT_STATE_DIR="/proc/none")
    assert answer["code"] == 11
    assert "/proc/none" in answer["msg"]


@pytest.mark.parametrize("problem", ["open 99999", "open " + "9" * 50, "open ²", "open x", "statfs"])
def test_a_reason_that_no_client_of_ours_gives_is_passed_on_as_it_is(problem: str):
    assert problem in describe_netns_problem(problem, "/run/netns/x")


def test_a_delegate_that_calls_us_back_does_not_wait_for_itself(node: Node, make_netns, tmp_path: Path):
    """A foreign IPAM program that calls host-local of ours for the container whose turn it is."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "their-ipam").write_text(f"#!/bin/sh\nexec {node.bin_dir}/host-local\n")
    (theirs / "their-ipam").chmod(0o755)
    config = json.loads(json.dumps(node.config))
    config["ipam"]["type"] = "their-ipam"
    pod = make_netns()
    # It was started by a caller with another CNI_PATH.
    assert node.ask("ADD", make_netns().path, CNI_CONTAINERID="c0")["ips"]
    result = node.ask("ADD", pod.path, config, CNI_PATH=f"{theirs}:{node.bin_dir}")
    assert [ip["address"] for ip in result["ips"]] == ["10.9.0.3/24"]
    assert node.started == 1


class TestOne:
    """One stands in for a node, and no more."""

    def test_thirty_clients_at_once_start_one(self, node: Node):
        calls = [node.begin("DEL", container=f"c{number}") for number in range(30)]
        assert [call.end() for call in calls] == [Answer(exit=0, json=None, stderr="")] * 30
        assert (node.started, len(stand_ins(node.run))) == (1, 1)

    def test_it_ends_by_itself_and_leaves_no_file(self, node: Node):
        assert node.ask("DEL", "") is None
        [pid] = stand_ins(node.run)
        assert len(list(node.run.iterdir())) == 1
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        assert list(node.run.iterdir()) == []
        assert node.ask("DEL", "") is None
        assert node.started == 2

    def test_nothing_of_its_caller_is_kept(self, node: Node, tmp_path: Path):
        """Not its streams, not what else it had open, not its directory: a runtime waits for the end of its pipes."""
        read, write = os.pipe()
        environment = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_PATH": "/none"}
        environment |= {"WEFT_CNI_SOCKET": str(node.run / "cni.sock"), "WEFT_STATE_DIR": str(node.state)}
        pipe = subprocess.PIPE
        done = subprocess.run(
            ["sh", "-c", f"umask 0; exec {node.bin_dir}/bridge"],
            env={**environment, "PATH": os.environ["PATH"]},
            input=json.dumps(node.config).encode(),
            stdout=pipe,
            stderr=pipe,
            pass_fds=[write],
            cwd=tmp_path,
            timeout=SECONDS,
            check=True,
        )
        os.close(write)
        assert done.stdout == b""
        assert os.read(read, 1) == b"", "the end, while it lives"
        os.close(read)
        [pid] = stand_ins(node.run)
        process = Path(f"/proc/{pid}")
        assert [str((process / "fd" / number).readlink()) for number in "01"] == ["/dev/null"] * 2
        assert str((process / "fd" / "2").readlink()).startswith("/memfd:weft-standin")
        assert not [link for link in process.glob("fd/*") if str(link.readlink()).startswith("pipe:")]
        assert str((process / "cwd").readlink()) == "/"
        assert "Umask:\t0022" in (process / "status").read_text()
        session, terminal = (process / "stat").read_text().rpartition(")")[2].split()[3:5]
        assert (int(session), terminal) == (pid, "0")

    @pytest.mark.parametrize(
        "other", ["mounts", "network", "root", "state", "lock of iptables", "installation", "daemon"]
    )
    def test_a_caller_that_would_mean_something_else_has_its_own(
        self, node: Node, make_netns: Callable[[], Netns], tmp_path: Path, other: str
    ):
        assert node.ask("DEL", "") is None
        more = {}
        if other == "mounts":
            node.prefix = ["unshare", "--mount"]
        elif other == "network":
            node.netns = make_netns()
        elif other == "root":
            (tmp_path / "r").mkdir()
            script = f'mount --rbind / {tmp_path}/r; exec chroot {tmp_path}/r "$@"'
            node.prefix = ["unshare", "--mount", "sh", "-ec", script, "sh"]
        elif other == "state":
            more = {"WEFT_STATE_DIR": str(tmp_path / "other")}
        elif other == "lock of iptables":
            more = {"XTABLES_LOCKFILE": str(tmp_path / "lock")}
        elif other == "installation":
            node.interpreter()
        else:  # a daemon was here meanwhile, and has another state directory
            (node.run / "state-dir").write_text("/var/lib/other")
        assert node.ask("DEL", "", **more) is None
        assert (node.started, len(stand_ins(node.run))) == (2, 2)


def test_the_limits_fit_together():
    """A call ends before its runtime gives it up, after two minutes at the least, whatever hangs."""
    header = (CHECKOUT / "src" / "weft" / "cni" / "client" / "weft.h").read_text()
    limits = {name: int(header.partition(f"#define {name}_SECONDS ")[2].split()[0]) for name in LIMITS}
    # A server that was lost; the daemon's socket, the directory's lock, the stand-in's socket; a hanging daemon, its
    # stand-in, the answer.
    assert limits["REPEAT"] + 3 * limits["SEND"] + limits["BEGIN"] + limits["START"] + limits["ANSWER"] <= 120


def test_a_caller_needs_as_many_descriptors_as_a_server_does():
    source = (CHECKOUT / "src" / "weft" / "cni" / "client" / "standin.c").read_text()
    assert f"{{RLIMIT_NOFILE, {LEAST_DESCRIPTORS}, " in source


class TestOthers:
    """Who is not root cannot use, start or plant one."""

    def without(self, node: Node, *prefix: str, socket_path: Path) -> Any:
        node.prefix = prefix
        return node.ask("DEL", "", WEFT_CNI_SOCKET=str(socket_path))

    @pytest.fixture
    def reachable(self, tmp_path: Path) -> Path:
        for parent in (tmp_path / "bin", tmp_path, *tmp_path.parents[:-2]):
            parent.chmod(parent.stat().st_mode | 0o005)
        return tmp_path

    def test_another_user_can_neither_use_nor_start_one(self, node: Node, reachable: Path):
        assert node.ask("DEL", "") is None
        nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        answer = self.without(node, *nobody, socket_path=node.run / "cni.sock")
        assert "Permission denied" in answer["msg"]
        theirs = reachable / "theirs"
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        assert "theirs: not owned by root" in self.without(node, *nobody, socket_path=theirs / "cni.sock")["msg"]
        assert node.started == 1

    @pytest.mark.parametrize(
        "mode, owner, problem",
        [
            (0o770, 0, "open to others than root"),
            (0o733, 0, "open to others than root"),
            (0o700, 65534, "not owned by root"),
        ],
    )
    def test_a_directory_of_others_is_refused(self, node: Node, tmp_path: Path, mode: int, owner: int, problem: str):
        planted = tmp_path / "planted"
        planted.mkdir()
        planted.chmod(mode)
        os.chown(planted, owner, owner)
        answer = self.without(node, socket_path=planted / "cni.sock")
        assert answer["msg"].endswith(f"no socket of a stand-in can be in {planted}: {problem}")
        assert node.started == 0
        assert list(planted.iterdir()) == []

    def test_a_directory_for_all_to_see_is_closed_if_nobody_uses_it(self, node: Node, tmp_path: Path):
        for name, used in (("fresh", False), ("used", True)):
            (tmp_path / name).mkdir(mode=0o755)
            if used:
                (tmp_path / name / "theirs").touch()
        assert self.without(node, socket_path=tmp_path / "fresh" / "cni.sock") is None
        assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o700
        assert "open to others" in self.without(node, socket_path=tmp_path / "used" / "cni.sock")["msg"]
        assert (tmp_path / "used").stat().st_mode & 0o777 == 0o755

    def test_a_link_to_a_directory_of_others_is_one_too(self, node: Node, tmp_path: Path):
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        (tmp_path / "link").symlink_to("open")
        assert "open to others" in self.without(node, socket_path=tmp_path / "link" / "cni.sock")["msg"]

    @pytest.mark.parametrize("path", ["/proc/none/cni.sock", "/dev/null/cni.sock"])
    def test_a_directory_that_cannot_be_made_is_told(self, node: Node, path: str):
        answer = self.without(node, socket_path=Path(path))
        assert f"no socket of a stand-in can be in {Path(path).parent}" in answer["msg"]

    def test_what_has_its_name_and_is_no_socket_is_replaced(self, node: Node):
        assert node.ask("DEL", "") is None
        [name] = node.run.iterdir()
        kill_stand_ins(node.run)
        name.unlink()
        name.write_text("something")
        assert node.ask("DEL", "") is None
        assert node.started == 2
