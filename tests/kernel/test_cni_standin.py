"""Without a daemon: the first client starts a stand-in, which serves all calls of the node until none comes."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.cniclient import compiled
from tests.support.checkout import CHECKOUT
from tests.support.cni.call import Answer, Caller, Started
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.standins import kill_stand_ins, stand_ins
from tests.support.netns import SECONDS, Netns
from tests.support.waiting import eventually
from weft.cni import build
from weft.cni.host.files import RootedFiles
from weft.cni.host.host import describe_netns_problem
from weft.cni.host.locks import ContainerLocks
from weft.cni.host.openat import open_root
from weft.cni.install.executables import install
from weft.cni.serve.server import LEAST_DESCRIPTORS
from weft.wire import frames

WITHOUT_RESOURCE = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "--")
LIMITS = ("SEND", "BEGIN", "START", "ANSWER", "REPEAT")


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with limits of seconds."""
    limits = ["-DSEND_SECONDS=1", "-DBEGIN_SECONDS=1", "-DSTART_SECONDS=8"]
    return compiled(tmp_path_factory.mktemp("hasty"), "musl-gcc", *limits, "-static")


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client that waits for a daemon for ever."""
    return compiled(tmp_path_factory.mktemp("patient"), "musl-gcc", "-DBEGIN_SECONDS=1000", "-static")


class Node(Caller):
    """A host namespace without a daemon, and its own installation: each start of a stand-in is noted in `starts`."""

    def __init__(self, netns: Netns, bin_dir: Path, directory: Path) -> None:
        self.run = directory / "daemon" / "run"
        own = Path(shutil.copytree(bin_dir, directory / "bin"))
        super().__init__(netns, own, socket=self.run / "cni.sock", state=directory / "daemon" / "state")
        self.starts = directory / "starts"
        self.interpreter()
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

    def interpreter(self, first: str = "") -> None:
        """Put a program in the interpreter's place that does something `first`."""
        python = self.bin_dir / "python"
        python.write_text(f'#!/bin/sh\necho $$ >>{self.starts}\n{first}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (self.bin_dir / ".weft-python").write_text(f"{python}\n")

    @property
    def started(self) -> int:
        """How many stand-ins have been started."""
        return len(self.starts.read_text().split()) if self.starts.exists() else 0

    def begin(self, command: str, pod: str = "", config: dict[str, Any] | None = None, **more: str) -> Started:
        """Start a call for a pod."""
        return self.start(command, config or self.config, CNI_NETNS=pod, **more).feed()

    def ask(self, command: str, pod: str = "", config: dict[str, Any] | None = None, **more: str) -> Any:
        """Call a plugin for a pod; returns what it printed, decoded."""
        return self.begin(command, pod, config, **more).end().json


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


BOUNDS = {
    "few descriptors": ["prlimit", "--nofile=20:"],
    "small files": ["prlimit", "--fsize=10:"],
    "little time": ["prlimit", "--cpu=1:"],
    "little memory": ["prlimit", "--as=100000000:"],
}
POOR = {
    "few descriptors": (["prlimit", "--nofile=20"], "20 descriptors"),
    "small files": (["prlimit", "--fsize=10"], "10 bytes of a file"),
}


class TestBounds:
    """What the first client may and has is not what all others get."""

    @pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS.keys())
    def test_a_low_limit_that_a_client_may_raise_is_raised(self, node: Node, make_netns, bound: list[str]):
        pod = make_netns()
        node.prefix = bound
        assert node.ask("ADD", pod.path)["ips"]
        node.prefix = ()
        assert node.ask("ADD", make_netns().path, CNI_CONTAINERID="c2")["ips"]
        assert node.started == 1

    def test_an_interpreter_far_down_takes_no_more_descriptors(self, node: Node, make_netns):
        settings = node.bin_dir / ".weft-python"
        deep = node.bin_dir.joinpath(*map(str, range(30)))
        deep.mkdir(parents=True)
        (deep / "python").symlink_to(settings.read_text().strip())
        settings.write_text(f"{deep}/python\n")
        node.prefix = ["prlimit", "--nofile=20:"]
        said = node.ask("ADD", make_netns().path)
        assert "ips" in said, said

    def test_a_limit_that_root_may_raise_keeps_nobody_from_it(self, node: Node, make_netns):
        """Raising it takes CAP_SYS_RESOURCE, which root of a container lacks: here the kernel only says so."""
        code = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from tests.support.oldkernel import refuse"
        run = f"{code}; refuse('prlimit64', 0, unless_0=2); import os; os.execv(sys.argv[1], sys.argv[1:])"
        node.prefix = ["prlimit", "--cpu=30", sys.executable, "-c", run]
        said = node.ask("ADD", make_netns().path)
        assert "ips" in said, said
        assert node.started == 1

    @pytest.mark.parametrize("bound, says", POOR.values(), ids=POOR.keys())
    def test_a_limit_that_serves_nobody_is_told_and_keeps_no_other_from_it(
        self, node: Node, make_netns, bound: list[str], says: str
    ):
        node.prefix = [*WITHOUT_RESOURCE, *bound]
        for _ in range(3):
            said = node.ask("ADD", make_netns().path)
            assert said["code"] == 11
            assert "HOST-002: weftd does not answer" in said["msg"] + said.get("details", "")
            assert says in said["msg"] + said.get("details", "")
        assert node.started == 0
        node.prefix = ()
        assert node.ask("ADD", make_netns().path)["ips"]

    def test_without_the_right_it_says_so_and_others_have_their_own(self, node: Node, make_netns):
        node.prefix = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
        said = node.ask("ADD", make_netns().path)
        assert "HOST-002 what stands in for weftd: no right to change the network (CAP_NET_ADMIN)" in str(said)
        assert not stand_ins(node.run)
        node.prefix = ()
        assert node.ask("ADD", make_netns().path)["ips"]

    def test_its_environment_and_signals_are_its_own(self, node: Node):
        node.prefix = [
            "env",
            "LD_LIBRARY_PATH=/x",
            "PYTHONPATH=/x",
            "TZ=Mars",
            "XTABLES_LOCKFILE=/run/other.lock",
            "sh",
            "-c",
            "trap '' HUP USR1; exec \"$@\"",
            "sh",
        ]
        assert node.ask("DEL", "") is None
        [pid] = stand_ins(node.run)
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        assert "XTABLES_LOCKFILE=/run/other.lock" in environment  # of the node's other programs, too
        own = {"MALLOC_ARENA_MAX", "PATH", "PWD", "WEFT_STATE_DIR", "XTABLES_LOCKFILE"}
        assert {each.partition("=")[0] for each in environment if each} <= own
        ignored = int(Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0], 16)
        assert not ignored & (1 << signal.SIGHUP - 1 | 1 << signal.SIGUSR1 - 1)


