"""Work in a lab: commands in all nodes, files in and out, the prompt, the picture. One lab with two nodes."""

import json
import os
import pty
import select
import signal
import subprocess
from xml.etree import ElementTree as ET

import pytest

from tests.support.lab import WEFT, lab, new_name, weft


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2", "--pods", "1") as running:
        yield running


def test_a_dry_run_says_what_a_lab_is_then(running):
    said = weft("lab", "up", "--nodes", "2", "--pods", "1", "--name", "another", "--dry-run", "-o", "json").stdout
    plan, report = json.loads(said), running.ps()
    for what, keys in (("nodes", ("name", "underlay", "subnets")), ("pods", ("name", "node", "addresses"))):
        planned, found = ([[each[key] for key in keys] for each in lab[what]] for lab in (plan, report))
        assert planned == found
    assert "another" not in weft("lab", "list").stdout


def test_a_lab_of_a_file_from_a_pipe():
    name = new_name()
    file = f"name: {name}\nnodes: [only]\npods: 2\n"
    try:
        report = weft("lab", "up", "-f", "-", "--pods", "0", "-o", "json", stdin=None, input=file).stdout
        assert [(node["name"], node["daemon"]) for node in json.loads(report)["nodes"]] == [("only", "ready")]
        assert json.loads(report)["pods"] == []
    finally:
        weft("lab", "down", name)


def test_a_command_in_all_nodes_is_told_under_their_names_and_ends_as_the_worst(running):
    ran = running.weft("exec", "all", "--", "sh", "-c", "hostname; hostname >&2; test $(hostname) = node1", check=False)
    assert (ran.returncode, ran.stdout) == (1, "== node1\nnode1\n== node2, exit status 1\nnode2\n")
    assert ran.stderr == "node1\nnode2\n"
    assert running.json("exec", "all", "--", "sh", "-c", "cat; hostname") == [
        {"node": name, "status": 0, "stdout": f"{name}\n", "stderr": ""} for name in ("node1", "node2")
    ]
    ran = running.weft("exec", "all", "--", "no-such-program", check=False)
    assert (ran.returncode, ran.stdout.count("exit status 127")) == (127, 2)
    ran = running.weft("run", "all", "--node", "node1", check=False)
    assert ran.returncode == 2
    assert "a pod named 'all'; expected a name that means nothing else in a lab" in ran.stderr


