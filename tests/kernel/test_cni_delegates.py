"""Plugins that plugins call, by the daemon: what they get, what they say when they fail, what is undone."""

import errno
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

import pytest

from tests.kernel.cniserved import ENV, script
from tests.support.cni.call import SECONDS
from tests.support.cni.daemon import CniDaemon
from tests.support.cni.frames import (
    call,
    descriptors,
    read_begun,
    read_done,
)
from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.cni.host.host import NodeHandles, open_node
from weft.cni.host.locks import ContainerLocks
from weft.cni.serve.session import Service, Session
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Call


class TestDelegates:
    @pytest.mark.spec("flannel.md §10.4/run-delegate")
    def test_a_delegate_has_the_callers_environment_with_changes(self, daemon: CniDaemon, tmp_path: Path):
        script(tmp_path / "theirs", 'cat; echo "$CNI_COMMAND $CNI_IFNAME ${CNI_ARGS-none} $TRACEPARENT" >&2; exit 7')
        config = {"do": "delegate", "name": "theirs", "command": "CHECK", "env": {"CNI_ARGS": "a=b"}}
        more = {"CNI_PATH": f"/nowhere:{tmp_path}", "TRACEPARENT": "00-1"}
        answer = daemon.call("ADD", config, **more)
        assert answer["ran"] == [7, json.dumps(config), "CHECK eth0 a=b 00-1\n"]

    @pytest.mark.parametrize("name", ["WEFT_T", "WEFT_TESTED"])
    def test_a_change_is_of_the_variable_of_that_name_alone(self, daemon: CniDaemon, tmp_path: Path, name: str):
        script(tmp_path / "theirs", 'echo "${WEFT_TEST-none} ${WEFT_T-none} ${WEFT_TESTED-none}" >&2')
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "env": {name: "new"}}
        answer = daemon.call("ADD", config, CNI_PATH=str(tmp_path), WEFT_TEST="old")
        assert answer["ran"][2] == ("old new none\n" if name == "WEFT_T" else "old none new\n")

    def test_a_large_conversation(self, daemon: CniDaemon, tmp_path: Path):
        script(
            tmp_path / "theirs",
            "head -c 900000 /dev/zero | tr '\\0' x; cat >/dev/null; head -c 99999 /dev/zero | tr '\\0' y >&2",
        )
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "pad": "y" * 500_000}
        status, out, err = daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"]
        assert (status, len(out), len(err)) == (0, 900_000, 65536)

    def test_a_delegate_that_does_not_read(self, daemon: CniDaemon, tmp_path: Path):
        script(tmp_path / "theirs", "exec 0<&-; echo done")
        config = {"do": "delegate", "name": "theirs", "command": "ADD", "pad": "y" * 500_000}
        assert daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"] == [0, "done\n", ""]

    def test_output_without_end_is_an_error(self, daemon: CniDaemon, tmp_path: Path):
        script(tmp_path / "theirs", "head -c 3000000 /dev/zero")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        status, out, err = daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"]
        assert (status, out) == (125, "")
        assert "more than fits" in err

    def test_a_signal_is_128_and_more(self, daemon: CniDaemon, tmp_path: Path):
        script(tmp_path / "theirs", "kill -9 $$")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        assert daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"][0] == 128 + 9

    def test_a_delegate_does_not_ignore_what_the_client_ignores(self, daemon: CniDaemon, tmp_path: Path):
        script(tmp_path / "theirs", "exec sed -n 's/^SigIgn:\t//p' /proc/self/status")
        config = {"do": "delegate", "name": "theirs", "command": "ADD"}
        ignored = int(daemon.call("ADD", config, CNI_PATH=str(tmp_path))["ran"][1], 16)
        assert not ignored & 1 << (signal.SIGPIPE - 1)

    def test_what_a_delegate_leaves_behind_is_heard_to_its_end(self, daemon: CniDaemon, tmp_path: Path):
        """As the reference does: a result may come from a process that outlives the one that was started."""
        go, pid = tmp_path / "go", tmp_path / "pid"
        wait = f"while ! test -e {go}; do sleep 0.02; done"
        script(tmp_path / "theirs", f"({wait}; echo late) 2>&- & echo $$ >{pid}.new; mv {pid}.new {pid}")
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
        script(tmp_path / "theirs", "sleep 2.5")
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
        script(tmp_path / "theirs", f"until test -e {go}; do sleep 0.02; done")
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
        script(tmp_path / "theirs", f"touch {started}; exec sleep 30")
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