class TestDeath:
    """Whatever becomes of a stand-in, the next call has one."""

    def test_one_that_is_killed_is_replaced(self, node: Node, make_netns):
        pod = make_netns()
        assert node.ask("ADD", pod.path)["ips"]
        assert kill_stand_ins(node.run)
        assert node.ask("DEL", pod.path) is None
        assert node.started == 2
        # The successor deletes what the killed one had left.
        eventually(lambda: [link for link in node.netns.rtnl.links() if link.kind == "veth"] == [])

    def test_one_that_is_killed_before_it_serves_fails_nobody(self, node: Node, tmp_path: Path):
        node.interpreter(f"mkdir {tmp_path}/once 2>/dev/null && sleep 0.2 && kill -9 $$")
        calls = [node.begin("DEL", container=f"c{number}") for number in range(10)]
        assert [call.end() for call in calls] == [Answer(exit=0, json=None, stderr="")] * 10
        assert node.started == 2

    def test_one_that_is_killed_in_the_middle_is_replaced(self, node: Node, tmp_path: Path, make_netns):
        pod = make_netns()
        client, release = waiting_add(node, tmp_path, pod.path)
        before = pod.rtnl.link("eth0")
        (tmp_path / "waits" / "runs").unlink()
        assert kill_stand_ins(node.run)
        eventually((tmp_path / "waits" / "runs").exists)
        release()
        assert client.end().result["ips"]
        after = pod.rtnl.link("eth0")
        assert before is not None
        assert after is not None
        assert before.index != after.index
        assert node.ask("DEL", "") is None

    def test_answers_to_a_server_that_was_lost_are_read_by_no_other(self, node: Node, make_netns):
        pod = make_netns()
        node.run.mkdir(parents=True, mode=0o700)
        with ThreadPoolExecutor(1) as pool, socket.socket(socket.AF_UNIX) as dying:
            dying.bind(str(node.run / "cni.sock"))
            dying.listen()
            told = pool.submit(node.ask, "ADD", pod.path)
            connection, _ = dying.accept()
            with connection:
                (node.run / "cni.sock").unlink()
                asked, sent, _, _ = socket.recv_fds(connection, 1 << 20, 16)
                frame = frames.FrameReader().feed(asked)
                assert frame is not None
                with socket.socket(fileno=sent.pop(frames.decode_call(frame).descriptors.index("route"))) as route:
                    for sequence in range(1, 40):  # RTM_GETLINK of lo, as a server asks
                        route.send(struct.pack("=IHHIIBxHiII", 32, 18, 1, sequence, 0, 0, 0, 1, 0, 0))
                for each in sent:
                    os.close(each)
                connection.sendall(frames.encode_begun())
            assert "ips" in told.result(SECONDS)
        assert node.started == 1

    def test_of_those_that_are_killed_again_and_again_it_says_what_to_do(self, node: Node, tmp_path: Path, make_netns):
        client, _ = waiting_add(node, tmp_path, make_netns().path)
        while client.process.poll() is None:
            kill_stand_ins(node.run)
        answer = client.end().json
        assert (answer["code"], "call DEL, which removes" in answer["msg"]) == (11, True)
        assert node.ask("DEL", "") is None

    def test_it_finishes_what_runs_when_it_is_told_to_end(self, node: Node, tmp_path: Path, make_netns):
        client, release = waiting_add(node, tmp_path, make_netns().path)
        [pid] = stand_ins(node.run)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not list(node.run.iterdir()))
        assert node.ask("DEL", "", CNI_CONTAINERID="c2") is None
        release()
        assert client.end().result["ips"]

    def test_why_it_could_not_start_is_told(self, node: Node):
        node.interpreter("echo 'it is broken' >&2; exit 1")
        answer = node.ask("DEL", "")
        assert answer["code"] == 11
        assert answer["msg"].endswith("No such file or directory), and its stand-in has ended: it is broken")
        assert node.started == 1

    def test_what_ends_in_silence_is_tried_again_and_told(self, node: Node):
        node.interpreter("exit 1")
        assert "nor does its stand-in" in node.ask("DEL", "")["msg"]
        assert node.started == 3

    def test_what_cannot_be_executed_is_told(self, node: Node):
        (node.bin_dir / "python").chmod(0o644)
        assert "cannot be executed: Permission denied" in node.ask("DEL", "")["msg"]


