"""Labs that start otherwise than they should, or whose parts end: what is said of them."""

import os
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.lab import WEFT, lab, new_name, weft, write_file
from tests.support.weftd import eventually
from weft.lab import spec
from weft.lab.commands import start
from weft.model.errors import Unavailable


def test_a_lab_of_two_families_has_the_same_addresses_each_time():
    with lab("--nodes", "2", "--pods", "1", "--family", "46") as running:
        report = running.ps()
    assert [node["subnets"] for node in report["nodes"]] == [
        [f"10.244.{number}.0/24", f"2001:cafe:42:{number}::/64"] for number in (1, 2)
    ]
    assert [pod["addresses"] for pod in report["pods"]] == [
        [f"10.244.{number}.2/24", f"2001:cafe:42:{number}::2/64"] for number in (1, 2)
    ]


def test_a_monitor_follows_all_nodes_over_the_end_of_a_daemon():
    with lab("--nodes", "2", "--pods", "0") as running:
        command = [
            WEFT,
            "lab",
            "monitor",
            "--lab",
            running.name,
            "--kind",
            "health",
            "--kind",
            "repaired",
            "--kind",
            "killed",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None

            def until(words: str) -> None:
                while words not in (line := child.stdout.readline()):
                    assert line, f"no line with {words}"

            # From when on it looks is not known: this goes on until it has.
            while not select.select([child.stdout], [], [], 0.1)[0]:
                running.run("node1", "ip", "route", "flush", "dev", "flannel.1")
            until("  node1  repaired        ROUTE-001 route 10.244.2.0/24 ")
            running.weft("kill", "node2/weftd")
            until("  the lab  killed          node2/weftd\n")
            until("  node2  health          INST-003 weftd: does not answer\n")
            running.weft("start", "node2/weftd")
            until("  node2  health          weftd: answers again\n")
            running.run("node2", "ip", "link", "set", "eth0", "down")
            until("  node2  health          IFACE-002 uplink: ")
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=200)
        assert (child.returncode, said.strip()) == (130, "")
        ran = running.weft("monitor", "--node", "node9", check=False)
        assert ran.stderr == "weft: LAB-002 --node: node9; expected one of node1, node2\n"


def test_ps_tells_of_a_daemon_that_does_not_answer_and_of_one_that_ended():
    with lab("--nodes", "2", "--pods", "0") as running:
        pids = {node["name"]: str(node["pid"]) for node in running.ps()["nodes"]}
        running.run("node1", "kill", "-STOP", pids["node1"])
        running.run("node2", "kill", "-KILL", pids["node2"])
        assert {node["name"]: node["daemon"] for node in running.ps()["nodes"]} == {
            "node1": "silent",
            "node2": "exited -9",
        }


def test_ps_tells_why_a_daemon_is_not_ready():
    with lab("--nodes", "1", "--pods", "0") as running:
        # A device that is not ours gets the VNI and port of ours while the daemon does not look.
        steps = (
            "p=$(pgrep weftd) && kill -STOP $p && ip link del flannel.1",
            "ip link add thief type vxlan id 1 dstport 8472 nolearning && ip link set thief up",
            "kill -CONT $p",
        )
        running.run("node1", "sh", "-c", " && ".join(steps))
        eventually(lambda: running.node("node1")["daemon"] == "not ready", seconds=30)
        node = running.node("node1")
        [problem] = [problem for problem in node["problems"] if problem.startswith("devices: VTEP-002 ")]
        assert f"node1: {problem}\n" in running.weft("ps").stdout


