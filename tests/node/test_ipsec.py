"""Back end ipsec, with ESP in charon: this kernel has none (tests/vm has one that has; flannel.md §6.7)."""

import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.node.ipsecnode import IPSEC, PSK, agreed, charon, counts, end_charons, start
from tests.node.test_plan_cleanup import plan, weft
from tests.support.crossing import cross
from tests.support.traffic import Capture, Pings, reaches
from tests.support.weftd import HOST_GW, Cluster, Daemon, Underlay, clusters, eventually

_UDP, _ICMP, _TCP = 17, 1, 6


@pytest.fixture
def cluster(underlay: Underlay) -> Iterator[Cluster]:
    """In a directory with a short name: a path to a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield from clusters(underlay, Path(folder))


@pytest.fixture(autouse=True)
def ends_charons(cluster: Cluster):
    yield
    end_charons(cluster)


def policies(node: Daemon) -> str:
    return node.netns.run("ip xfrm policy")


def nothing_left(node: Daemon) -> bool:
    return (
        not charon(node)
        and not policies(node)
        and "ipsec0" not in node.ip("-br link show")
        and "blackhole" not in node.ip("route")
    )


@pytest.mark.spec("flannel.md §6.7/published", "flannel.md §6.7/charon", "flannel.md §6.7/no-kernel-esp")
def test_pods_reach_each_other_and_nothing_goes_in_clear(cluster: Cluster):
    cluster.configure(IPSEC)
    one, two = start(cluster, 1, 2)
    with closing(Capture(two.netns, "eth0")) as capture:
        cross(one, two)
        seen = capture.packets()
    nodes = {ip_address(node.public_v4) for node in (one, two)}
    between = [packet for packet in seen if {packet.source, packet.target} <= nodes]
    assert {packet.protocol for packet in between} == {_UDP}
    assert not [packet for packet in seen if any(packet.source in node.v4 for node in (one, two))]
    assert one.env["FLANNEL_MTU"] == "1400"
    assert json.loads(cluster.lease_of(one).value) == {
        "PublicIP": str(one.public_v4),
        "PublicIPv6": None,
        "BackendType": "ipsec",
    }
    assert counts(one) == {"connections": 1, "sessions": 1, "in user space": 1}
    one.says("the kernel has no ESP .*charon carries packets itself")
    assert not policies(one), "they would swallow what charon is to carry"
    assert not one.lines("ERROR")


def test_three_nodes_each_reach_both_others(cluster: Cluster):
    cluster.configure(IPSEC)
    nodes = start(cluster, 1, 2, 3)
    pods = [node.pod() for node in nodes]
    assert all(reaches(here, there.ips[0]) for here in pods for there in pods if here is not there)


@pytest.mark.spec("flannel.md §6.7/reuse")
def test_a_restart_of_the_daemon_keeps_charon_and_loses_no_packet(cluster: Cluster):
    cluster.configure(IPSEC)
    one, two = start(cluster, 1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = charon(one)
    # No stream beside: where charon carries packets, a busy machine may lose some of that, daemon or not.
    with Pings(here, there.ips[0], every=0.005) as pings:
        one.stop()
        one.start()
        one.kill()
        one.start()
        agreed([one, two])
    assert pings.sent > 50
    assert not pings.lost
    assert charon(one) == before
    assert not one.lines("ERROR|put back")


@pytest.mark.spec("flannel.md §6.7/charon-again")
def test_a_charon_that_dies_is_back_within_ten_seconds_and_nothing_goes_in_clear(cluster: Cluster):
    cluster.configure(IPSEC)
    one, two = start(cluster, 1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = charon(one)
    with closing(Capture(two.netns, "eth0")) as capture:
        os.kill(before, signal.SIGKILL)
        begun = time.monotonic()
        eventually(lambda: reaches(here, there.ips[0]), seconds=10)
        print("back after", time.monotonic() - begun)
        assert not [packet for packet in capture.packets() if packet.source in one.v4]
    assert charon(one) not in (0, before)
    one.says("VTEP-004.*charon", seconds=3)
    agreed([one, two])


def test_a_configuration_of_charon_that_is_gone_costs_a_start_of_it(cluster: Cluster):
    cluster.configure(IPSEC)
    node = cluster.node(1).start()
    before = charon(node)
    (configured,) = node.state_dir.rglob("charon.conf")
    configured.unlink()
    eventually(configured.exists, seconds=10)
    eventually(lambda: charon(node) not in (0, before))
    node.stop()
    configured.unlink()
    node.start()
    assert configured.exists()
    assert not node.lines("ERROR")


@pytest.mark.spec("flannel.md §6.7/peer-removed", "flannel.md §6.7/peer-added")
def test_peers_come_and_go(cluster: Cluster):
    cluster.configure(IPSEC)
    one, two = start(cluster, 1, 2)
    cluster.peer(50, BackendType="ipsec")
    cluster.peer(51, BackendType="vxlan")
    eventually(lambda: counts(one)["connections"] == 2, seconds=15)
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    gone = str(two.v4).replace("/", "-")
    two.kill()
    os.kill(charon(two), signal.SIGKILL)
    cluster.etcd.delete(cluster.key(gone))
    nobody = {"connections": 0, "sessions": 0, "in user space": 1}
    eventually(lambda: counts(one) == nobody, seconds=15)
    assert not one.ip("route show table 220")
    assert not one.lines("ERROR")


@pytest.mark.spec("flannel.md §6.7/left-behind")
def test_a_plan_has_nothing_to_do_and_a_cleanup_leaves_nothing(cluster: Cluster):
    cluster.configure(IPSEC)
    one, _ = start(cluster, 1, 2)
    eventually(lambda: plan(one).stdout.splitlines()[-1] == "# nothing to do")
    cluster.configure(IPSEC, Backend={"Type": "ipsec", "PSK": PSK[::-1]})
    changed = plan(one).stdout
    assert "+ shared key" in changed or "~ shared key" in changed, changed
    assert PSK not in changed
    assert PSK[::-1] not in changed
    one.stop()
    assert charon(one)
    removed = weft(one, "cleanup", f"--subnet-file={one.subnet_file}", f"--state-dir={one.state_dir}")
    assert removed.returncode == 0, removed.stderr
    assert "charon, process" in removed.stdout
    assert nothing_left(one)
    assert "+ charon, with ESP in itself" in plan(one).stdout


@pytest.mark.spec("flannel.md §6.7/left-behind")
def test_another_back_end_leaves_nothing_of_it(cluster: Cluster):
    cluster.configure(IPSEC)
    node = cluster.node(1).start()
    node.stop()
    ends = "dir out tmpl src 172.31.0.1 dst 172.31.0.2 proto esp reqid 11 mode tunnel"
    stale, flanneld = "src 10.5.1.0/24 dst 10.5.2.0/24", "src 10.7.1.0/24 dst 10.7.2.0/24"
    for subnets in (stale, flanneld):
        node.netns.run(f"ip xfrm policy add {subnets} {ends}")
    cluster.configure({"Network": "10.6.0.0/16", "Backend": HOST_GW["Backend"]})
    node.start()
    eventually(lambda: not charon(node))
    assert flanneld in policies(node)
    assert stale not in policies(node), "it was of the network before"
    found = weft(node, "cleanup", "--dry-run", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert "10.7.1.0/24 to 10.7.2.0/24 by 172.31.0.1 to 172.31.0.2: it is not between" in found.stdout + found.stderr
    node.netns.run("ip xfrm policy flush")
    assert nothing_left(node)


@pytest.mark.spec("flannel.md §6.7/PSK")
def test_the_key_is_seen_nowhere(cluster: Cluster):
    cluster.configure(IPSEC)
    one, _ = start(cluster, 1, 2)
    assert not [line for line in one.log.splitlines() if PSK in line]
    written = [path for path in one.subnet_file.parent.parent.rglob("*") if path.is_file()]
    assert {"charon.conf", "charon.log", "subnet.env"} < {path.name for path in written}
    keeping = [path for path in written if PSK.encode() in path.read_bytes()]
    assert [path.name for path in keeping] == ["cluster.jsonl"], "with the network configuration as it was read"
    for path in (*one.state_dir.rglob("charon.*"), *keeping):
        assert path.is_socket() or path.stat().st_mode & 0o7777 == 0o600
    proc = Path(f"/proc/{charon(one)}")
    assert PSK.encode() not in proc.joinpath("cmdline").read_bytes() + proc.joinpath("environ").read_bytes()


def test_a_port_that_is_taken_is_said(cluster: Cluster):
    cluster.configure(IPSEC)
    node = cluster.node(1)
    with closing(node.netns.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))) as taken:
        taken.bind(("", 4500))
        node.spawn()
        node.says("VTEP-004 charon.*UDP port 4500 is taken: stop the program")
        assert node.get("/readyz")[0] == 503
    node.wait_ready()


def test_a_directory_without_room_for_a_socket_is_refused(cluster: Cluster):
    cluster.configure(IPSEC)
    node = cluster.node(1)
    node.state_dir = node.state_dir / ("long" * 25)
    node.spawn()
    node.says("FLAG-001 --state-dir: 1[0-9][0-9] bytes in .*/charon.vici; expected 107 at most")


NO_PROGRAM = """
import runpy, sys
from weft.daemon.backends.ipsec import process

process.PLACES = ()
sys.argv = sys.argv[3:]  # behind: python -m weft.daemon.main
runpy.run_module("weft.daemon.main", run_name="__main__")
"""


def test_without_charon_the_node_says_what_is_missing(cluster: Cluster):
    cluster.configure(IPSEC)
    node = cluster.node(1)
    node.spawn(wrap=[sys.executable, "-c", NO_PROGRAM])
    node.says("VTEP-004 charon.*there is no charon: install strongSwan")
    assert node.get("/readyz")[0] == 503