class TestHanging:
    """The limits are seconds here."""

    @pytest.fixture
    def node(self, node: Node, hasty: Path) -> Node:
        (node.bin_dir / "bridge").unlink()
        shutil.copy2(hasty, node.bin_dir / "bridge")
        return node

    def test_one_that_is_stopped_is_told_of_and_replaced_by_the_next_call(self, node: Node):
        assert node.ask("DEL", "") is None
        [pid] = stand_ins(node.run)
        os.kill(pid, signal.SIGSTOP)
        answer = node.ask("DEL", "")
        assert (answer["code"], "nor does its stand-in (it has not begun in time)" in answer["msg"]) == (11, True)
        # Another container's: it may have been stopped between its answer and the end of the turn.
        assert node.ask("DEL", "", CNI_CONTAINERID="c2") is None
        assert node.started == 2
        # What it does when it goes on again takes nothing from its successor.
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        assert node.ask("DEL", "") is None

    def test_a_start_that_hangs_is_told(self, node: Node):
        node.interpreter("exec sleep 60")
        assert "it has not begun in time" in node.ask("DEL", "")["msg"]
        for pid in node.starts.read_text().split():
            os.kill(int(pid), signal.SIGKILL)

    def test_a_directory_that_something_has_locked(self, node: Node):
        node.run.mkdir(parents=True, mode=0o700)
        held = os.open(node.run, os.O_RDONLY)
        flock(held, LOCK_EX)
        assert f"{node.run} is locked by another process" in node.ask("DEL", "")["msg"]
        os.close(held)
        assert node.ask("DEL", "") is None

    def test_a_backlog_that_stays_full(self, node: Node):
        assert node.ask("DEL", "") is None
        [name] = node.run.iterdir()
        kill_stand_ins(node.run)
        name.unlink()
        directory = os.open(node.run, os.O_PATH | os.O_DIRECTORY)
        short = f"/proc/self/fd/{directory}/{name.name}"  # of a socket's path there is room for 107 bytes
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
            listener.bind(short)
            listener.listen(0)
            other.connect(short)
            os.close(directory)
            assert "nor does its stand-in (it accepts no connection)" in node.ask("DEL", "")["msg"]
        assert not name.exists()
        assert node.ask("DEL", "") is None


