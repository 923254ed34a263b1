"""Nodes of upstream's own daemon beside ours: the same store, the same wire, and one in the place of the other."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node.sending import send_every_size, transfer
from tests.support import flanneld
from tests.support.crossing import cross
from tests.support.flanneld import Flanneld
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually

WEFT = str(Path(sys.executable).with_name("weft"))
pytestmark = pytest.mark.skipif(
    flanneld.built() is None, reason=f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine"
)
ROUTES = {
    "Type": "extension",
    "SubnetAddCommand": "ip route replace $SUBNET via $PUBLIC_IP",
    "SubnetRemoveCommand": "ip route delete $SUBNET",
}
CONFIGURATIONS = {
    "vxlan": VXLAN,
    "vxlan, both families": {**VXLAN, **DUAL},
    "vxlan, direct": {**VXLAN, "Backend": {"Type": "vxlan", "DirectRouting": True}},
    "vxlan, nftables": {**VXLAN, "EnableNFTables": True},
    "host-gw": HOST_GW,
    "host-gw, both families": {**HOST_GW, **DUAL},
    "udp": {**VXLAN, "Backend": {"Type": "udp"}},
    "extension": {**VXLAN, "Backend": ROUTES},
}
IN_TURN = {name: CONFIGURATIONS[name] for name in ("vxlan", "vxlan, both families", "host-gw")}


@pytest.mark.parametrize("conf", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_pods_of_either_reach_those_of_the_other(cluster: Cluster, conf: dict[str, Any]):
    cluster.configure(conf)
    ours, theirs, later = cluster.node(1), cluster.node(2, kind=Flanneld), cluster.node(3)
    for node in (ours, theirs):
        node.spawn("--ip-masq")
    for node in (ours, theirs):
        node.wait_ready()
    cross(ours, theirs)
    here, there = ours.pods[0], theirs.pods[0]
    for near, far in zip(here.ips, there.ips, strict=True):
        assert transfer(here, there, far, megabytes=10)
        assert transfer(there, here, near, megabytes=10)
        send_every_size(here, there, far, mtu=int(theirs.env["FLANNEL_MTU"]))
    # One that comes when both run, and goes again.
    pod = later.start("--ip-masq").pod()
    for ip in there.ips:
        eventually(lambda ip=ip: reaches(pod, ip))
    cluster.etcd.delete(cluster.key(cluster.lease_of(theirs).key.rpartition("/")[2]))
    eventually(lambda: str(theirs.subnets[0]) not in ours.ip("route"))
    assert not ours.lines("ERROR")


@pytest.mark.parametrize("conf", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_the_doctor_finds_nothing_wrong_with_a_node_of_upstreams(cluster: Cluster, conf: dict[str, Any]):
    cluster.configure(conf)
    theirs, ours = cluster.node(1, kind=Flanneld), cluster.node(2)
    for node in (theirs, ours):
        node.start("--ip-masq")
    here, there = theirs.pod(), ours.pod()
    eventually(lambda: reaches(here, there.ips[0]))
    # Upstream's pods have too large an MTU for VXLAN over IPv6.
    assert theirs.diagnosis() == ({"MTU-001"} if conf is CONFIGURATIONS["vxlan, both families"] else set())
    assert not ours.diagnosis()


@pytest.mark.parametrize("conf", IN_TURN.values(), ids=IN_TURN.keys())
def test_one_takes_the_place_of_the_other_and_no_packet_is_lost(cluster: Cluster, conf: dict[str, Any]):
    cluster.configure(conf)
    peer, node = cluster.node(1).start("--ip-masq"), cluster.node(2, kind=Flanneld)
    node.start("--ip-masq")
    here, there = peer.pod(), node.pod()
    eventually(lambda: all(reaches(here, ip) for ip in there.ips))
    before = leased(node, cluster)
    for ours in (True, False, True):
        with nothing_lost(here, there, there.ips[-1]):
            node.stop()
            node.ours = ours
            node.start("--ip-masq")
        assert leased(node, cluster) == before
    assert not node.lines("ERROR")


def test_what_it_has_taken_over_is_not_cleaned_up_beside_it(cluster: Cluster):
    cluster.configure(VXLAN)
    peer, node = cluster.node(1).start(), cluster.node(2, kind=Flanneld)
    node.ours = True
    node.start()
    node.stop()
    node.ours = False
    node.start()
    here, there = peer.pod(), node.pod()
    eventually(lambda: reaches(here, there.ips[0]))
    command = [WEFT, "cleanup", f"--subnet-file={node.subnet_file}"]
    with nothing_lost(here, there, there.ips[0]):
        refused = node.netns.popen(command, stderr=subprocess.PIPE, text=True)
        assert "INST-001 weft cleanup: flanneld runs here (pid " in refused.communicate(timeout=200)[1]
    assert refused.returncode == 2


def leased(node: Daemon, cluster: Cluster) -> tuple[str, str]:
    """What must stay: the key of the lease, with the subnets, and its value, with the MACs."""
    lease = cluster.lease_of(node)
    return lease.key, lease.value
