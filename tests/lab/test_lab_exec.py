"""Commands in nodes and pods, and pods that are started and ended, in one lab with two nodes."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.lab import WEFT, lab
from tests.support.weftd import eventually


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2") as running:
        yield running


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
