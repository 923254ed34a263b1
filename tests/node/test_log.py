"""What becomes of a daemon whose log is not taken, and what its log says of signals."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.weftd import Cluster, eventually


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
        assert process.wait(40) == 0


def test_signals_that_mean_nothing_here_end_nothing_and_are_said(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        node.signal(number)
        node.says(f"INFO main: {number.name} does nothing here")
    assert node.ready
    assert node.stop() == 0


def test_a_daemon_started_by_one_that_ignores_its_children_knows_how_its_own_ended(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=["env", "--ignore-signal=CHLD"]).wait_ready(40)
    assert "FLANNEL-POSTRTG" in node.netns.run("iptables-save")
    assert not node.lines("Unknown child process|ERROR")
