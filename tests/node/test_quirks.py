"""Defects of upstream that docs/compat.md promises to do better, where no row of a vector table covers them."""

from tests.support.netns import MANY_NAMES
from tests.support.weftd import VXLAN, Cluster


def test_a_subnet_file_that_cannot_be_written_is_tried_again_until_it_can(cluster: Cluster):
    """flannel.md Q-7."""
    cluster.configure(VXLAN)
    node = cluster.node(1)
    node.subnet_file.parent.write_text("a file where a directory should be")
    node.spawn()
    node.says("LEASE-001.*cannot be written")
    assert node.get("/readyz")[0] == 503
    node.subnet_file.parent.unlink()
    node.wait_ready()
    assert node.env["FLANNEL_SUBNET"]
    assert len(node.lines("cannot be written")) == 1  # said once, not each time


def test_events_that_go_well_are_not_logged(cluster: Cluster):
    """flannel.md 12.3.18: upstream dumps whole leases at its default verbosity."""
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    before = node.log
    for number in range(50, 55):
        cluster.peer(number)
        node.sees("ip route", f"10.5.{number}.0")
    assert node.log == before


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
