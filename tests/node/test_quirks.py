"""Defects of upstream that docs/compat.md promises to do better, where no row of a vector table covers them."""

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