class TestStoppedDaemon:
    """The first call waits for a daemon that is stopped, and notes it; the others are done without it at once."""

    @pytest.fixture
    def daemon(self, node: Node, tmp_path: Path) -> Iterator[CniDaemon]:
        made = CniDaemon(tmp_path / "daemon", node.netns, node.bin_dir)
        yield made
        made.process.send_signal(signal.SIGCONT)
        made.stop()

    def test_it_is_noted_until_it_begins_again(self, node: Node, daemon: CniDaemon, hasty: Path):
        shutil.copy2(hasty, node.bin_dir / "loopback")
        note = daemon.socket.with_name("cni.sock.hangs")
        daemon.process.send_signal(signal.SIGSTOP)
        assert node.ask("DEL", "", plugin="loopback") is None
        assert note.exists()
        assert node.ask("DEL", "", plugin="loopback") is None
        assert (note.exists(), node.started, daemon.journal()) == (True, 1, [])
        daemon.process.send_signal(signal.SIGCONT)
        eventually(lambda: node.ask("DEL", "", plugin="loopback") and not note.exists())
        assert daemon.journal()

    @pytest.mark.parametrize("reads", [True, False])
    def test_one_that_reads_what_it_is_asked_is_busy_and_not_noted(self, node: Node, hasty: Path, *, reads: bool):
        shutil.copy2(hasty, node.bin_dir / "loopback")
        node.run.mkdir(parents=True, mode=0o700)
        with socket.socket(socket.AF_UNIX) as busy:
            busy.bind(str(node.run / "cni.sock"))
            busy.listen()
            client = threading.Thread(target=node.ask, args=("DEL", ""), kwargs={"plugin": "loopback"})
            client.start()
            with busy.accept()[0] as connection:
                while reads and connection.recv(1 << 16):
                    pass
                client.join(SECONDS)
        assert not client.is_alive()
        assert (node.run / "cni.sock.hangs").exists() != reads
        assert node.started == 1

    @pytest.mark.parametrize("age, waits", [(0, False), (3600, True)], ids=["of this daemon", "of an earlier one"])
    def test_who_finds_the_note_waits_no_more(
        self, node: Node, daemon: CniDaemon, patient: Path, age: int, waits: bool
    ):
        shutil.copy2(patient, node.bin_dir / "loopback")
        note = daemon.socket.with_name("cni.sock.hangs")
        note.touch()
        made = int(daemon.socket.lstat().st_ctime)
        os.utime(note, (made - age, made - age))
        daemon.process.send_signal(signal.SIGSTOP)
        client = node.begin("DEL", plugin="loopback")
        if waits:
            with pytest.raises(subprocess.TimeoutExpired):
                client.process.wait(timeout=2)
            daemon.process.send_signal(signal.SIGCONT)
        assert (client.end().exit, bool(daemon.journal())) == (0, waits)


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


class TestDaemon:
    """A daemon that comes takes over at once."""

    def test_the_next_call_is_the_daemons_and_what_runs_is_finished(self, node: Node, tmp_path: Path, make_netns):
        client, release = waiting_add(node, tmp_path, make_netns().path)
        daemon = CniDaemon(tmp_path / "daemon", node.netns, node.bin_dir)
        try:
            assert daemon.call("ADD", {"do": "look"}, CNI_CONTAINERID="c2")["plugin"] == "bridge"
            assert daemon.journal()[0] == "ADD c2 "
            release()
            assert client.end().result["ips"]
            eventually(lambda: not stand_ins(node.run))
        finally:
            daemon.stop()
        assert {path.name for path in node.run.iterdir()} <= {"cni.sock.lock"}

    def test_a_container_whose_turn_the_stand_in_has_waits_in_the_daemon(self, node: Node, tmp_path: Path, make_netns):
        client, release = waiting_add(node, tmp_path, make_netns().path)
        daemon = CniDaemon(tmp_path / "daemon", node.netns, node.bin_dir)
        try:
            same = daemon.start("ADD", {"do": "look"}, CNI_CONTAINERID="c1").feed()
            assert daemon.call("ADD", {"do": "look"}, CNI_CONTAINERID="c2")["plugin"] == "bridge"
            release()
            assert client.end().result["ips"]
            assert same.end().json["plugin"] == "bridge"
            assert daemon.journal() == ["ADD c2 ", "end c2 ", "ADD c1 ", "end c1 "]
        finally:
            daemon.stop()


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


def waiting_add(node: Node, tmp_path: Path, pod: str) -> tuple[Started, Callable[[], None]]:
    """Start an ADD that waits for an IPAM program of others; returns its client, and what lets that program go on."""
    theirs, fifo = tmp_path / "waits", tmp_path / "fifo"
    theirs.mkdir()
    os.mkfifo(fifo)
    answer = json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.77/24"}]})
    program = theirs / "waits"
    program.write_text(
        # It runs when it can be released.
        f"#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nexec 3<>{fifo}\ntouch {theirs}/runs\n"
        f"read line <&3\necho '{answer}'\n"
    )
    program.chmod(0o755)
    config = {**node.config, "ipam": {"type": "waits"}}
    client = node.begin("ADD", pod, config, CNI_PATH=f"{theirs}:{node.bin_dir}")
    eventually((theirs / "runs").exists)

    def release() -> None:
        with suppress(OSError):  # it may have been killed
            os.write(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), b"go\n")

    return client, release
