"""A lab that is changed while it runs: bad links, cut ways, daemons, nodes and the store that end and come back."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import WEFT, Lab, lab
from tests.support.weftd import eventually
from weft.lab import protocol
from weft.lab.commands.choose import ask, find
from weft.lab.links import ITSELF
from weft.model.node.history import EventsSince

NEW = {"up": True, "delay": 0.0, "loss": 0.0, "rate": 0}
NODE2 = "172.31.0.12"


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with lab("--nodes", "3", "--pods", "1", "--family", "46") as running:
        yield running


@pytest.fixture
def changed(running: Lab) -> Iterator[Lab]:
    """The lab, whose links are as new and whose partitions are healed afterwards."""
    yield running
    running.weft("link", "--clear")
    running.weft("heal")


def switch(running: Lab, *command: str) -> str:
    """Run a command in the lab's own network namespace, where the switch is."""
    entered = ["nsenter", f"--net=/proc/{running.supervisor()}/ns/net", *command]
    return subprocess.run(entered, capture_output=True, text=True, check=True).stdout


def queues(running: Lab) -> dict[str, dict[str, Any]]:
    listed = json.loads(switch(running, "tc", "-s", "-j", "qdisc", "show"))
    return {each["dev"]: each for each in listed if each["kind"] in ("tbf", "netem")}


def test_a_link_as_new(running: Lab):
    assert running.json("link") == {"links": dict.fromkeys(["node1", "node2", "node3"], NEW), "cuts": []}
    assert running.json("link", "node2")["links"] == {"node2": NEW}
    assert "link of" not in running.weft("ps").stdout


def test_a_link_that_loses_packets(changed: Lab):
    before = changed.run("node2", "nft", "--stateless", "list", "ruleset")
    assert changed.reached("node1", "node2") == {4: True, 6: True}  # they know each other's MAC then
    ran = changed.weft("link", "node2", "--loss", "50%")
    assert "node2  up    -      50 %  -\n" in ran.stdout
    said = changed.run("node1", "ping", "-q", "-l", "200", "-W", "1", "-c", "200", NODE2, check=False)
    [lost] = re.findall(r"([\d.]+)% packet loss", said)
    assert 55 < float(lost) < 94  # three in four, as each direction loses half: six standard deviations and more
    assert changed.node("node2")["link"] == NEW | {"loss": 50.0}
    assert "link of node2: loss 50 %\n" in changed.weft("ps").stdout
    assert changed.run("node2", "nft", "--stateless", "list", "ruleset") == before
    changed.weft("link", "node2", "--loss", "100%")
    assert changed.lost("node1", "node2")
    assert changed.reached("node1", "node3") == {4: True, 6: True}
    changed.weft("link", "node2", "--loss", "0")
    assert changed.json("link")["links"]["node2"] == NEW
    assert "weft-lab" not in switch(changed, "nft", "list", "tables")
    assert changed.reached("node1", "node2") == {4: True, 6: True}


