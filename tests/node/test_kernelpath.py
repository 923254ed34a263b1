"""Back end udp with packets that the kernel carries itself, beside a relay for all others."""

import json
import os
import signal

from tests.node.sending import transfer
from tests.node.test_plan_cleanup import plan, weft
from tests.node.test_status import asked
from tests.node.test_udp import BOTH, UDP, relay
from tests.support.traffic import Pings, nothing_lost, reaches
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually


def carried(node: Daemon) -> dict[str, int]:
    """Packets that the kernel has carried on a node."""
    found: dict[str, int] = asked(node)["loops"]["kernelpath"]["counts"]
    return found


def attached(node: Daemon) -> str:
    """What tc shows at the uplink and at the relay's device."""
    return node.netns.run("tc filter show dev eth0 ingress; tc filter show dev flannel0 egress", check=False)


def test_pods_reach_each_other_past_the_relay(cluster: Cluster):
    cluster.configure(BOTH)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert json.loads(cluster.lease_of(one).value) == {
        "PublicIP": str(one.public_v4),
        "PublicIPv6": None,
        "BackendData": {"Kernel": True},
    }
    one.says("the kernel carries packets itself")
    assert reaches(here, there.ips[0])
    assert transfer(here, there, there.ips[0], megabytes=20)
    # Of twenty megabytes at most a first packet goes by the relay.
    eventually(lambda: min(carried(one)["packets sent"], carried(two)["packets received"]) > 300)
    assert asked(one)["loops"]["relay"]["counts"]["packets sent"] < 20


def test_a_peer_whose_kernel_takes_no_datagrams_is_sent_what_a_program_reads(cluster: Cluster):
    """Here as on a real network: between namespaces the kernel would pass on what is not complete."""
    cluster.configure(BOTH)
    one = cluster.node(1).start()
    cluster.configure(UDP)
    two = cluster.node(2).start()
    two.netns.run("ethtool -K eth0 tx off")  # what a device would compute is computed before
    here, there = one.pod(), two.pod()
    eventually(lambda: reaches(here, there.ips[0]))
    assert transfer(here, there, there.ips[0], megabytes=30)
    assert transfer(there, here, here.ips[0], megabytes=30)
    eventually(lambda: carried(one)["packets received"])
    assert carried(one)["packets sent"] == 0
    assert "kernelpath" in asked(two)["loops"]
    assert not carried(two)


def test_what_is_taken_away_comes_back_and_until_then_the_relay_carries(cluster: Cluster):
    cluster.configure(BOTH)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    with Pings(here, there.ips[0]) as pings:  # segments of a stream may overtake each other when the way changes
        two.netns.run("tc filter del dev eth0 ingress")
        one.netns.run("tc filter del dev flannel0 egress")
        eventually(lambda: attached(one).count("weft-udp") == 2 == attached(two).count("weft-udp"))
    assert pings.lost == []
    two.says("VTEP-004.*kernel path of flannel0", seconds=3)


def test_a_relay_that_dies_is_not_missed(cluster: Cluster):
    cluster.configure(BOTH)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = relay(one)
    with nothing_lost(here, there, there.ips[0]):
        os.kill(before, signal.SIGKILL)
        eventually(lambda: relay(one) not in (0, before))


def test_a_plan_has_nothing_to_do_and_a_cleanup_leaves_nothing(cluster: Cluster):
    cluster.configure(BOTH)
    node = cluster.node(1).start()
    cluster.peer(50, BackendType="", data={"Kernel": True})
    cluster.peer(51, BackendType="", data=None)
    known = "by the kernel path of flannel0"
    eventually(lambda: plan(node).stdout.splitlines()[-1] == "# nothing to do")
    assert not node.lines("WARN|ERROR")
    node.stop()
    node.netns.run("tc qdisc del dev eth0 clsact")
    planned = plan(node).stdout
    assert "kernel path of flannel0 by eth0 from 172.31.0.1 port 8285" in planned
    assert f"+ forward 10.5.50.0/24 {known} to and from 172.31.0.50" in planned
    assert f"+ forward 10.5.51.0/24 {known} from 172.31.0.51" in planned
    node.start()
    node.stop()
    cleanup = ("cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert "programs of back end udp at eth0" in weft(node, *cleanup, "--dry-run").stdout
    assert "weft-udp" in attached(node)
    removed = weft(node, *cleanup)
    assert removed.returncode == 0, removed.stderr
    assert "clsact" not in node.netns.run("tc qdisc show dev eth0")


def test_another_back_end_takes_the_programs_away(cluster: Cluster):
    cluster.configure(BOTH)
    node = cluster.node(1).start()
    assert "weft-udp" in attached(node)
    node.stop()
    cluster.configure(VXLAN)
    node.start()
    node.says("removed from eth0 what served flannel0")
    assert "weft-udp" not in attached(node)


def test_another_setting_takes_the_programs_away(cluster: Cluster):
    cluster.configure(BOTH)
    node = cluster.node(1).start()
    node.stop()
    cluster.configure(UDP)
    node.start()
    eventually(lambda: "weft-udp" not in attached(node))
    assert "Kernel" not in cluster.lease_of(node).value


def test_the_daemon_of_a_second_network_leaves_the_programs_alone(cluster: Cluster):
    cluster.configure(BOTH)
    node = cluster.node(1).start()
    prefix = f"{cluster.prefix}-b"
    cluster.etcd.put(f"{prefix}/config", json.dumps({"Network": "10.6.0.0/16", "Backend": {"Type": "vxlan"}}))
    other = cluster.beside(node, "b", prefix=prefix).start()
    assert not other.lines("what served flannel0")
    assert attached(node).count("weft-udp") == 2
