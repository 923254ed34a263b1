"""Stop, kill, restart, upgrade: no packet is lost, and nothing is made anew (flannel.md §1.6, §6.2)."""

import re
import time
from ipaddress import ip_network

import pytest

from tests.support import flannelsnode
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually

BACKENDS = pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])


def links(node: Daemon) -> dict[str, int]:
    """The indexes of the node's VTEPs: a device that was made anew has another one."""
    return {link["ifname"]: link["ifindex"] for link in node.netns.json("ip -j link show type vxlan")}


@pytest.mark.spec("flannel.md §1.6/survives-exit")
@pytest.mark.spec("flannel.md §6.2/device-reused", "flannel.md §8.3/2-no-flush-window", cases="vxlan")
@BACKENDS
def test_a_restart_loses_no_packet(cluster: Cluster, backend):
    cluster.configure(backend, DUAL)
    one, two = (cluster.node(number).spawn("--ip-masq") for number in (1, 2))
    here, there = (node.wait_ready().pod() for node in (one, two))
    assert reaches(here, there.ips[0])
    before = links(one), one.macs, one.subnets
    log = one.log_file.read_text()
    with nothing_lost(here, there, there.ips[0]), nothing_lost(there, here, here.ips[1]):
        for node in (one, two):
            assert node.stop() == 0
            time.sleep(0.05)
            node.start("--ip-masq")
            node.kill()
            node.start("--ip-masq")
    assert (links(one), one.macs, one.subnets) == before
    # Each start found all as it should be.
    assert not re.search("(VTEP|FDB|ROUTE|NFT)-", one.log_file.read_text()[len(log) :])
    assert not one.lines("WARN|ERROR")


@pytest.mark.spec("flannel.md §6.2/mac", "flannel.md §8.3/2-no-flush-window")
def test_a_restart_with_other_flags_loses_no_packet(cluster: Cluster):
    """As an upgrade does whose rules differ: they are exchanged, never missing."""
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    with nothing_lost(here, there, there.ips[0]):
        one.stop()
        one.start("--ip-masq", "--ip-masq-fully-random-disable")
        one.stop()
        one.start("--ip-blackhole-route", "--iptables-forward-rules=false")


def test_a_node_moves_from_upstream_to_weft_without_losing_a_packet(cluster: Cluster):
    """What flanneld left in kernel, store and subnet.env is taken over while packets cross it."""
    cluster.configure()
    one, two = cluster.node(1), cluster.node(2).start()
    value = (
        '{"PublicIP":"172.31.0.1","PublicIPv6":null,"BackendType":"vxlan",'
        f'"BackendData":{{"VNI":1,"VtepMAC":"{flannelsnode.MAC}"}}}}'
    )
    subnet = ip_network("10.5.110.0/24" if two.v4 != ip_network("10.5.110.0/24") else "10.5.111.0/24")
    cluster.etcd.put_leased(cluster.key(str(subnet).replace("/", "-")), value)
    flannelsnode.leave(one, subnet, two)
    two.sees("ip route", str(subnet[0]))
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    with nothing_lost(here, there, there.ips[0]):
        one.start("--ip-masq")
        time.sleep(0.2)
    assert one.v4 == subnet
    assert "proto 165" in one.ip(f"route show {two.v4}")
    assert one.ip("route").count(str(two.v4)) == 1
    assert f'"VtepMAC":"{flannelsnode.MAC}"' in cluster.lease_of(one).value
    assert one.lines("ready: 1 peers?, 0 refused"), "its own lease, which flanneld wrote, is no peer's"
    assert not one.lines("ADDR-002")


@pytest.mark.spec("flannel.md §6.2/device-reused")
def test_a_device_of_upstreams_making_is_taken_over_with_its_mac(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.ip(
        "link add flannel.1 address 02:ab:cd:ef:00:01 mtu 1450 txqueuelen 0"
        " type vxlan id 1 dev eth0 local 172.31.0.1 dstport 8472 nolearning"
    )
    node.ip("link set flannel.1 up")
    before = links(node)
    node.start()
    assert links(node) == before
    assert node.macs["mac_v4"] == "02:ab:cd:ef:00:01"
    assert "02:ab:cd:ef:00:01" in cluster.lease_of(node).value


@pytest.mark.spec("flannel.md §6.2/device-reused")
@pytest.mark.parametrize("other", ["id 1 dstport 4444", "id 1 dstport 8472 gbp", "id 1 dstport 8472 learning"])
def test_a_device_that_differs_is_corrected_and_keeps_the_mac(cluster: Cluster, other):
    cluster.configure()
    node = cluster.node(1)
    node.ip(f"link add flannel.1 address 02:ab:cd:ef:00:01 mtu 900 type vxlan {other} dev eth0 local 172.31.0.1")
    node.start()
    [link] = node.netns.json("ip -d -j link show flannel.1")
    data = link["linkinfo"]["info_data"]
    assert (link["address"], link["mtu"]) == ("02:ab:cd:ef:00:01", 1450)
    assert (data["port"], data["learning"], data.get("gbp", False)) == (8472, False, False)


@BACKENDS
def test_what_changed_while_the_daemon_was_away_is_put_right_at_the_start(cluster: Cluster, backend):
    cluster.configure(backend)
    kind = backend["Backend"]["Type"]
    cluster.peers((50, 51), BackendType=kind)
    node = cluster.node(1).start()
    node.kill()
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    cluster.peer(51, BackendType=kind, public="172.31.0.99")
    cluster.peer(52, BackendType=kind)
    node.ip("route add 10.5.60.0/24 via 172.31.0.60 proto 165")
    node.start()
    # What is stale goes right after that; it has harmed nobody so far.
    eventually(lambda: "10.5.50.0" not in node.ip("route; ip neigh show nud permanent"))
    routes = node.ip("route")
    assert "10.5.60.0" not in routes
    assert "10.5.52.0/24" in routes
    assert "172.31.0.99" in node.netns.run("ip route; bridge fdb show")


@pytest.mark.spec("flannel.md §4.3/2-public-ip-reuse")
def test_a_node_whose_disk_is_gone_gets_its_subnet_and_mac_back(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    subnet, mac = node.v4, node.macs
    node.kill()
    node.netns.run(f"rm -r {node.state_dir} {node.subnet_file}")
    node.start()
    assert node.v4 == subnet
    assert node.macs["mac_v4"] == mac["mac_v4"], "the device was still there"
    assert len(cluster.leases()) == 1


def test_a_node_with_a_new_state_directory_knows_its_own_lease(cluster: Cluster):
    """All that speaks for it is the public address: the key hangs on an etcd lease of which nothing is remembered."""
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    subnet = node.v4
    node.stop()
    node.start(f"--state-dir={node.folder / 'other'}")
    assert node.v4 == subnet
    assert node.lines("ready: 1 peers?, 0 refused")
    assert not node.lines("ADDR-002")


def test_a_back_end_that_changes_takes_its_objects_along(cluster: Cluster):
    cluster.configure(VXLAN)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    subnet = one.v4
    cluster.configure(HOST_GW)
    for node in (one, two):
        node.stop()
    for node in (one, two):
        node.spawn()
    for node in (one, two):
        node.wait_ready()
    assert one.v4 == subnet
    assert reaches(here, there.ips[0])
    assert "dev eth0" in one.ip(f"route show {two.v4}")
    eventually(lambda: links(one) == {})