def test_top_shows_what_pods_and_ways_carry_and_what_a_bad_link_takes(changed: Lab):
    """In a lab of vxlan and IPv4: the pods' pings are in the nodes' tunnel, and nobody else says anything."""
    changed.weft("link", "node2", "--loss", "50%")
    target = changed.pod("pod2-1")["addresses"][0].partition("/")[0]
    ping = ("lab", "exec", "--lab", changed.name, "pod1-1", "--", "ping", "-q", "-i", "0.01", "-w", "20", target)
    with subprocess.Popen([str(WEFT), *ping], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sending:
        try:
            seen = eventually(lambda: busy(changed.json("top")), seconds=20)
        finally:
            sending.terminate()
    ways = {(way["source"], way["target"]): way for way in seen["ways"]}
    pods = {pod["name"]: pod for pod in seen["pods"]}
    assert pods["pod1-1"]["sent_packets"] > pods["pod2-1"]["received_packets"] > pods["pod1-1"]["received_packets"] > 1
    assert pods["pod3-1"]["sent_packets"] <= 5
    assert ways["node1", "node2"]["lost"] > 1
    assert ways["node1", "node2"]["packets"] > ways["node2", "node1"]["packets"], (
        "half of the echoes are never answered"
    )
    assert ("node1", "node3") not in ways or ways["node1", "node3"]["lost"] == 0
    text = changed.weft("top", "--once").stdout
    assert re.search(r"^POD +ON +SENT +RECEIVED +PACKETS SENT +PACKETS RECEIVED +LOST$", text, re.MULTILINE)


def busy(report: Any) -> Any:
    """The report, once the ways in it are busy."""
    return report if sum(way["packets"] for way in report["ways"]) > 60 else None


def test_counting_at_the_switch_ends_by_itself(changed: Lab):
    changed.weft("top", "--once")
    assert "bridge weft-lab-count" in switch(changed, "nft", "list", "tables")
    eventually(lambda: "weft-lab-count" not in switch(changed, "nft", "list", "tables"), seconds=90)


def test_a_link_with_a_rate_holds_packets_back_both_ways(running: Lab):
    running.weft("link", "node2", "--rate", "2mbit")
    assert set(queues(running)) == {"port2", "port2-in"}
    said = running.run("node1", "ping", "-q", "-f", "-s", "1400", "-c", "60", NODE2, check=False)
    assert "\n60 packets transmitted" in said
    for device, queue in queues(running).items():
        assert queue["options"]["rate"] == 2_000_000 // 8
        assert queue["bytes"] > 10 * 1400, device
    assert queues(running)["port2"]["overlimits"] > 0
    assert "netem" not in (shown := running.run("node2", "tc", "qdisc", "show", "dev", "eth0"))
    assert "tbf" not in shown
    # One that is set anew replaces the other, and none is left.
    running.weft("link", "node2", "--rate", "1gbit", "--loss", "1%")
    assert running.json("link")["links"]["node2"] == NEW | {"rate": 10**9, "loss": 1.0}
    assert {queue["options"]["rate"] for queue in queues(running).values()} == {10**9 // 8}
    running.weft("link", "node2", "--clear")
    assert not queues(running)
    assert "port2-in" not in switch(running, "ip", "link")


def test_a_link_that_is_late_or_says_why_not(changed: Lab):
    ran = changed.weft("link", "node1", "--delay", "30ms", "--rate", "50mbit", "--loss", "0.1%", check=False)
    if ran.returncode == 0:  # a kernel with netem
        assert {(queue["kind"], device) for device, queue in queues(changed).items()} >= {("tbf", "port1")}
        said = changed.run("node1", "ping", "-q", "-i", "0.01", "-c", "5", NODE2)
        assert float(said.rpartition(" = ")[2].partition("/")[0]) >= 60
        return
    assert ran.returncode == 2
    assert "HOST-002 --delay: this kernel cannot delay packets: it has no netem" in ran.stderr
    assert changed.json("link")["links"]["node1"] == NEW  # not half of it
    assert not queues(changed)
    assert changed.reached("node1", "node2") == {4: True, 6: True}


def test_a_cable_that_is_pulled(running: Lab):
    running.weft("link", "node2", "--down")
    assert "NO-CARRIER" in running.run("node2", "ip", "link", "show", "dev", "eth0")
    assert "link of node2: down\n" in running.weft("ps").stdout
    running.weft("link", "node2", "--up")
    assert running.node("node2")["link"] == NEW
    eventually(lambda: running.reached("pod1-1", "pod2-1") == {4: True, 6: True}, seconds=30)


def test_a_partition_lets_others_reach_both(running: Lab):
    assert "cut: node1 -> node2\ncut: node2 -> node1\n" in running.weft("partition", "node1", "node2").stdout
    assert running.lost("pod1-1", "pod2-1")
    assert running.reached("pod3-1", "pod1-1") == running.reached("pod3-1", "pod2-1") == {4: True, 6: True}
    assert running.ps()["cuts"] == [
        {"source": "node1", "target": "node2"},
        {"source": "node2", "target": "node1"},
    ]
    assert "cut: node1 -> node2\n" in running.weft("ps").stdout
    assert running.json("link", "node3")["cuts"] == []
    assert running.json("heal", "node2", "node1")["cuts"] == []
    eventually(lambda: running.reached("pod1-1", "pod2-1") == {4: True, 6: True}, seconds=30)


def test_groups_of_nodes(changed: Lab):
    cuts = changed.json("partition", "node[12]", "node3,store")["cuts"]
    assert len(cuts) == 8
    assert changed.lost("pod1-1", "pod3-1")
    assert changed.reached("pod1-1", "pod2-1") == {4: True, 6: True}
    assert len(changed.json("heal", "node1", "*3,store")["cuts"]) == 4
    links = changed.json("link", "node1", "node2", "--loss", "1%")["links"]
    assert links == dict.fromkeys(["node1", "node2"], NEW | {"loss": 1.0})
    assert changed.json("link", "*", "--clear")["links"] == dict.fromkeys(["node1", "node2", "node3"], NEW)


def test_a_partition_one_way(changed: Lab):
    assert changed.reached("node2", "node1") == {4: True, 6: True}  # as above
    changed.weft("partition", "node1", "node2", "--one-way")
    cells = changed.json("ping", "node2", "node1", "-c", "1", check=False)["cells"]
    assert [(cell["fault"], cell["seen"]) for cell in cells] == [("lost", NODE2), ("lost", "fd31::12")]
    assert changed.lost("node1", "node2")


def test_a_node_that_does_not_reach_the_store(running: Lab):
    def reaches_store(node: str) -> bool:
        return running.weft("exec", node, "--", "ping", "-c1", "-W0.2", "172.31.0.1", check=False).returncode == 0

    running.weft("partition", "node1", "store")
    assert not reaches_store("node1")
    assert reaches_store("node2")
    assert running.reached("pod1-1", "pod2-1") == {4: True, 6: True}
    running.weft("heal", "node1", "store")
    eventually(lambda: reaches_store("node1"), seconds=30)


def test_a_daemon_that_is_killed_and_started_again(running: Lab):
    pid = running.node("node1")["pid"]
    assert running.weft("kill", "node1/weftd").stdout == "node1/weftd: exited -9\n"
    assert running.node("node1")["daemon"] == "exited -9"
    assert running.reached("pod1-1", "pod2-1") == {4: True, 6: True}
    assert running.json("start", "node1/weftd") == {
        "things": [{"name": "node1/weftd", "state": "ready", "problems": [], "link": None}],
        "well": True,
    }
    now = running.node("node1")
    assert now["daemon"] == "ready"
    assert now["pid"] != pid
    assert running.run("node1", "pgrep", "-x", "weftd").split() == [str(now["pid"])]
    # What runs is not started twice, and what has ended not ended twice.
    running.weft("start", "node1/weftd")
    assert running.node("node1")["pid"] == now["pid"]
    assert running.weft("stop", "node1/weftd").stdout == "node1/weftd: exited 0\n"
    assert running.weft("kill", "node1/weftd").stdout == "node1/weftd: exited 0\n"
    assert running.weft("restart", "node1/weftd").stdout == "node1/weftd: ready\n"


def test_what_commands_do_is_in_the_history_of_the_lab(changed: Lab):
    place = find(changed.name)

    def history(after: int) -> EventsSince:
        return ask(place, protocol.AskNews({ITSELF: after})).lab

    before = history(0).last
    changed.weft("link", "node2", "--loss", "5%")
    changed.weft("partition", "node1", "node2,store")
    changed.weft("heal", "node1", "store")
    changed.weft("partition", "node1", "node3", "--one-way")
    changed.weft("heal")
    changed.weft("restart", "node3/weftd")
    changed.weft("break", "node1", "port-blocked")
    changed.weft("break", "node1", "port-blocked", "--mend")
    assert changed.weft("break", "node1", "port-blocked", "--mend", check=False).returncode == 1
    assert changed.weft("kill", "node9", check=False).returncode == 2
    told = history(before).events
    assert [(each.kind, each.subject) for each in told] == [
        ("shaped", "node2 link"),
        ("cut", "node1 ↔ node2,store"),
        ("healed", "node1 ↔ store"),
        ("cut", "node1 → node3"),
        ("healed", "all cuts"),
        ("restarted", "node3/weftd"),
        ("broke", "node1 port-blocked"),
        ("mended", "node1 port-blocked"),
        ("mended", "node1 port-blocked"),
        ("mended", "node1 port-blocked"),
    ]
    assert (told[0].was, told[0].now) == ("as new", "loss 5 %")
    assert [each.words.startswith("it failed: ") for each in told[-3:]] == [False, False, True]


def test_a_node_that_is_off_and_comes_back(running: Lab):
    subnets = running.node("node3")["subnets"]
    assert running.weft("stop", "node3").stdout == "node3: weftd exited 0, link down\n"
    assert running.lost("pod1-1", "pod3-1")
    assert running.weft("start", "node3").stdout == "node3: weftd ready, link up\n"
    assert running.node("node3")["subnets"] == subnets
    eventually(lambda: running.reached("pod1-1", "pod3-1") == {4: True, 6: True}, seconds=30)
    assert running.weft("kill", "node3").stdout == "node3: weftd exited -9, link down\n"
    assert running.weft("restart", "node3", "node1/weftd").stdout == (
        "node3: weftd ready, link up\nnode1/weftd: ready\n"
    )


def test_a_store_that_is_away_and_comes_back_with_what_it_had(running: Lab):
    subnets = [node["subnets"] for node in running.ps()["nodes"]]
    assert running.weft("stop", "store").stdout == "store: exited -15\n"  # etcd ends by the signal
    assert running.ps()["store_state"] == "exited -15"
    started = running.weft("restart", "node1/weftd", check=False)  # it knows its peers
    assert started.stdout.startswith("node1/weftd: ")
    assert running.reached("pod1-1", "pod2-1") == {4: True, 6: True}
    assert running.weft("start", "store").stdout == "store: ready\n"
    assert running.weft("kill", "store").stdout == "store: exited -9\n"
    assert running.weft("start", "store").stdout == "store: ready\n"
    eventually(lambda: [node["daemon"] for node in running.ps()["nodes"]] == ["ready"] * 3, seconds=30)
    assert [node["subnets"] for node in running.ps()["nodes"]] == subnets


def test_a_lab_that_grows_and_shrinks_again(changed: Lab):
    before = changed.ps()
    changed.weft("expose", "web", "pod*", "--port", "80")
    ran = changed.weft("scale", "5")
    assert "every node has a route to every other\n" in ran.stderr
    assert changed.weft("pingall").returncode == 0
    report = changed.ps()
    assert [node["name"] for node in report["nodes"]][3:] == ["node4", "node5"]
    assert [pod["name"] for pod in report["pods"]][3:] == ["pod4-1", "pod5-1"]
    gone = {node["subnets"][0] for node in report["nodes"][3:]}
    assert all(subnet in changed.run("node1", "ip", "route") for subnet in gone)
    address = report["pods"][-1]["addresses"][0].partition("/")[0]
    assert address in changed.run("node4", "nft", "list", "ruleset")  # behind the Service
    changed.weft("partition", "node4", "node1")
    changed.weft("link", "node5", "--rate", "10mbit", "--loss", "1%")
    ran = changed.weft("scale", "3")
    assert re.findall(r"(node\d) is gone", ran.stderr) == ["node5", "node4"]
    now = changed.ps()
    for part in ("nodes", "pods"):
        assert [each["name"] for each in now[part]] == [each["name"] for each in before[part]]
    assert [node["subnets"] for node in now["nodes"]] == [node["subnets"] for node in before["nodes"]]
    assert now["cuts"] == []
    eventually(lambda: not [subnet for subnet in gone if subnet in changed.run("node1", "ip", "route")], seconds=30)
    assert address not in changed.run("node1", "nft", "list", "ruleset")
    assert changed.weft("exec", "node1", "--", "getent", "hosts", "pod5-1", check=False).returncode == 2
    links = {link["ifname"] for link in json.loads(switch(changed, "ip", "-j", "link"))}
    assert {link for link in links if link.startswith("port")} == {"port1", "port2", "port3"}
    assert "weft-lab" not in switch(changed, "nft", "list", "tables")
    assert not list(Path("/run/netns").glob(f"lab-{changed.name}-node[45]"))

    # One that comes in the place of another is a new one.
    changed.weft("scale", "4", "--pods", "0")
    assert before["pods"][0]["addresses"][0].partition("/")[0] in changed.run("node4", "nft", "list", "ruleset")
    assert [pod["name"] for pod in changed.ps()["pods"]] == [pod["name"] for pod in before["pods"]]
    assert changed.reached("pod1-1", "node4") == {4: True, 6: True}
    changed.weft("scale", "3")
    changed.weft("unexpose", "web")


def test_a_lab_does_not_grow_without_its_store_or_beyond_its_network(changed: Lab):
    ran = changed.weft("scale", "300", check=False)
    assert ran.returncode == 2
    assert "LAB-001 weft lab scale: Network 10.244.0.0/16 has " in ran.stderr
    changed.weft("stop", "store")
    ran = changed.weft("scale", "4", check=False)
    assert ran.returncode == 1
    assert "STORE-001 weft lab scale: store: exited -15" in ran.stderr
    changed.weft("start", "store")
    changed.weft("run", "pod4-1", "--node", "node1")
    ran = changed.weft("scale", "4", check=False)
    assert "LAB-001 weft lab scale: the name 'pod4-1' is taken; expected names that are free" in ran.stderr
    changed.weft("rm", "pod4-1")
    assert [node["name"] for node in changed.ps()["nodes"]] == ["node1", "node2", "node3"]


REFUSED = [
    (("link", "node9"), "LAB-002 node9: no node of this name; expected one of node1, node2, node3"),
    (("link", "node1", "--loss", "101%"), "'101%' is no share of packets: one is written as 5%"),
    (("link", "node1", "--rate", "50"), "'50' is no rate: one is written as 50mbit"),
    (("link", "node1", "--clear", "--loss", "1%"), "FLAG-001 weft lab link: --clear beside what is to be set"),
    (("partition", "node1", "pod1-1"), "LAB-002 pod1-1: no node of this name"),
    (("partition", "node1", "node1"), "LAB-001 node1: on both sides; expected one side of the cut"),
    (("heal", "node1"), "two places are needed, or none"),
    (("kill", "node9/weftd"), "LAB-002 node9: no node of this name"),
]


def test_what_is_refused_changes_nothing(running: Lab):
    for command, said in REFUSED:
        ran = running.weft(*command, check=False)
        assert ran.returncode == 2
        assert said in ran.stderr
    report = running.ps()
    assert [(node["daemon"], node["link"]) for node in report["nodes"]] == [("ready", NEW)] * 3
    assert report["cuts"] == []


def test_the_shell_completes_what_can_be_changed(running: Lab):
    def completed(*words: str) -> set[str]:
        line = " ".join(("weft", "lab", *words))
        environ = {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) + 1)}
        ran = subprocess.run([WEFT], env=os.environ | environ, capture_output=True, text=True, check=False)
        return {item.partition(",")[2] for item in ran.stdout.split()}

    chosen = ("--lab", running.name)
    assert completed("stop", *chosen, "node1") == {"node1", "node1/weftd"}
    assert completed("partition", *chosen, "node1", "s") == {"store"}
    assert completed("link", *chosen, "") == {"node1", "node2", "node3"}