def test_a_command_in_all_nodes_is_ended_by_ctrl_c(running):
    command = [WEFT, "lab", "exec", "--lab", running.name, "all", "--", "sh", "-c", "echo $$ >/run/me; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        for node in ("node1", "node2"):
            running.run(node, "sh", "-c", "until test -s /run/me; do :; done")
        child.send_signal(signal.SIGINT)
        assert child.wait(100) == 130
    for node in ("node1", "node2"):
        running.run(node, "timeout", "10", "sh", "-c", "while test -d /proc/$(cat /run/me); do :; done; rm /run/me")


def test_files_and_directories_come_out_of_a_lab_and_go_in(running, tmp_path):
    out = tmp_path / "flannel"
    assert running.json("cp", "node1:/run/flannel", str(out))["files"] == 1
    env = out / "subnet.env"
    assert env.read_text() == running.run("node1", "cat", "/run/flannel/subnet.env")
    program = out / "below" / "program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    # Into a directory that is there, with a name of its own, again over what is there, and on to a pod.
    said = running.weft("cp", str(out), "node2:/run").stdout
    assert said == f"2 files, {env.stat().st_size + program.stat().st_size} bytes\n"
    assert running.run("node2", "/run/flannel/below/program") == "it runs\n"
    running.weft("cp", str(program), "pod2-1:/run/mine")
    program.write_text("#!/bin/sh\necho another\n")
    running.weft("cp", str(program), "pod2-1:/run/mine")
    assert running.run("pod2-1", "/run/mine") == "another\n"
    running.weft("cp", "pod2-1:/run/mine", "node1:/run/theirs")
    assert running.run("node1", "/run/theirs") == "another\n"


def test_no_link_of_a_lab_leads_a_copy_elsewhere(running, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    running.run("node1", "sh", "-c", f"mkdir /run/tree && ln -s {tmp_path} /run/tree/link && touch /run/tree/file")
    ran = running.weft("cp", "node1:/run/tree", str(tmp_path / "out"), check=False)
    assert ran.returncode == 2
    assert "node1:/run/tree: neither files nor directories: link; expected files and directories" in ran.stderr
    assert not (tmp_path / "out").exists()
    # Into a directory where a link has the name of a directory of ours.
    source = tmp_path / "tree"
    (source / "link").mkdir(parents=True)
    (source / "link" / "secret").write_text("of the copy")
    ran = running.weft("cp", str(source), "node1:/run", check=False)
    assert ran.returncode == 2
    assert "node1:/run: tree/link is a file; expected a directory, or nothing" in ran.stderr
    assert secret.read_text() == "of the machine"
    # A link in place of a file is replaced, not followed.
    running.run("node1", "ln", "-s", str(secret), "/run/tree/one")
    running.weft("cp", str(source / "link" / "secret"), "node1:/run/tree/one")
    assert secret.read_text() == "of the machine"
    assert running.run("node1", "cat", "/run/tree/one") == "of the copy"
    running.run("node1", "rm", "-r", "/run/tree")


@pytest.mark.parametrize(
    "source, target, said",
    [
        ("{0}/file", "{0}/other", "both are paths of the machine; expected NODE:PATH or POD:PATH on one side at least"),
        ("node1:/nothing", "{0}", "node1:/nothing: there is nothing; expected a file or a directory"),
        ("{0}/file", "node1:/no/where", "node1:/no/where: no directory /no; expected a directory that is there"),
        ("{0}/file", "node1:/run/new/", "node1:/run/new/: no such directory; expected a directory, or a new name"),
        ("{0}/tree", "node1:/run/flannel/subnet.env", "it is a file; expected a directory, or a new name"),
        ("{0}/fifo", "node1:/run", "neither files nor directories: {0}/fifo"),
        ("{0}/tree/..", "node1:/run", "node1:/run: it is a directory; expected a new name for what is copied"),
        ("node7:/run", "{0}", "node7: no node or pod of this name; expected one of node1, node2, pod1-1"),
    ],
)
def test_a_copy_that_cannot_be(running, tmp_path, source, target, said):
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    if "fifo" in source:
        os.mkfifo(tmp_path / "fifo")
    ran = running.weft("cp", source.format(tmp_path), target.format(tmp_path), check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said.format(tmp_path) in ran.stderr


def test_the_network_configuration_is_shown_and_changed(tmp_path):
    with lab("--nodes", "2", "--pods", "1") as running:
        before = running.json("config")
        assert before["Backend"] == {"Type": "vxlan"}
        wanted = tmp_path / "net-conf.json"
        for wrong, said in (
            (before | {"Backend": {"Type": "vxlam"}}, "Did you mean vxlan?"),
            (before | {"Network": "172.31.0.0/16"}, "ADDR-001"),
            (before | {"Network": "10.244.0.0/30"}, "CONF-002"),
            (before | {"EnableIPv6": True, "IPv6Network": "fc00::/48"}, "IPv4, as the lab has"),
        ):
            wanted.write_text(json.dumps(wrong))
            refused = running.weft("config", "set", str(wanted), check=False)
            assert refused.returncode == 2
            assert said in refused.stderr
            assert str(wanted) in refused.stderr
        assert running.json("config") == before
        wanted.write_text(json.dumps(before | {"Backend": {"Type": "host-gw"}}, indent=2))
        put = running.weft("config", "set", str(wanted))
        assert "the store holds host-gw now" in put.stdout
        [restart] = [line for line in put.stderr.splitlines() if "weft lab restart" in line]
        weft(*restart.split()[1:])
        assert running.ps()["backend"] == "host-gw"
        assert "flannel.1" not in running.weft("graph").stdout
        # Also when another than the lab has put it there.
        key, text = "/coreos.com/network/config", json.dumps(before)
        running.run("node1", "env", "ETCDCTL_API=3", "etcdctl", "put", key, text)
        assert running.ps()["backend"] == "vxlan"


def test_a_pod_in_another_network_and_with_an_address_that_it_asks_for(running, tmp_path):
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}
    plugins = [{"type": "bridge", "bridge": "second0", "isGateway": True, "ipam": ipam}]
    file = tmp_path / "20-second.conflist"
    file.write_text(json.dumps({"cniVersion": "1.0.0", "name": "second", "plugins": plugins}))
    running.weft("cp", str(file), "node1:/etc/cni/net.d/")
    asked = ("--network", "second", "--ip", "10.99.0.20")
    assert running.json("run", "there", "--node", "node1", *asked)["addresses"] == ["10.99.0.20/24"]
    assert running.json("run", "fixed", "--node", "node1", "--ip", "10.244.1.99")["addresses"] == ["10.244.1.99/24"]
    taken = running.weft("run", "again", "--node", "node1", *asked, check=False)
    assert taken.returncode == 1
    assert "10.99.0.20" in taken.stderr
    unknown = running.weft("run", "again", "--node", "node1", "--network", "secnd", check=False)
    assert "expected one of cbr0, second" in unknown.stderr
    for pod in ("there", "fixed"):
        running.weft("rm", pod)
    assert "10.99" not in running.run("node1", "ls", "/var/lib/cni/networks/second")


def test_lines_from_a_pipe_are_commands_of_the_lab(running):
    lines = """
        # first a pod, then a node, then all
        pod1-1 ping -c 1 pod2-1 | grep transmitted
        node1 read line; echo "no $line"
        all hostname
        pod
        rm pod9-9
        ping pod1-1 pod2-1 -c 1
        node2 exit 3
    """
    ran = running.weft("sh", stdin=None, input=lines, check=False)
    assert ran.returncode == 3
    assert ran.stdout.startswith("1 packets transmitted, 1 received, 0% packet loss")
    assert "\nno \n== node1\nnode1\n== node2\nnode2\npod1-1 -> pod2-1 (10.244.2.2): " in ran.stdout
    assert "FLAG-001 weft lab sh: pod: a word alone" in ran.stderr
    assert "LAB-002 pod9-9: no pod of this name" in ran.stderr


def test_the_prompt_completes_keeps_a_history_and_survives_ctrl_c(running, tmp_path):
    pid, master = pty.fork()
    if pid == 0:
        environ = os.environ | {"XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
        os.execve(WEFT, [WEFT, "lab", "sh", "--lab", running.name], environ)  # noqa: S606
    said = b""

    def until(text: bytes) -> None:
        nonlocal said
        while text not in said:
            said += os.read(master, 4096)
        said = said.partition(text)[2]

    def interrupt() -> None:
        """Press Ctrl-C as people do, who press it again where it had no effect.

        One that comes just before a program has begun, or before readline waits for keys, may have none.
        """
        nonlocal said
        for _ in range(5):
            os.write(master, b"\x03")
            while prompt not in said and select.select([master], [], [], 3)[0]:
                said += os.read(master, 4096)
            if prompt in said:
                said = said.partition(prompt)[2]
                return
        raise AssertionError(f"Ctrl-C had no effect: {said!r}")

    prompt = f"weft:{running.name}> ".encode()
    until(prompt)
    os.write(master, b"pod1\t")
    until(b"pod1-1 ")
    os.write(master, b"hostname\n")
    until(b"pod1-1\r\n")
    until(prompt)
    os.write(master, b"node1 echo begun; exec sleep 1000\n")
    until(b"begun\r\n")
    interrupt()
    os.write(master, b"half a line")
    until(b"half a line")
    interrupt()
    os.write(master, b"pinga\t\n")
    until(b"pings arrived from the source's own address")
    until(prompt)
    os.write(master, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(master)
    history = tmp_path / "weft" / "lab-history"
    assert [line.strip() for line in history.read_text().splitlines()] == [
        "pod1-1 hostname",
        "node1 echo begun; exec sleep 1000",
        "pingall",
    ]
    assert history.stat().st_mode & 0o777 == 0o600


def test_throughput_is_measured_by_iperf3(running):
    found = running.json("iperf", "pod1-1", "pod2-1", "--seconds", "1")
    assert (found["protocol"], found["address"], found["packets"]) == ("TCP", "10.244.2.2", None)
    assert found["gbits"] > 0
    assert found["retransmits"] >= 0
    # A program that cannot be run in one of the places is named, with a shell's status.
    running.run("pod2-1", "mount", "--bind", "/dev/null", "/usr/bin/iperf3")
    for way in (("pod1-1", "pod2-1"), ("pod2-1", "pod1-1")):
        ran = running.weft("iperf", *way, check=False)
        assert ran.returncode == 126
        assert "HOST-002 iperf3: Permission denied; expected iperf3" in ran.stderr
    running.run("pod2-1", "umount", "/usr/bin/iperf3")
    # A port that is taken is iperf3's own complaint.
    with subprocess.Popen(
        [WEFT, "lab", "exec", "--lab", running.name, "node2", "--", "iperf3", "-s", "--forceflush"],
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        while b"listening" not in other.stdout.readline():
            pass
        ran = running.weft("iperf", "node1", "node2", check=False)
        other.terminate()
    assert ran.returncode == 1
    assert "LAB-002 weft lab iperf: iperf3 in node2: iperf3: error - unable to start listener" in ran.stderr


def test_a_picture_shows_what_is_there(running):
    tree = running.weft("graph").stdout
    report = running.ps()
    drawn = running.weft("graph", "-o", "svg").stdout
    ET.fromstring(drawn)  # noqa: S314 - it is ours
    for node in report["nodes"]:
        assert f" {node['name']}, ready\n" in tree
        [device] = json.loads(running.run(node["name"], "ip", "-j", "address", "show", "flannel.1"))
        [bridge] = json.loads(running.run(node["name"], "ip", "-j", "address", "show", "cni0"))
        for name, link in (("flannel.1 (VXLAN 1)", device), ("cni0 (bridge)", bridge)):
            [address] = [each["local"] for each in link["addr_info"] if each["family"] == "inet"]
            assert f"{name}  {address}\n" in tree
            assert f">{address}</text>" in drawn
    assert f"pod2-1  {report['pods'][1]['addresses'][0].partition('/')[0]}\n" in tree
    assert running.json("graph")["nodes"][1]["pods"] == [{"name": "pod2-1", "addresses": ["10.244.2.2"]}]
