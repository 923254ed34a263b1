"""What each command does, in one lab with two nodes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.vxlan import VXLAN
from scapy.utils import PcapNgReader

from tests.support.lab import WEFT, Lab, lab, new_name, weft, write_file
from tests.support.weftd import eventually
from weft.lab import spec
from weft.lab.commands import start
from weft.model.errors import Unavailable


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2") as running:
        yield running


def test_a_lab_leaves_no_way_around_what_it_covers_and_no_log_open_to_others(running):
    assert ".aside" not in running.run("node1", "cat", "/proc/self/mounts")
    [log] = Path("/run/weft-lab").glob(f"{running.name}/**/supervisor.log")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "follower", ["logs -f node1", "monitor --since 1h", "ps --watch", "capture node1 --port 4242", "logs -f -o json"]
)
def test_what_goes_on_ends_when_nobody_reads_any_more(running, follower):
    command = [WEFT, "lab", *follower.split(), "--lab", running.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as goes_on:
        if "capture" in follower:
            assert b"capturing" in goes_on.stderr.readline()
        else:
            assert goes_on.stdout.readline()
        goes_on.stdout.close()
        assert goes_on.wait(timeout=60) in (0, 1)
        assert b"Traceback" not in goes_on.stderr.read()


def test_ps_shows_nodes_with_leases_and_pods_with_addresses(running):
    report = running.ps()
    assert [node["name"] for node in report["nodes"]] == ["node1", "node2"]
    assert [node["underlay"] for node in report["nodes"]] == [["172.31.0.11"], ["172.31.0.12"]]
    assert {node["daemon"] for node in report["nodes"]} == {"ready"}
    assert {node["mtu"] for node in report["nodes"]} == {1450}
    assert [node["subnets"] for node in report["nodes"]] == [["10.244.1.0/24"], ["10.244.2.0/24"]]
    assert [(pod["name"], pod["addresses"]) for pod in report["pods"]] == [
        ("pod1-1", ["10.244.1.2/24"]),
        ("pod1-2", ["10.244.1.3/24"]),
        ("pod2-1", ["10.244.2.2/24"]),
        ("pod2-2", ["10.244.2.3/24"]),
    ]
    assert report["network"]["Backend"] == {"Type": "vxlan"}
    ran = running.weft("ps")
    assert report["nodes"][0]["subnets"][0] in ran.stdout
    # What is said to be next works as it stands, whatever other labs there are.
    assert f"Next: weft lab ping --lab {running.name} pod1-1 pod2-2\n" in ran.stderr
    for command in re.findall(r"(?m)(?<=weft )lab .*", ran.stderr):
        assert weft(*command.split()).returncode == 0


def test_a_lab_of_two_families_has_the_same_addresses_each_time():
    with lab("--nodes", "2", "--pods", "1", "--family", "46") as running:
        report = running.ps()
    assert [node["subnets"] for node in report["nodes"]] == [
        [f"10.244.{number}.0/24", f"2001:cafe:42:{number}::/64"] for number in (1, 2)
    ]
    assert [pod["addresses"] for pod in report["pods"]] == [
        [f"10.244.{number}.2/24", f"2001:cafe:42:{number}::2/64"] for number in (1, 2)
    ]


def test_ps_shows_what_nsenter_and_plugins_know_nodes_and_pods_by(running):
    pod = running.pod("pod1-1")
    said = running.weft("ps", "-o", "wide").stdout
    assert re.search(rf"^pod1-1 +node1 +\S+ +{pod['id']} +{pod['netns']}$", said, re.MULTILINE)
    assert re.search(rf"^node1 .* {running.node('node1')['pid']} +ready$", said, re.MULTILINE)


def test_status_shows_all_nodes_side_by_side_and_says_which_has_repaired_most(running):
    other = running.node("node2")["subnets"][0]
    running.run("node1", "ip", "route", "del", other)
    eventually(lambda: running.json("status")["node1"]["loops"]["routes"]["repairs"] == {"ROUTE-001": 1})
    ran = running.weft("status")
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert re.search(r"^node2 +ready +.* 23 h \d+ min +1 of 1 +0 +\d+ +0 ", ran.stdout, re.MULTILINE)
    assert ran.stdout.endswith("most repairs: node1, 1 repair (ROUTE-001 1)\n")


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


def test_ps_goes_on_until_it_is_ended(running):
    command = [WEFT, "lab", "ps", "-w", "--lab", running.name, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        running.weft("run", "late", "--node", "node1")
        second = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=200)
    running.weft("rm", "late")
    assert {pod["name"] for pod in second["pods"]} - {pod["name"] for pod in first["pods"]} == {"late"}
    assert (child.returncode, said.strip()) == (130, b"")


def test_top_on_a_terminal_goes_on_until_ctrl_c(running):
    ours, theirs = pty.openpty()
    command = [WEFT, "lab", "top", "--lab", running.name]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as child:
        os.close(theirs)
        seen = b""
        while seen.count(b"in each second") < 2:
            seen += os.read(ours, 1 << 16)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    os.close(ours)
    assert b"pod1-1" in seen
    assert (child.returncode, said.strip()) == (130, b"")


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


def test_exec_enters_the_whole_node_and_returns_its_status(running):
    assert running.run("node1", "hostname") == "node1\n"
    assert "FLANNEL_SUBNET=" in running.run("node1", "cat", "/run/flannel/subnet.env")
    assert "172.31.0.12" in running.run("node2", "ip", "address", "show", "eth0")
    assert "eth0" in running.run("node1", "ls", "/sys/class/net")
    plugins = running.run("node1", "ls", "/opt/cni/bin").split()
    assert {"bridge", "flannel", "host-local", "loopback", "portmap"} <= set(plugins)
    assert running.weft("exec", "node1", "--", "sh", "-c", "exit 7", check=False).returncode == 7
    assert running.weft("exec", "node1", "--", "sh", "-c", "kill -TERM $$", check=False).returncode == 128 + 15


def test_a_node_sees_its_own_processes_and_can_end_no_others():
    with lab("--nodes", "2", "--pods", "1") as running:
        pid = running.node("node1")["pid"]
        assert running.run("node1", "pgrep", "weftd").split() == [str(pid)]
        assert running.run("pod1-1", "pgrep", "weftd").split() == [str(pid)]
        # One that is just being started for us has still our own name.
        own = {"sh", "sleep", "weftd", "ps"}
        eventually(lambda: set(running.run("node1", "ps", "-eo", "comm=").split()) == own)
        # What has lost its parent is ended by the first process of the node.
        running.run("node1", "sh", "-c", "sleep 0.1 &")
        running.run("node1", "sh", "-c", "while pgrep -f '^sleep 0.1'; do :; done; ! ps -eo stat | grep ^Z")
        # Everything but the first process.
        running.weft("exec", "node1", "--", "kill", "-KILL", "--", "-1", check=False)
        assert {node["name"]: node["daemon"] for node in running.ps()["nodes"]} == {
            "node1": "exited -9",
            "node2": "ready",
        }
        assert running.run("node2", "pgrep", "weftd")


def test_exec_passes_input_output_and_error_through(running):
    ran = running.weft("exec", "node1", "--", "sh", "-c", "cat; echo problem >&2", stdin=None, input="a\0b\n")
    assert (ran.stdout, ran.stderr) == ("a\0b\n", "problem\n")


def test_exec_stays_where_its_user_is(running, tmp_path):
    def run(where: str, *command: str, cwd: Path = tmp_path) -> str:
        return running.weft("exec", where, "--", *command, cwd=cwd).stdout

    assert [run(where, "pwd").strip() for where in ("node1", "pod1-1")] == [str(tmp_path)] * 2
    said = run("node1", "weft", "bundle")
    [file] = tmp_path.glob("weft-bundle-node1-*.tar.gz")
    assert said.startswith(file.name)
    assert run("node1", "pwd", cwd=Path("/run/weft-lab")).strip() == "/", "a node has a /run of its own"


def test_exec_in_json_holds_status_output_and_error(running):
    ran = running.weft("exec", "-o", "json", "pod1-1", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False)
    assert ran.returncode == 3
    assert json.loads(ran.stdout) == {"status": 3, "stdout": "out\n", "stderr": "err\n"}


def test_exec_of_what_is_not_there(running):
    ran = running.weft("exec", "node1", "--", "no-such-program", check=False)
    assert (ran.returncode, ran.stdout) == (127, "")
    assert "HOST-002 node1: no-such-program: No such file or directory" in ran.stderr
    ran = running.weft("exec", "-o", "json", "node1", "--", "/etc", check=False)
    assert (ran.returncode, json.loads(ran.stderr)["seen"]) == (126, "Permission denied")
    ran = running.weft("exec", "node9", "--", "true", check=False)
    assert ran.returncode == 2
    assert "no node or pod of this name; expected one of node1, node2, pod1-1" in ran.stderr


def test_exec_refuses_options_that_it_does_not_have(running):
    ran = running.weft("exec", "-it", "pod1-1", "--", "true", check=False)
    assert ran.returncode == 2
    assert "FLAG-001 weft lab exec: no such option: -it; expected NODE|POD -- COMMAND. Leave it out" in ran.stderr


def test_exec_without_dashes_leaves_the_commands_options_alone(running):
    assert running.weft("exec", "node1", "ls", "-l", "/run/flannel").stdout.endswith("subnet.env\n")


def test_exec_gives_signals_to_the_command(running):
    command = [
        WEFT,
        "lab",
        "exec",
        "--lab",
        running.name,
        "node1",
        "--",
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo on; sleep 9 & wait",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "on\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(100) == 9


def test_a_command_ends_when_its_user_is_gone(running):
    command = [WEFT, "lab", "exec", "--lab", running.name, "node1", "--", "sh", "-c", "echo $$; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = child.stdout.readline().strip()
        child.kill()
    outlived = ("exec", "node1", "--", "test", "-d", f"/proc/{pid}")
    eventually(lambda: running.weft(*outlived, check=False).returncode != 0, seconds=10)


def test_exec_on_a_terminal_has_a_terminal_of_its_own(running):
    pid, master = pty.fork()
    if pid == 0:
        shell = "tty && stty size && read line && echo got $line"
        os.execv(WEFT, [WEFT, "lab", "exec", "--lab", running.name, "pod1-1", "--", "sh", "-c", shell])  # noqa: S606
    os.write(master, b"hello\n")
    said = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        said += data
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert b"/dev/pts/" in said
    assert b"got hello" in said


def test_a_pod_holds_network_ipc_uts_and_mount_namespaces(running):
    assert running.run("pod1-1", "hostname") == "pod1-1\n"
    names = ("net", "ipc", "uts", "mnt")
    of_node, of_pod, of_other = (
        {name: running.run(where, "readlink", f"/proc/self/ns/{name}") for name in names}
        for where in ("node1", "pod1-1", "pod1-2")
    )
    for name in names:
        assert len({of_node[name], of_pod[name], of_other[name]}) == 3, name
    assert running.run("pod1-1", "ls", "/sys/class/net").split() == ["eth0", "lo"]
    assert "<LOOPBACK,UP" in running.run("pod1-1", "ip", "link", "show", "lo")
    assert "default via" in running.run("pod1-1", "ip", "route")


def test_run_and_rm_attach_and_detach_a_pod(running):
    report = running.json("run", "web", "--node", "node2")
    [address] = report["addresses"]
    reservations = running.run("node2", "ls", "/var/lib/cni/networks/cbr0").split()
    assert address.partition("/")[0] in reservations
    assert running.weft("ping", "pod1-1", "web").stdout.count(" ms, seen there as ") == 3
    running.weft("rm", "web")
    reservations = running.run("node2", "ls", "/var/lib/cni/networks/cbr0").split()
    assert address.partition("/")[0] not in reservations
    assert "web" not in running.run("node2", "ls", "/run/netns").split()
    ran = running.weft("rm", "web", check=False)
    assert ran.returncode == 2
    assert "LAB-002 web: no pod of this name" in ran.stderr


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("pod1-1", "--node", "node1"), "pod pod1-1: the name is taken"),
        (("node1", "--node", "node1"), "pod node1: the name is taken"),
        (("web", "--node", "node7"), "node7: no node of this name; expected one of node1, node2"),
        (("../web", "--node", "node1"), "a pod named '../web'; expected a lower-case letter"),
    ],
)
def test_run_refuses_names(running, arguments, complaint):
    ran = running.weft("run", *arguments, check=False)
    assert ran.returncode == 2
    assert complaint in ran.stderr
    assert len(running.ps()["pods"]) == 4


def test_a_pod_whose_plugin_refuses_leaves_nothing(running):
    broken = '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},{"type":"no-such-plugin"}]}'
    running.run("node1", "sh", "-c", f"echo '{broken}' > /etc/cni/net.d/00-broken.conflist")
    before = running.run("node1", "sh", "-c", "ls /run/netns /var/lib/cni/networks/cbr0 /var/lib/cni/flannel")
    try:
        ran = running.weft("run", "web", "--node", "node1", check=False)
        assert ran.returncode == 1
        assert 'CNI-001 pod web on node1: network cbr0: plugin type="no-such-plugin" failed (add): ' in ran.stderr
        assert (
            running.run("node1", "sh", "-c", "ls /run/netns /var/lib/cni/networks/cbr0 /var/lib/cni/flannel") == before
        )
    finally:
        running.run("node1", "rm", "/etc/cni/net.d/00-broken.conflist")


def test_the_nodes_runtime_remembers_its_pods(running):
    known = running.run("node1", "sh", "-c", "ls /var/lib/cni/results").split()
    ids = [pod["id"] for pod in running.ps()["pods"] if pod["node"] == "node1"]
    assert sorted(known) == sorted([f"cbr0-{id_}-eth0" for id_ in ids] + [f"cni-loopback-{id_}-lo" for id_ in ids])


def test_ping_shows_which_address_arrives(running):
    address = running.pod("pod1-1")["addresses"][0].partition("/")[0]
    report = running.json("ping", "pod1-1", "pod2-1", "--count", "2")
    assert [(cell["fault"], cell["seen"]) for cell in report["cells"]] == [("", address)] * 2
    # outside of the pod network the node's address is what is seen, and that is no fault
    [cell] = running.json("ping", "pod1-1", "node2", "--count", "1")["cells"]
    assert (cell["fault"], cell["seen"]) == ("", "172.31.0.11")


def test_nodes_and_pods_know_each_other_by_name_and_no_other_name_is_waited_for(running):
    own = running.pod("pod2-1")["addresses"][0].partition("/")[0]
    assert running.run("pod1-1", "getent", "hosts", "pod2-1").split() == [own, "pod2-1"]
    assert running.run("node1", "getent", "hosts", "node2").split() == ["172.31.0.12", "node2"]
    assert f"({own})" in running.run("pod1-1", "ping", "-c", "1", "pod2-1")
    running.weft("run", "web", "--node", "node2")
    assert running.run("pod1-1", "getent", "hosts", "web")
    running.weft("rm", "web")
    # A name server that does not answer would be waited for 5 s and more; `timeout` ends with 124 then.
    for name in ("web", "no-such-name.example"):
        ran = running.weft("exec", "pod1-1", "--", "timeout", "4", "getent", "ahosts", name, check=False)
        assert (ran.returncode, ran.stdout) == (2, "")


def test_a_stopped_daemon_is_named_instead_of_waited_for(running):
    pid = str(running.node("node2")["pid"])
    running.run("node2", "kill", "-STOP", pid)
    try:
        for command in (("run", "web", "--node", "node2"), ("rm", "pod2-1")):
            ran = running.weft(*command, check=False)
            assert ran.returncode == 1
            assert f"LAB-002 weftd of node2: process {pid} runs and does not answer within 3 s" in ran.stderr
            assert f"'weft lab exec --lab {running.name} node2 -- kill -CONT {pid}' lets it go on" in ran.stderr
    finally:
        running.run("node2", "kill", "-CONT", pid)
    assert len(running.ps()["pods"]) == 4


def test_the_times_of_a_ping_are_the_packets_own(running):
    """However late the supervisor reads an answer: here it is stopped for a while, again and again."""
    supervisor = running.supervisor()
    stops = 0
    command = [WEFT, "lab", "ping", "--lab", running.name, "-o", "json", "pod1-1", "pod2-1", "-c", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            while not select.select([child.stdout], [], [], 0.05)[0]:
                os.kill(supervisor, signal.SIGSTOP)
                stops += 1
                time.sleep(0.2)
                os.kill(supervisor, signal.SIGCONT)
        finally:
            os.kill(supervisor, signal.SIGCONT)
        report = json.load(child.stdout)
    assert report["reached"] == 10000
    late = [cell["milliseconds"] for cell in report["cells"] if cell["milliseconds"] >= 150]
    assert stops >= 2
    # Only a stop between reading the clock and sending can count.
    assert len(late) <= stops // 2, (stops, late)


def test_logs(running):
    assert "weftd" in running.weft("logs", "node1").stdout
    assert any("etcd" in each["line"] for each in running.json("logs", "etcd"))
    ran = running.weft("logs", "../node1", check=False)
    assert ran.returncode == 2
    assert "expected one of etcd, node1, node2, supervisor, all" in ran.stderr


def test_the_logs_of_a_lab_are_one_by_their_times(running):
    found = running.json("logs")
    assert {each["name"] for each in found} >= {"node1", "node2", "etcd"}
    times = [each["time"] for each in found if each["time"] is not None]
    assert times == sorted(times)
    began = Path("/run/weft-lab", running.name, "pid").stat().st_mtime - 60
    assert all(began < each <= time.time() for each in times), "etcd's are in a zone of their own"
    assert running.json("logs", "all", "--tail", "5") == found[-5:]
    said = running.weft("logs", "node1", "node2", "--since", "10h").stdout.splitlines()
    assert {line.split()[0] for line in said} == {"node1", "node2"}
    assert running.weft("logs", "node1", "--since", "2099-01-01").stdout == ""


def test_a_log_is_followed_until_ctrl_c(running):
    command = [WEFT, "lab", "logs", "--lab", running.name, "-f", "-o", "json", "--tail", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        # When it begins to follow is not known, so this goes on until it has.
        while not select.select([child.stdout], [], [], 0.1)[0]:
            with Path("/run/weft-lab", running.name, "logs", "node2.log").open("a") as log:
                log.write("2026-01-02T03:04:05Z INFO test: hello\n")
        line = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=200)
    assert (line["name"], child.returncode, said.strip()) == ("node2", 130, "")
    assert line["line"] == "2026-01-02T03:04:05Z INFO test: hello"


@pytest.mark.spec("flannel.md §6.2/on-the-wire")
def test_a_capture_holds_inner_and_outer_packets_and_other_programs_read_it(running, tmp_path):
    out = tmp_path / "node 1.pcapng"
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, "node1", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline().startswith("capturing on all links of node1")
        running.weft("ping", "pod1-1", "pod2-1", "--count", "1")
        child.send_signal(signal.SIGINT)
        said, tried = child.communicate(timeout=200)
    assert child.returncode == 0
    assert said.endswith(f" packets in {out}\n")
    assert f"Next: wireshark -d udp.port==8472,vxlan -r '{out}'\n      tcpdump -n -T vxlan -r '{out}'\n" in tried
    inner_from, inner_to = (running.pod(pod)["addresses"][0].partition("/")[0] for pod in ("pod1-1", "pod2-1"))
    vtep = {
        node: json.loads(running.run(node, "ip", "-j", "link", "show", "flannel.1"))[0]["address"]
        for node in ("node1", "node2")
    }
    with PcapNgReader(str(out)) as reader:
        packets = list(reader)
    outer = [p for p in packets if UDP in p and p[UDP].dport == 8472 and p[IP].src == "172.31.0.11"]
    inner = [(VXLAN(bytes(p[UDP].payload)), p.comment) for p in outer]
    [(request, comment)] = [(p, said) for p, said in inner if ICMP in p and p[ICMP].type == 8]
    ways = f"172.31.0.11 > 172.31.0.12 VXLAN 1 | {inner_from} > {inner_to} ICMP echo request"
    assert comment.decode() == f"{ways} {request[ICMP].seq}"
    assert request.vni == 1
    assert (request.src, request.dst) == (vtep["node1"], vtep["node2"])
    assert (request[IP].src, request[IP].dst, request[IP].ttl) == (inner_from, inner_to, 63)
    plain = [p for p in packets if ICMP in p and p[ICMP].type == 8 and p[IP].ttl == 64]
    assert plain, "the pod's packet on its veth and on cni0"
    assert {p.sniffed_on for p in packets} >= {"node1:eth0", "node1:cni0", "node1:flannel.1"}
    listed = subprocess.run(["tcpdump", "-nn", "-r", str(out)], capture_output=True, text=True, check=True).stdout
    assert f"IP {inner_from} > {inner_to}: ICMP echo request" in listed


def test_a_capture_of_one_link_stops_after_its_count(running, tmp_path):
    out = tmp_path / "inner.pcapng"
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, "node1", "flannel.1", "--out", str(out), "--count", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        child.stderr.readline()
        running.weft("ping", "pod1-1", "pod2-1", "--count", "5")
        said, _ = child.communicate(timeout=200)
    assert (child.returncode, said) == (0, f"2 packets in {out}\n")
    with PcapNgReader(str(out)) as reader:
        packets = list(reader)
    assert [packet.sniffed_on for packet in packets] == ["node1:flannel.1"] * 2


def captured(running: Lab, *arguments: str, during: Sequence[str]) -> tuple[list[str], str]:
    """The lines that a capture prints, and what it says beside, while a command of the lab runs."""
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        first = child.stderr.readline()
        running.weft(*during)
        child.send_signal(signal.SIGINT)
        printed, said = child.communicate(timeout=200)
    assert child.returncode == 0, said
    return printed.splitlines(), first + said


def test_a_capture_of_all_nodes_shows_a_packets_way_in_order(running):
    between = ("--pod", "pod1-1", "--pod", "pod2-1", "--proto", "icmp")
    lines, said = captured(running, *between, during=("ping", "pod1-1", "pod2-1", "--count", "1"))
    assert said == f"capturing on all links of node1, node2; Ctrl-C ends it\n{len(lines)} packets\n"
    source, target = (running.pod(pod)["addresses"][0].partition("/")[0] for pod in ("pod1-1", "pod2-1"))
    requests = [line.split(maxsplit=4)[1:] for line in lines if "echo request" in line]
    seen = [(place, re.sub("veth.*", "veth", link), arrow) for place, link, arrow, _ in requests]
    assert seen == [
        *(("node1", link, "←") for link in ("veth", "cni0")),
        *(("node1", link, "→") for link in ("flannel.1", "eth0")),
        *(("node2", link, "←") for link in ("eth0", "flannel.1")),
        *(("node2", link, "→") for link in ("cni0", "veth")),
    ]
    plain = f"{source} > {target} ICMP echo request"
    [outer] = {text.rpartition(" ")[0] for _, link, _, text in requests if link == "eth0"}
    assert outer == f"172.31.0.11 > 172.31.0.12 VXLAN 1 | {plain}"
    assert {text.rpartition(" ")[0] for _, link, _, text in requests if link != "eth0"} == {plain}
    replies = [line.split()[1:3] for line in lines if "echo reply" in line]
    assert [replies[0][0], replies[-1][0]] == ["node2", "node1"]


def test_a_capture_for_programs_is_a_line_of_json_for_each_packet(running):
    between = ("--pod", "pod1-1", "--pod", "pod2-1")
    asked = ("pod1-1", "node2", "eth0", *between, "--count", "8", "-o", "json")
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        while child.poll() is None:  # programs are not told when it begins
            running.weft("ping", "pod1-1", "pod2-1", "--count", "2")
        printed, said = child.communicate()
    seen = [json.loads(line) for line in printed.splitlines()]
    assert (len(seen), said) == (8, b"")
    assert [each["time"] for each in seen] == sorted(each["time"] for each in seen)
    assert {(each["place"], each["link"], len(each["layers"])) for each in seen} == {
        ("pod1-1", "eth0", 3),
        ("node2", "eth0", 7),
    }
    tunnelled = [each for each in seen if each["place"] == "node2"]
    assert {each["layers"][3]["fields"]["vni"] for each in tunnelled} == {1}
    assert {("request" in each["text"], each["inbound"]) for each in tunnelled} == {(True, True), (False, False)}


def test_packets_that_came_faster_than_they_were_read_are_counted(running):
    asked = ("node1", "cni0", "--port", "5")
    burst = "from socket import *; u = socket(AF_INET, SOCK_DGRAM); [u.sendto(b'x', ('{}', 9)) for _ in range(40000)]"
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        child.stderr.readline()
        child.send_signal(signal.SIGSTOP)
        target = running.pod("pod2-1")["addresses"][0].partition("/")[0]
        running.run("pod1-1", sys.executable, "-c", burst.format(target))
        child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGINT)
        printed, said = child.communicate(timeout=200)
    assert (child.returncode, printed) == (0, "")
    assert re.fullmatch(r"weft: LAB-002 node1: \d+ packets came faster than .*\n0 packets\n", said), said


def test_what_a_filter_cannot_mean_is_refused(running):
    ran = running.weft("capture", "--pod", "none", check=False)
    assert (ran.returncode, ran.stderr) == (
        2,
        "weft: LAB-002 --pod: none; expected one of pod1-1, pod1-2, pod2-1, pod2-2\n",
    )
    ran = running.weft("capture", "--host", "10.244.1.2/24", check=False)
    assert ran.returncode == 2
    assert "10.244.1.2/24 has host bits set" in ran.stderr


def test_a_capture_to_standard_output_is_read_as_it_comes(running):
    with subprocess.Popen(
        [WEFT, "lab", "capture", "--lab", running.name, "node1", "flannel.1", "--out", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    ) as child:
        assert child.stderr is not None
        child.stderr.readline()
        listing = ["tcpdump", "-nn", "-l", "-c", "2", "-r", "-"]
        with subprocess.Popen(listing, stdin=child.stdout, stdout=subprocess.PIPE, text=True) as reader:
            child.stdout.close()
            running.weft("ping", "pod1-1", "pod2-1", "--count", "5")
            listed, _ = reader.communicate(timeout=200)
        assert listed.count("ICMP echo") == 2
        running.weft("ping", "pod1-1", "pod2-1", "--count", "2")  # of which nobody reads a packet any more
        _, said = child.communicate(timeout=200)
    assert child.returncode == 0
    assert re.fullmatch(rb"\d+ packets\n", said)
    assert not Path("/-").exists()


def test_packets_are_not_mixed_with_anything_else(running):
    ran = running.weft("capture", "node1", "--out", "-", "-o", "json", check=False)
    assert ran.returncode == 2
    assert json.loads(ran.stderr)["seen"] == "with -o json, which is for standard output too"
    main, terminal = os.openpty()
    try:
        ran = subprocess.run(
            [WEFT, "lab", "capture", "--lab", running.name, "node1", "--out", "-"],
            stdout=terminal,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=200,
        )
    finally:
        os.close(main)
        os.close(terminal)
    assert ran.returncode == 2
    assert "LAB-001 --out -: standard output is a terminal; expected a file or a pipe" in ran.stderr


def test_programs_get_json_alone():
    name = new_name()
    try:
        ran = weft("lab", "up", "-o", "json", "--name", name, "--nodes", "1", "--pods", "0")
        assert (json.loads(ran.stdout)["name"], ran.stderr) == (name, "")
    finally:
        weft("lab", "down", name)
    ran = weft("lab", "ps", "-o", "json", "--lab", name, check=False)
    assert (ran.returncode, ran.stdout, json.loads(ran.stderr)["code"]) == (2, "", "LAB-002")


def test_a_lab_to_be_cleaned_that_never_was_is_named(running):
    ran = weft("lab", "clean", "no-such-lab", check=False)
    assert ran.returncode == 2
    assert "LAB-002 no-such-lab: no trace of a lab of this name; expected one of " in ran.stderr
    assert running.name in ran.stderr


def test_a_capture_of_a_link_that_is_not_there(running, tmp_path):
    ran = running.weft("capture", "node1", "eth7", "--out", str(tmp_path / "x"), check=False)
    assert ran.returncode == 2
    assert "LAB-002 node1: no link 'eth7'; expected one of lo, eth0" in ran.stderr
    assert not (tmp_path / "x").exists()


def test_a_capture_into_a_file_that_cannot_be(running, tmp_path):
    out = tmp_path / "none" / "x.pcapng"
    ran = running.weft("capture", "node1", "--out", str(out), "--seconds", "1", check=False)
    assert ran.returncode == 2
    assert f"weft: LAB-002 --out {out}: No such file or directory; expected a file that can be written" in ran.stderr


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


def test_nodes_have_names_for_ip_netns(running):
    ran = subprocess.run(
        ["ip", "netns", "exec", f"lab-{running.name}-node2", "ip", "-br", "address", "show", "eth0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "172.31.0.12/16" in ran.stdout


def test_two_labs_stand_side_by_side(running):
    with lab("--nodes", "2", "--backend", "host-gw") as other:
        listed = {one["name"]: one["state"] for one in json.loads(weft("lab", "list", "-o", "json").stdout)}
        assert listed[running.name] == listed[other.name] == "up"
        assert running.json("pingall")["reached"] == other.json("pingall")["reached"] == 20
        ran = weft("lab", "ps", check=False)
        assert ran.returncode == 2
        assert "labs are up; expected one of" in ran.stderr
    assert running.json("pingall")["reached"] == 20


def test_a_second_lab_of_one_name_is_refused(running):
    ran = weft("lab", "up", "--name", running.name, check=False)
    assert ran.returncode == 2
    assert f"LAB-002 {running.name}: a lab of this name is up" in ran.stderr
    assert running.json("pingall")["reached"] == 20


def test_the_shell_completes_names(running):
    def completed(*words: str) -> set[str]:
        line = " ".join(("weft", "lab", *words))
        environ = os.environ | {
            "_WEFT_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) + 1),
        }
        ran = subprocess.run([WEFT], env=environ, capture_output=True, text=True, check=False)
        return {item.partition(",")[2] for item in ran.stdout.split()}

    chosen = ("--lab", running.name)
    assert completed("exec", *chosen, "pod2") == {"pod2-1", "pod2-2"}
    assert completed("ping", *chosen, "") >= {"node1", "node2", "pod1-1"}
    assert completed("logs", *chosen, "no") == {"node1", "node2"}
    assert completed("trace", *chosen, "pod1-1", "o") == {"outside"}
    assert completed("trace", *chosen, "--si") == {"--size"}
    assert running.name in completed("down", "")
    assert completed("up", "--ba") == {"--backend"}


def test_commands_without_a_lab_say_what_to_do():
    ran = Lab(new_name()).weft("ps", check=False)
    assert ran.returncode == 2
    assert "LAB-002" in ran.stderr


def test_the_demo_tells_its_story(running):
    # `running` is only there to show that a demo does not mind another lab.
    ran = weft("lab", "demo")
    for told in (
        "UDP  port",
        "-> 8472",
        "VXLAN  VNI 1",
        "FDB entry",
        "proto 165",
        "It was back after",
        "ROUTE-001",
        "host-gw",
    ):
        assert told in ran.stdout, told
    assert ran.stdout.count("Two pods on different nodes: weft lab ping") == 2, "of each back end"
    assert not Path("/run/netns/lab-demo-node1").exists()
