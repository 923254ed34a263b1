"""What commands do that show or change a lab, in one lab with two nodes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.lab import WEFT, Lab, lab, new_name, weft
from tests.support.weftd import eventually


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
