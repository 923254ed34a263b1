"""What bounds a stand-in, and what becomes of calls when one dies."""

import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernel.standinnode import Node, waiting_add
from tests.support.checkout import CHECKOUT
from tests.support.cni.call import Answer
from tests.support.cni.standins import kill_stand_ins, stand_ins
from tests.support.netns import SECONDS, Netns
from tests.support.waiting import eventually
from weft.wire import frames

WITHOUT_RESOURCE = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "--")
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


@pytest.fixture
def node(netns: Netns, bin_dir: Path, tmp_path: Path) -> Iterator[Node]:
    yield Node(netns, bin_dir, tmp_path)
    kill_stand_ins(tmp_path)


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
