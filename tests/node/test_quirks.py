"""Defects of upstream that docs/compat.md promises to do better, where no row of a vector table covers them."""

import subprocess

from tests.support.netns import MANY_NAMES
from tests.support.weftd import VXLAN, Cluster


def test_a_subnet_file_that_cannot_be_written_is_tried_again_until_it_can(cluster: Cluster):
    """flannel.md Q-7."""
    cluster.configure(VXLAN)
    node = cluster.node(1)
    directory = node.subnet_file.parent
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", str(directory)], check=True)  # a full disk
    try:
        node.spawn()
        node.says("LEASE-001.*cannot be written")
        assert node.get("/readyz")[0] == 503
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(directory)], check=True)
        node.wait_ready()
        assert node.env["FLANNEL_SUBNET"]
        assert len(node.lines("cannot be written")) == 1  # said once, not each time
    finally:
        node.kill()
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_of_a_peer_that_comes_or_goes_one_line_is_logged_and_of_its_lease_nothing(cluster: Cluster):
    """flannel.md 12.3.18: upstream dumps whole leases at its default verbosity."""
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    node.says("INFO running: ready: 0 peers, ")
    before = len(node.log.splitlines())
    cluster.peer(50)
    node.says("INFO peers: peer 10.5.50.0-24 came, public IP 172.31.0.50$")
    cluster.peer(50, VtepNote="changed")
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    node.says("INFO peers: peer 10.5.50.0-24 went$")
    assert len(node.log.splitlines()) == before + 2
    # Of many at once a few and their number.
    cluster.peers(range(50, 90))
    node.says("INFO peers: and [0-9]+ more like that")
    assert len(node.lines("peer .* came")) <= 40


def test_a_peer_whose_lease_becomes_nonsense_is_served_as_before(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(51)
    node = cluster.node(1).start()
    node.says("INFO running: ready: 1 peer, ")
    cluster.etcd.put(cluster.key("10.5.51.0-24"), "no lease")
    node.says("ADDR-002 lease 10.5.51.0-24: .*; it is served by what it said before")
    node.sees("ip route", "10.5.51.0/24")
    cluster.peer(51)
    cluster.peer(52)
    node.says("peer 10.5.52.0-24 came")
    node.sees("ip route", "10.5.51.0/24")
    assert not node.lines("peer 10.5.51.0-24 went")


def test_a_link_whose_description_is_larger_than_64_kib_ends_neither_a_running_daemon_nor_a_start(cluster: Cluster):
    cluster.configure(VXLAN)
    cluster.peer(50)
    node = cluster.node(1).start()
    node.netns.run(MANY_NAMES.format(dev="eth0"))
    node.netns.run("ip link set eth0 mtu 1400; ip route del 10.5.50.0/24")
    node.sees("ip route", "10.5.50.0/24")
    node.sees("ip link show flannel.1", "mtu 1350")
    node.kill()
    node.start()
    cluster.peer(51)
    node.sees("ip route", "10.5.51.0/24")
