"""`weft events`: what happened, also in earlier runs."""

import json
import re
import sys
import time
from pathlib import Path

from tests.node.test_peers import WEFT, interrupted, watch
from tests.node.test_status import run
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually

_DELETES_A_ROUTE = """
import socket, struct, time
sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
body = struct.pack("=BBBBBBBBIHH4s", 2, 24, 0, 0, 0, 165, 0, 0, 0, 8, 1, bytes([10, 5, 50, 0]))
sock.send(struct.pack("=IHHII", 16 + len(body), 25, 5, 1, 0) + body)
time.sleep(600)
"""


def told(node: Daemon, *words: str) -> "list[dict[str, object]]":
    return list(json.loads(run(node, WEFT, "events", "-o", "json", *words).stdout))


def kinds(node: Daemon, *words: str) -> list[object]:
    return [event["kind"] for event in told(node, *words)]


def repaired(node: Daemon) -> "list[dict[str, object]]":
    return [event for event in told(node) if event["kind"] == "repaired"]


def one(node: Daemon, kind: str) -> "dict[str, object]":
    """The latest event of a kind, once there is one."""
    return eventually(lambda: [event for event in told(node) if event["kind"] == kind])[-1]


def file(node: Daemon) -> Path:
    [path] = node.state_dir.glob("*/history.jsonl")
    return path


