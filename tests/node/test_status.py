"""`weft status`, and the socket behind it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.weftd import DUAL, VXLAN, Cluster, Daemon, eventually

STRANGER = """
import os, socket, sys
os.setuid(65534)
asking = socket.socket(socket.AF_UNIX)
asking.connect(chr(0) + sys.argv[1])
asking.sendall(b'{"ask":"state"}' + bytes([10]))
print(len(asking.recv(9)))
"""


def run(node: Daemon, *command: str) -> "subprocess.CompletedProcess[str]":
    process = node.netns.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=200)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def ask(node: Daemon, *words: str) -> "subprocess.CompletedProcess[str]":
    return run(node, str(Path(sys.executable).with_name("weft")), "status", *words)


def asked(node: Daemon, *words: str) -> "dict[str, object]":
    return dict(json.loads(ask(node, "-o", "json", *words).stdout))


def test_a_node_that_is_well(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    one, _ = cluster.nodes(1, 2)
    eventually(lambda: asked(one)["peers"])
    said = ask(one)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    kinds = ["weftd", "network", "uplink", "", "lease", "peers", "routes", "rules", "versions"]
    assert [line[:11].strip() for line in lines] == kinds, said.stdout
    assert " ready, up " in lines[0]
    assert lines[1].endswith("vxlan, flannel-v6.1 flannel.1, MTU of pods 1430")
    assert "172.31.0.1 fd31::1, MTU 1500" in lines[2]
    assert re.search(r"public IP 172.31.0.1 fd31::1, held by the store, for 23 h 59 min more$", lines[4])
    assert lines[5].endswith("1 served, 0 not served or only in part, 0 refused")
    assert re.search(r"Linux .*, Python 3\..*, packet filter iptables \d", lines[-1])


def test_what_is_wrong_is_said_with_its_code(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    cluster.peer(50, data={"VtepMAC": "none"})
    cluster.peer(51, lease="10.6.51.0-24")
    state = eventually(lambda: (state := asked(node))["peers"] and state["refused"] and state)
    assert [(peer["id"], peer["trouble"]["code"]) for peer in state["peers"]] == [("10.5.50.0-24", "ADDR-002")]
    assert [refused["id"] for refused in state["refused"]] == ["10.6.51.0-24"]
    text = ask(node).stdout
    assert re.search(r"^! peer 10\.5\.50\.0-24 for \d+ s: ADDR-002 ", text, re.MULTILINE)
    assert re.search(r"^! refused for \d+ s: ADDR-002 lease 10\.6\.51\.0-24", text, re.MULTILINE)
    node.ip("link set eth0 down")
    eventually(lambda: ask(node).returncode == 1)
    assert "! uplink: IFACE-002" in ask(node).stdout


def test_repairs_are_counted_by_code(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(50)
    node = cluster.node(1).start()
    eventually(lambda: "10.5.50.0/24" in node.ip("route"))
    node.ip("route del 10.5.50.0/24")
    eventually(lambda: "10.5.50.0/24" in node.ip("route"))
    assert asked(node)["loops"]["routes"]["repairs"] == {"ROUTE-001": 1}
    assert "1 repair (ROUTE-001 1)" in ask(node).stdout


def test_a_daemon_that_waits_says_for_what(cluster: Cluster):
    node = cluster.node(1).spawn()
    node.says("waiting for the network configuration")
    said = ask(node)
    assert said.returncode == 1
    assert "not ready" in said.stdout
    assert "! lease: CONF-" in said.stdout


def test_of_several_daemons_one_is_chosen_by_name(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    other = cluster.beside(node, "other", prefix=f"{cluster.prefix}-other").spawn()
    other.says("waiting for the network configuration")
    said = ask(node)
    assert "INST-003 --instance: 2 daemons run here; expected " in said.stderr
    names = said.stderr.partition("expected ")[2].strip().rstrip(".").split(" or ")
    assert {asked(node, "--instance", name)["pid"] for name in names} == {node.pid, other.pid}
    assert "INST-003 --instance none: no daemon of that name; expected " in ask(node, "--instance", "none").stderr


def test_none_and_one_that_is_stopped(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1)
    said = ask(node)
    assert (said.returncode, said.stdout) == (1, "")
    assert "INST-003 this network namespace: no weftd runs here" in said.stderr
    node.start()
    os.kill(node.pid, signal.SIGSTOP)
    said = ask(node)
    os.kill(node.pid, signal.SIGCONT)
    assert said.returncode == 1
    assert "does not answer within 10 s" in said.stderr


def test_only_root_is_answered(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    said = run(node, sys.executable, "-c", STRANGER, name_of(node))
    assert said.stdout in ("", "0\n")
    assert said.stdout or "ConnectionResetError" in said.stderr or "BrokenPipeError" in said.stderr


def test_clients_that_say_nothing_hold_up_others_for_some_seconds(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()

    def silent() -> list[socket.socket]:
        made = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(30)]
        for each in made:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(f"\0{name_of(node)}")
        return made

    held = node.netns.call(silent)
    eventually(lambda: ask(node).returncode == 0, seconds=60)
    for each in held:
        each.close()


def name_of(node: Daemon) -> str:
    """The name of the socket in the abstract namespace."""
    [name] = {
        line.split()[-1] for line in node.netns.run("cat /proc/net/unix").splitlines() if "@weft/instance" in line
    }
    return name.removeprefix("@")


def test_what_ails_the_node_beside_weft_is_told_by_itself(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    node.netns.run("sysctl -qw net.ipv4.ip_forward=1 net/ipv4/conf/flannel.1/forwarding=0")
    setting = "KERN-002 sysctl net/ipv4/conf/flannel.1/forwarding: it is 0"
    node.says(setting, seconds=20)
    said = ask(node)
    assert said.returncode == 0  # it can serve pods, and what it was told to keep it keeps
    assert f"\n! {setting}" in said.stdout
