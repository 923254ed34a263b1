"""`weft lab check`: a lab that is well passes; of one that is broken the first line names the node and the reason."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually
from weft.diag.check.scenarios import BY_NAME

# Faults, on which node, and how the conclusion begins.
BROKEN = [
    ("forward-dropped", "node2", "every lost packet is from or to node2: FW-002 forward"),
    ("port-eaten", "node1", "every packet through the pod network from others to node1 is lost: FW-002 node1: rule "),
    ("path-narrow", "node3", "every packet larger than 1350 bytes from others to node3 is lost: MTU-001 "),
]

SOCKETS = ("ss", "-Htuanp", "exclude", "time-wait")  # the daemon's health port has connections of the lab's

# Has port 53 and does not answer.
SILENT = 'import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(("", 53)); time.sleep(1000)'


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "3", "--pods", "2", "--family", "46") as running:
        yield running


def check(running: Lab, *options: str) -> Any:
    ran = running.weft("check", "-o", "json", *options, check=False)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert ran.returncode == (3 if found["failed"] else 0)
    return found


def test_a_lab_that_is_well_passes_every_trial_and_keeps_nothing(running: Lab):
    sockets = {where: set(running.run(where, *SOCKETS).splitlines()) for where in ("node1", "pod1-1")}
    found = check(running)
    assert found["conclusion"] == f"everything reaches everything: {found['tried']} trials, and none failed"
    assert all(each["tried"] and not each["failed"] for each in found["demands"])
    assert [each["name"] for each in found["concerns"] if each["tried"]] == ["container-to-container", "pod-to-pod"]
    without = [each["name"] for each in found["scenarios"] if not each["tried"]]
    assert without == [name for name in BY_NAME if "service" in name or "port" in name]
    refused = {t["outcome"]["refused"] for t in found["trials"] if t["trial"]["scenario"] == "pod-pod-more"}
    assert refused == {running.node("node1")["mtu"]}
    for where, before in sockets.items():
        assert set(running.run(where, *SOCKETS).splitlines()) <= before


@pytest.mark.parametrize("fault, node, begin", BROKEN)
def test_the_conclusion_names_node_and_reason(running: Lab, fault: str, node: str, begin: str):
    running.weft("break", node, fault)
    try:
        ran = running.weft("check", "--quick", check=False)
    finally:
        running.weft("break", node, fault, "--mend")
    assert ran.returncode == 3
    first, second, *_ = ran.stdout.splitlines()
    assert first.startswith(begin)
    assert second.endswith(" of 276 trials failed")
    [code] = re.findall("[A-Z]+-[0-9]{3}", begin)
    assert f"\n{node}, by doctor: {code} " in ran.stdout
    assert "weft lab trace" in ran.stderr


def test_a_link_that_loses_some_packets_does_not_lose_every_one(running: Lab):
    running.weft("link", "node2", "--loss", "30%")
    try:
        found = eventually(lambda: found if (found := check(running, "--quick"))["failed"] else None, seconds=120)
    finally:
        running.weft("link", "node2", "--clear")
    assert re.match("(some|every lost packet|[0-9]+) ", found["conclusion"]), found["conclusion"]
    assert "node2" in found["conclusion"] or "by doctor" in found["conclusion"]


def test_what_an_uplink_that_became_narrow_loses_has_its_code(running: Lab):
    running.weft("break", "node2", "uplink-narrow")
    try:
        eventually(lambda: running.node("node2")["mtu"] == 1330, seconds=60)  # weftd has seen it
        found = check(running, "--quick")
    finally:
        running.weft("break", "node2", "uplink-narrow", "--mend")
    assert found["failed"]
    assert "MTU-001" in found["conclusion"], found["conclusion"]
    assert "is not refused" not in found["conclusion"]
    eventually(lambda: running.node("node2")["mtu"] == 1430, seconds=60)


def test_pods_that_keep_their_mtu_behind_a_change_of_back_end_lose_nothing(tmp_path: Path):
    with lab("--nodes", "2", "--pods", "1") as other:
        wanted = tmp_path / "net-conf.json"
        wanted.write_text(json.dumps(other.json("config") | {"Backend": {"Type": "host-gw"}}))
        other.weft("config", "set", str(wanted))
        other.weft("restart", "node1/weftd", "node2/weftd")
        eventually(lambda: {other.node(name)["mtu"] for name in ("node1", "node2")} == {1500}, seconds=60)
        found = check(other)
        assert found["conclusion"] == f"everything reaches everything: {found['tried']} trials, and none failed"
        # Pods have the MTU with which they were made, and send nothing larger.
        large = json.loads(other.weft("trace", "-o", "json", "pod1-1", "pod2-1", "--size", "1500", check=False).stdout)
        assert (large["problem"]["where"], large["sized"]["largest"]) == ("pod1-1", 1450)


# Faults, on which node, and the first line of `weft check` on node1.
FROM_NODE1 = [
    ("forward-dropped", "node1", "every lost packet is from or to node1: FW-002 forward"),
    (
        "port-eaten",
        "node2",
        "every packet through the pod network from or to 172.31.0.12 is lost: REACH-002 ",
    ),
    ("path-narrow", "node1", "every packet larger than 1350 bytes from or to node1 is lost: MTU-001 "),
]


def test_a_node_that_is_well_says_so_alone(running: Lab):
    found = json.loads(running.run("node1", "weft", "check", "-o", "json"))
    assert found["conclusion"] == f"everything reaches everything: {found['tried']} trials, and none failed"
    assert found["untried"] == []
    sources = {each["trial"]["source"] for each in found["trials"]}
    assert sources == {"node1", *(pod["name"] for pod in running.ps()["pods"] if pod["node"] == "node1")}
    assert {each["name"] for each in found["scenarios"] if not each["tried"]} == set()


@pytest.mark.parametrize("fault, node, begin", FROM_NODE1)
def test_a_node_names_the_reason_alone(running: Lab, fault: str, node: str, begin: str):
    running.weft("break", node, fault)
    try:
        ran = running.weft("exec", "node1", "weft", "check", check=False)
    finally:
        running.weft("break", node, fault, "--mend")
    assert ran.returncode == 3
    assert ran.stdout.startswith(begin)
    assert "Next: weft doctor\n      weft trace --explain 10.244.1." in ran.stderr


def test_as_junit_a_refusal_that_does_not_come_back_fails(running: Lab):
    # The pod's kernel believes in a wide link, so a node refuses what is too large, and a firewall drops its errors.
    rule = "icmp type destination-unreachable drop"
    running.run("pod1-1", "ip", "link", "set", "eth0", "mtu", "1500")
    running.run("pod1-1", "nft", f"table ip t {{ chain c {{ type filter hook input priority 0; {rule}; }}; }}")
    try:
        suite = ET.fromstring(running.weft("check", "--quick", "-o", "junit", check=False).stdout)  # noqa: S314 - our own
    finally:
        running.run("pod1-1", "nft", "delete", "table", "ip", "t")
        running.run("pod1-1", "ip", "link", "set", "eth0", "mtu", str(running.node("node1")["mtu"]))
    failed = [case for case in suite if case.find("failure") is not None]
    assert {case.get("classname") for case in failed} == {"weft.lab.check.pod-pod-more"}
    assert {str(case.get("name")).split()[0] for case in failed} == {"pod1-1"}
    assert {str(case.get("name")).split()[-1] for case in failed} == {"IPv4"}  # that of IPv6 comes back


def test_services_and_host_ports_are_tried_and_rules_that_are_gone_are_found(running: Lab):
    running.weft("expose", "web", "--port", "80", "--target-port", "8080", "--node-port", "30080", "pod1-1", "pod2*")
    running.weft("expose", "dns", "--port", "53", "--udp", "pod1-2")
    running.weft("run", "host", "--node", "node3", "--port", "80:8080", "--port", "53:53/udp")
    found = check(running, "--quick")
    assert not found["failed"]
    assert all(each["tried"] for each in (*found["concerns"], *found["scenarios"]) if each["name"] != "pod-pod-many")
    running.weft("rm", "host")
    running.run("pod1-1", "sh", "-c", "cd /tmp; setsid python3 -m http.server 8080 >/dev/null 2>&1 &")
    running.run("pod1-2", "sh", "-c", f"setsid python3 -c '{SILENT}' >/dev/null 2>&1 &")
    eventually(lambda: "dns" in "".join(check(running, "--quick")["untried"]), seconds=30)
    running.run("node3", "nft", "flush", "table", "ip", "weft-lab-services")
    found = check(running, "--quick")
    # Which pods chance has led to decides how much else is said.
    assert set(re.findall("node[0-9]", found["conclusion"])) == {"node3"}, found["conclusion"]
    assert "SVC-001" in found["conclusion"]
    assert not any(each["failed"] for each in found["demands"])
