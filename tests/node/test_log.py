"""What becomes of a daemon whose log is not taken, and what its log says of signals."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.weftd import VXLAN, Cluster, eventually


def test_a_log_pipe_that_is_not_read_stops_nothing(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    reading, writing = os.pipe()
    process = node.netns.popen(node.command(), stdin=subprocess.DEVNULL, stderr=writing)
    eventually(lambda: node.ready, seconds=40)
    with open(reading, "rb", buffering=0) as log, open(writing, "wb", buffering=0) as full:  # noqa: PTH123
        flags = Path(f"/proc/{process.pid}/fdinfo/2").read_text()
        with suppress(BlockingIOError):
            os.set_blocking(full.fileno(), False)
            while full.write(bytes(65536)):
                pass
        os.set_blocking(full.fileno(), True)
        for number in range(400):
            cluster.etcd.fill([(cluster.key(f"nonsense-{number % 7}"), "x" * 300)])
        cluster.peer(50)
        node.sees("ip route", "10.5.50.0", seconds=30)
        assert node.ready
        assert Path(f"/proc/{process.pid}/fdinfo/2").read_text() == flags, "the pipe is others' too"
        said = b""
        while b"peer 10.5.50.0-24 came" not in said:
            said += log.read(65536)
        assert said.count(b"ADDR-002 lease nonsense-") > 7
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 0


def test_signals_that_mean_nothing_here_end_nothing_and_are_said(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    for number in (signal.SIGHUP, signal.SIGUSR2):
        node.signal(number)
        node.says(f"INFO main: {number.name} is ignored")
    assert node.ready
    assert node.stop() == 0


def test_sigusr1_writes_the_state(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    cluster.peer(50)
    node.says("peer 10.5.50.0-24 came")
    node.signal(signal.SIGUSR1)
    [line] = eventually(lambda: node.lines("INFO statefile: SIGUSR1: the state is in "))
    file = Path(line.rpartition(" is in ")[2])
    state = json.loads(file.read_text())
    assert (state["ready"], [peer["id"] for peer in state["peers"]]) == (True, ["10.5.50.0-24"])
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.mkdir()
    node.signal(signal.SIGUSR1)
    node.says(f"WARN statefile: STATE-002 {file}: cannot be written: Is a directory")
    assert node.ready


def test_a_log_of_json_has_an_object_on_each_line_and_a_line_for_each_peer_and_each_repair(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start("--log-format=json")
    cluster.peer(50)
    node.says("peer 10.5.50.0-24 came")
    node.ip("route del 10.5.50.0/24")
    node.says("ROUTE-001")
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    node.says("peer 10.5.50.0-24 went")
    assert node.stop() == 0
    said = [json.loads(line) for line in node.log.splitlines()]
    assert all({"time", "level", "part", "message"} <= each.keys() for each in said)
    assert {each["level"] for each in said} <= {"INFO", "WARN"}
    told = [each["message"] for each in said if "10.5.50.0-24 " in each["message"]]
    assert [words.partition(",")[0] for words in told] == ["peer 10.5.50.0-24 came", "peer 10.5.50.0-24 went"]
    [repair] = [each for each in said if each.get("code") == "ROUTE-001"]
    assert (repair["level"], repair["part"]) == ("WARN", "repairs")
    assert "10.5.50.0/24" in repair["message"]


def test_a_daemon_started_by_one_that_ignores_its_children_knows_how_its_own_ended(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=["env", "--ignore-signal=CHLD"]).wait_ready(40)
    assert "FLANNEL-POSTRTG" in node.netns.run("iptables-save")
    assert not node.lines("Unknown child process|ERROR")