def test_ps_tells_of_a_store_that_does_not_answer_and_of_one_that_ended():
    with lab("--nodes", "1", "--pods", "0") as running:
        assert running.ps()["store_state"] == "ready"
        threads = Path(f"/proc/{running.supervisor()}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        [etcd] = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "etcd\n"]
        os.kill(etcd, signal.SIGSTOP)
        assert running.ps()["store_state"] == "silent"
        os.kill(etcd, signal.SIGKILL)
        assert "store http://172.31.0.1:2379 exited -9\n" in running.weft("ps").stdout


def test_a_lab_with_one_pod_is_told_nothing_of_several():
    name = new_name()
    ran = weft("lab", "up", "--name", name, "--nodes", "1", "--pods", "1")
    try:
        for said in (
            "1 node made\n",
            "ready: 1 of 1 daemon\n",
            "1 pod started\n",
            f"run --lab {name} POD --node node1\n",
        ):
            assert said in ran.stderr
        for said in ("pingall", "every other"):
            assert said not in ran.stderr
        ran = weft("lab", "ping", "--lab", name, "node1", "pod1-1")
        assert "pingall" not in ran.stderr
        weft("lab", "run", "--lab", name, "other", "--node", "node1")
        assert (
            "4 of 4 pings arrived from the source's own address, from 3 pods and nodes to 2 pods"
            in weft("lab", "pingall", "--lab", name).stdout
        )
    finally:
        weft("lab", "down", name)


def test_a_daemon_that_refuses_its_configuration_ends_the_start_with_its_words(tmp_path):
    path = write_file(tmp_path, nodes=1, network={"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan", "MTU": 9000}})
    name = new_name()
    ran = weft("lab", "up", "--name", name, path, check=False)
    assert ran.returncode == 1
    assert "LAB-002 weftd of node1: it ended with status 1:\n" in ran.stderr
    assert "MTU-001 Backend.MTU: 9000, while eth0 carries 1500 bytes" in ran.stderr
    assert name not in weft("lab", "list").stdout


def test_what_has_started_is_kept_to_be_looked_at(tmp_path):
    path = write_file(tmp_path, nodes=2, network={"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan", "MTU": 9000}})
    name = new_name()
    ran = weft("lab", "up", "--name", name, "--keep", path, check=False)
    try:
        assert ran.returncode == 1
        assert f"Next: weft lab ps --lab {name}  # what has started is kept\n" in ran.stderr
        assert "LAB-002 weftd of node" in ran.stderr
        said = [weft("lab", "logs", "--lab", name, node).stdout for node in ("node1", "node2")]
        assert any("MTU-001 Backend.MTU: 9000, while eth0 carries 1500 bytes" in each for each in said)
        assert "node2" in weft("lab", "ps", "--lab", name).stdout
        assert "inet 172.31." in weft("lab", "exec", "--lab", name, "node2", "ip", "address", "show", "eth0").stdout
    finally:
        weft("lab", "down", name)
    assert name not in weft("lab", "list").stdout


def test_a_pod_that_cannot_be_started_ends_the_start_with_its_name_and_the_daemons_words(tmp_path):
    # Past the check of a lab file, which refuses this many pods.
    network = '{"Network": "10.244.0.0/16", "SubnetLen": 30, "Backend": {"Type": "vxlan"}}'
    wanted = spec.regular(name=new_name(), network=network, families=(4,), nodes=1, pods=3)
    with pytest.raises(Unavailable) as caught:
        start.up(wanted, tmp_path / "labs", os.environ, note=lambda _: None)
    said = str(caught.value)
    assert re.match(r"LAB-002 pod pod1-\d on node1: network cbr0: .*no IP addresses available", said)
    assert "INFO" in said.partition("\nweftd of node1 said last:\n")[2]
    assert "weft lab logs" not in said


def test_as_many_pods_as_the_subnet_has_room_for(tmp_path):
    network = {"Network": "10.244.0.0/16", "SubnetLen": 30, "Backend": {"Type": "vxlan"}}
    with lab(write_file(tmp_path, nodes=2, pods=1, network=network)) as running:
        assert running.json("pingall")["reached"] == 2 + 4
        ran = running.weft("run", "more", "--node", "node2", check=False)
        assert ran.returncode == 1
        assert "LAB-002 pod more on node2: network cbr0: " in ran.stderr
        assert ran.stderr.endswith(f"'weft lab logs --lab {running.name} node2' shows the daemon's side.\n")
