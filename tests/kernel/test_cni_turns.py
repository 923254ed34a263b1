"""Whose turn it is when many call at once, and the limits: of calls, of descriptors, of threads, of time."""

import fcntl
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernel.cniserved import connections, hangs, has_ended, script
from tests.support.cni.call import Started
from tests.support.cni.daemon import CniDaemon
from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.cni.serve.server import LEAST_DESCRIPTORS

NewNetns = Callable[[], Netns]


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
        script(tmp_path / "theirs", f"while ! test -e {go}; do sleep 0.02; done; exec {daemon.bin_dir}/host-local")
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
        script(tmp_path / "theirs", f"exec {daemon.bin_dir}/host-local")
        config = {"do": "delegate", "name": "theirs", "command": "DEL", "word": "outer", "del": "look"}
        answer = daemon.call("ADD", config, container="nested", CNI_PATH=str(tmp_path))
        status, out, _ = answer["ran"]
        assert status == 0
        assert json.loads(out)["plugin"] == "host-local"
        eventually(lambda: not list((daemon.state / "cni" / "turns").iterdir()))


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
        script(tmp_path / "hangs", f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
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
        with hangs(tmp_path, body) as process:
            config = {"do": "delegate-gone", "name": "hangs", "command": "GC"}
            gc = daemon.start("GC", config, container="", CNI_PATH=str(tmp_path)).feed()
            assert not has_ended(process())
            answer = gc.end().json
            assert answer["code"] == 11
            assert "the plugin 'hangs' has not ended within 8 s and is not waited for any more" in answer["msg"]
            assert has_ended(process())

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
        script(tmp_path / "hangs", f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
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