def test_peers_and_repairs(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    assert kinds(node) == ["lease-taken", "started"]
    cluster.peer(50)
    joined = one(node, "joined")
    assert joined["subject"] == "10.5.50.0-24"
    assert joined["words"] == "subnets 10.5.50.0/24, public IP 172.31.0.50, back end vxlan"
    assert abs(float(str(joined["time"])) - time.time()) < 10
    node.ip("link set flannel.1 mtu 1400")
    mended = one(node, "repaired")
    assert (mended["code"], mended["was"], mended["now"]) == ("VTEP-003", "mtu 1400", "mtu 1450")
    cluster.peer(50, public="172.31.0.60")
    changed = one(node, "changed")
    assert (changed["was"], changed["now"]) == ("public IP 172.31.0.50", "public IP 172.31.0.60")
    cluster.peer(51, lease="10.6.51.0-24")
    assert one(node, "refused")["code"] == "ADDR-002"
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    assert one(node, "left")["subject"] == "10.5.50.0-24"
    text = run(node, WEFT, "events", "-n", "3").stdout
    assert [line.split()[2] for line in text.splitlines()] == ["changed", "refused", "left"]
    assert len(told(node, "--since", "1h", "-n", "2")) == 2
    assert "VTEP-003 link flannel.1 vxlan" in run(node, WEFT, "events").stdout


def test_it_says_who_flushed_the_rules(cluster: Cluster):
    cluster.configure(VXLAN, EnableNFTables=True)
    node = cluster.node(1).start("--ip-masq")
    node.netns.run("nft flush ruleset")
    by = str(one(node, "repaired")["by"])  # the number is that outside of this test's pid namespace
    assert re.fullmatch(r"nft \(pid \d+\)", by)
    assert f"removed by {by}" in run(node, WEFT, "events").stdout
    node.says(rf"NFT-002: put back ruleset nft IPv4.*; removed by {re.escape(by)}")


def test_of_a_route_it_says_perhaps_where_a_program_of_that_number_is_there(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(50)
    node = cluster.node(1).start()
    child = node.netns.popen([sys.executable, "-c", _DELETES_A_ROUTE])
    comm = Path(f"/proc/{child.pid}/comm")
    mended = one(node, "repaired")
    assert (mended["code"], mended["was"]) == ("ROUTE-001", "gone")
    assert mended["by"] == f"perhaps {comm.read_text().strip()} (pid {child.pid})"
    assert f"was gone; perhaps removed by {comm.read_text().strip()}" in run(node, WEFT, "events").stdout


def test_of_a_link_nobody_is_named(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    node.ip("link del flannel.1")
    assert {event["by"] for event in eventually(lambda: repaired(node))} == {""}


def test_deletions_by_many_programs_are_repaired_and_some_are_named(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peers(range(50, 99))
    node = cluster.node(1).start()
    node.netns.run("for n in $(seq 50 98); do ip route del 10.5.$n.0/24; done")
    eventually(lambda: len(node.ip("route show proto 165").splitlines()) == 49)
    named = [str(event["by"]) for event in repaired(node)]
    assert [name for name in named if name.startswith(("perhaps ", "a program at netlink port "))]
    assert not [name for name in named if name.startswith("ip ")], "of a program that ended at once nothing is proved"


def test_the_uplink(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    node.ip("link set eth0 mtu 1400")
    changed = one(node, "uplink-changed")
    assert (changed["was"], changed["now"]) == ("eth0, MTU 1500", "eth0, MTU 1400")
    node.ip("link set eth0 down")
    assert one(node, "uplink-lost")["code"] == "IFACE-002"
    node.ip("link set eth0 up")
    assert one(node, "uplink-back")["subject"] == "eth0"


def test_the_lease(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    before = cluster.lease_of(node)
    cluster.etcd.delete(before.key)
    assert one(node, "lease-lost")["code"] == "LEASE-004"
    eventually(lambda: kinds(node).count("lease-taken") == 2)


def test_a_restart_knows_what_was_before(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(50)
    node = cluster.node(1).start()
    before = told(node)
    assert kinds(node) == ["lease-taken", "started"]
    assert before[-1]["words"] == "with 1 peer"
    node.stop()
    node.start()
    now = told(node)
    assert now[: len(before)] == before
    numbers = [event["number"] for event in now]
    assert numbers == list(range(1, len(now) + 1))
    node.kill()
    node.start()
    assert told(node)[: len(before)] == before
    assert sum(kind == "started" for kind in kinds(node)) >= 2, "what the kill cost is some seconds"


def test_a_history_that_is_torn_is_set_aside(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    node.stop()
    path = file(node)
    path.write_bytes(path.read_bytes()[:-20])
    node.start()
    assert "It is kept as" in node.says(r"STATE-001 .*history\.jsonl.*: cannot be read")
    assert kinds(node).count("started") == 1


def test_a_watch_prints_what_comes_until_it_is_interrupted(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    process, out = watch(node, "events", "-w", "-n", "1", "-o", "json")
    eventually(lambda: len(out.read_text().splitlines()) == 1)
    cluster.peer(50)
    eventually(lambda: len(out.read_text().splitlines()) == 2)
    assert json.loads(out.read_text().splitlines()[1])["subject"] == "10.5.50.0-24"
    node.stop()
    node.start()
    eventually(lambda: '"words":"with 1 peer"' in out.read_text())
    assert interrupted(process) == 130
    assert "Traceback" not in out.read_text()


def test_a_monitor_tells_what_happens_and_what_is_wrong_over_a_restart_and_nothing_twice(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(50)
    node = cluster.node(1).start()
    kinds = ("--kind", "repaired", "--kind", "health", "--kind", "started")
    process, out = watch(node, "monitor", "--since", "1h", *kinds)
    eventually(lambda: " started         weftd: with 1 peer" in out.read_text())
    node.ip("route del 10.5.50.0/24")
    eventually(lambda: " repaired        ROUTE-001 route 10.5.50.0/24 " in out.read_text())
    node.kill()
    eventually(lambda: "waiting for it" in out.read_text())
    node.start()
    eventually(lambda: out.read_text().count(" started         weftd: with 1 peer") == 2)
    node.ip("link set eth0 down")
    eventually(lambda: " health          IFACE-002 uplink: " in out.read_text())
    node.ip("link set eth0 up")
    eventually(lambda: " health          uplink: is well again" in out.read_text())
    assert interrupted(process) == 130
    said = out.read_text()
    assert said.count("repaired        ROUTE-001 route 10.5.50.0/24 ") == 1
    assert " joined " not in said


def test_a_hundred_peers_at_once_are_some_events_and_some_lines(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    before = len(told(node))
    cluster.peers(range(2, 100))
    eventually(lambda: len(node.ip("route").splitlines()) > 98)
    more = eventually(lambda: [event for event in told(node)[before:] if str(event["subject"]).endswith(" more")])
    assert more[0]["kind"] == "joined"
    assert len(told(node)) - before < 60, "they come in some transactions"
    assert len(node.lines("peer .* came")) < 60
