"""A stand-in beside a daemon that hangs, stops, or comes back."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from tests.kernel.cniclient import compiled
from tests.kernel.standinnode import Node, waiting_add
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.standins import kill_stand_ins, stand_ins
from tests.support.netns import SECONDS, Netns
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with limits of seconds."""
    limits = ["-DSEND_SECONDS=1", "-DBEGIN_SECONDS=1", "-DSTART_SECONDS=8"]
    return compiled(tmp_path_factory.mktemp("hasty"), "musl-gcc", *limits, "-static")


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client that waits for a daemon for ever."""
    return compiled(tmp_path_factory.mktemp("patient"), "musl-gcc", "-DBEGIN_SECONDS=1000", "-static")


@pytest.fixture
def node(netns: Netns, bin_dir: Path, tmp_path: Path) -> Iterator[Node]:
    yield Node(netns, bin_dir, tmp_path)
    kill_stand_ins(tmp_path)


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
