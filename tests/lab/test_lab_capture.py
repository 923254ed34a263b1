"""Packets captured in one lab with two nodes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.vxlan import VXLAN
from scapy.utils import PcapNgReader

from tests.support.lab import WEFT, Lab, lab


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2") as running:
        yield running


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
