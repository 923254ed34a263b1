"""A node whose address, MTU or uplink changes keeps its subnet; its peers follow (flannel.md §7.4, settled.md §5)."""

from contextlib import closing

import pytest

from tests.support.traffic import reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually, quick_netns

BACKENDS = pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
DIRECT = {"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan", "DirectRouting": True}}
NEW = "172.31.0.11"


def renumber(node: Daemon) -> None:
    """Give eth0 another IPv4 address, as DHCP may."""
    node.netns.run(
        f"ip address add {NEW}/24 dev eth0; ip address del {node.public_v4}/24 dev eth0"
        "; ip route replace default via 172.31.0.254"
    )


@BACKENDS
def test_a_public_ip_that_changed_while_the_daemon_was_away_costs_nothing(cluster: Cluster, backend):
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    subnet = one.v4
    one.stop()
    renumber(one)
    one.subnet_file.unlink()
    one.start()
    assert one.v4 == subnet
    leases = cluster.leases()
    assert sorted(leases) == sorted([f"{subnet[0]}-24", f"{two.v4[0]}-24"])
    assert f'"PublicIP":"{NEW}"' in leases[f"{subnet[0]}-24"].value
    two.sees("ip route; bridge fdb show", NEW)
    assert reaches(there, here.ips[0])


@pytest.mark.spec("flannel.md §7.4/changes-tracked")
@BACKENDS
def test_a_public_ip_that_changes_is_told_to_the_peers(cluster: Cluster, backend):
    cluster.configure(backend, DUAL)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    subnets = one.subnets
    renumber(one)
    one.says(f"IFACE-002 the uplink changed: was eth0, IPv4 {one.public_v4}.*, now eth0, IPv4 {NEW}")
    two.sees("ip route; bridge fdb show", NEW)
    assert reaches(there, here.ips[0])
    assert reaches(here, there.ips[1])
    assert one.subnets == subnets
    assert one.ready
    if backend is VXLAN:
        assert f"local {NEW}" in one.ip("-d link show flannel.1")
        assert len(cluster.leases()) == 2


@pytest.mark.spec("flannel.md §7.4/changes-tracked", "flannel.md §6.1/mtu-vxlan")
def test_an_mtu_that_changes_reaches_the_device_and_the_subnet_file(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    node.ip("link set eth0 mtu 1400")
    node.sees("ip link show flannel.1", "mtu 1350")
    eventually(lambda: node.env["FLANNEL_MTU"] == "1350")
    node.ip("link set eth0 mtu 9000")
    node.sees("ip link show flannel.1", "mtu 8950")
    eventually(lambda: node.env["FLANNEL_MTU"] == "8950")
    assert not node.lines("VTEP-00[34]"), "that was no repair"


def test_an_uplink_that_loses_its_address_is_named_and_nothing_else_happens(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    node.ip(f"address del {node.public_v4}/24 dev eth0")
    node.says("IFACE-002 the uplink changed and cannot be used: IFACE-001 .*eth0.*going on as before")
    assert "10.5.50.0/24" in node.ip("route")
    node.ip(f"address add {node.public_v4}/24 dev eth0")
    node.ip("route replace default via 172.31.0.254")
    eventually(lambda: cluster.peer(51))
    node.sees("ip route", "10.5.51.0/24", seconds=10)
    assert node.running


@pytest.mark.spec("flannel.md §6.2/device-watch")
@BACKENDS
def test_an_uplink_that_is_made_anew_brings_all_back(cluster: Cluster, backend):
    """A VXLAN device dies with its parent, and all routes of both with them."""
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    mac = one.macs
    one.unplug()
    one.replug()
    one.sees("ip route", str(two.v4))
    assert reaches(here, there.ips[0])
    assert reaches(there, here.ips[0])
    assert one.macs == mac
    assert one.ready


def test_the_other_node_of_a_changed_pair_needs_no_restart(cluster: Cluster):
    """Both change at the same time."""
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    for node, new in ((one, "172.31.0.21"), (two, "172.31.0.22")):
        node.ip(f"address add {new}/24 dev eth0")
        node.ip(f"address del {node.public_v4}/24 dev eth0")
        node.ip("route replace default via 172.31.0.254")
    for node, new in ((one, "172.31.0.22"), (two, "172.31.0.21")):
        node.sees("bridge fdb show", new)
    assert reaches(here, there.ips[0])


@pytest.mark.parametrize("backend", [HOST_GW, DIRECT], ids=["host-gw", "direct"])
def test_routes_outlive_a_cable_that_is_pulled_for_a_moment(cluster: Cluster, backend):
    cluster.configure(backend)
    cluster.peer(50, BackendType=backend["Backend"]["Type"])
    node = cluster.node(1).start()
    assert "10.5.50.0/24" in node.ip("route")
    plugged = cluster.underlay.switch
    for _ in range(2):
        plugged.run(f"ip link set {node.port} down")
        node.sees("ip link show eth0", "NO-CARRIER")
        assert "10.5.50.0/24" in node.ip("route")
        plugged.run(f"ip link set {node.port} up")
        node.sees("ip link show eth0", "LOWER_UP")
        assert "10.5.50.0/24" in node.ip("route")
    assert not node.lines("ROUTE-001")


def test_a_subnet_file_that_could_not_be_written_costs_readiness_only_until_it_can(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    node.subnet_file.unlink()
    node.subnet_file.mkdir()
    node.ip("link set eth0 mtu 1400")
    eventually(lambda: not node.ready)
    node.ip("link set eth0 mtu 1300")
    node.sees("ip link show flannel.1", "mtu 1250")  # the uplink is followed meanwhile
    renumber(node)
    eventually(lambda: [kv for kv in cluster.leases().values() if NEW in kv.value])
    assert not node.ready
    node.subnet_file.rmdir()
    eventually(lambda: node.ready)
    eventually(lambda: node.env["FLANNEL_MTU"] == "1250")


def test_an_uplink_that_is_made_anew_while_the_start_waits_for_the_device_is_used(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.netns.run(f"ip link add other type vxlan id 1 dstport 8472 local {node.public_v4}")
    node.spawn()
    node.says("VTEP-002")
    node.unplug()
    node.replug()
    node.says("IFACE-002 the uplink changed: ")
    node.netns.run("ip link del other")
    eventually(lambda: node.ready)
    assert node.v4


def test_the_uplink_is_watched_while_peers_cannot_be_told(own_cluster: Cluster):
    own_cluster.configure()
    node = own_cluster.node(1).start()
    own_cluster.etcd.stop()
    renumber(node)
    node.says("peers cannot be told yet", seconds=20)
    node.ip("link set eth0 mtu 1400")
    node.sees("ip link show flannel.1", "mtu 1350")
    own_cluster.etcd.start()
    eventually(lambda: [kv for kv in own_cluster.leases().values() if NEW in kv.value], seconds=15)


def test_a_node_whose_new_address_the_store_does_not_take_is_not_ready(own_cluster: Cluster):
    """Peers send to the old one; etcd without space answers, watches and renews."""
    own_cluster.configure()
    one, two = own_cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    own_cluster.etcd.no_space(on=True)
    assert one.ready
    renumber(one)
    one.says("peers cannot be told yet", seconds=20)
    eventually(lambda: not one.ready, seconds=20)
    assert "LEASE-004 lease" in one.get("/readyz?verbose")[1]
    assert (
        f"it tells peers public IP {one.public_v4}, and this node has public IP {NEW}" in one.get("/readyz?verbose")[1]
    )
    assert two.ready
    own_cluster.etcd.no_space(on=False)
    eventually(lambda: one.ready, seconds=20)
    two.sees("ip route; bridge fdb show", NEW)
    assert reaches(there, here.ips[0])


def test_another_uplink_is_watched_like_the_first(cluster: Cluster):
    """The kernel does not say that routes go when their link goes down."""
    cluster.configure(HOST_GW)
    cluster.peer(50, BackendType="host-gw")
    node = cluster.node(1)
    node.netns.run("ip link add eth1 type veth peer name far1; ip link set far1 up; ip link set eth1 up")
    node.start("--iface=eth0", "--iface=eth1")
    node.ip("address add 172.31.0.61/24 dev eth1")
    node.ip(f"address del {node.public_v4}/24 dev eth0")
    node.says("IFACE-002 the uplink changed: was link eth0, .* now link eth1, .*: uplink eth1 ")
    node.sees("ip route", "10.5.50.0/24.* dev eth1")
    node.ip("link set eth1 down")
    node.ip("link set eth1 up")
    node.sees("ip route", "10.5.50.0/24.* dev eth1")


@pytest.mark.parametrize("number", [50, 51], ids=["IPv4", "IPv6"])
def test_an_address_that_comes_to_another_link_is_kept_from_the_leases_of_others(cluster: Cluster, number: int):
    cluster.configure(VXLAN, DUAL)
    cluster.peer(50, lease="10.5.50.0-24&fd05:0:0:50::-64")
    cluster.peer(51, lease="10.5.51.0-24&fd05:0:0:51::-64")
    [node] = cluster.nodes(1)
    served = f"10.5.{number}.0/24 "
    node.sees("ip route", served)
    address = "10.5.50.7/32" if number == 50 else "fd05:0:0:51::7/128"
    node.netns.run(
        f"ip link add other0 type veth peer name other1; ip link set other0 up; ip address add {address} dev other0"
    )
    node.says(f"ADDR-002 lease 10.5.{number}.0-24.* overlaps this node's address")
    eventually(lambda: served not in node.ip("route"))
    assert f"10.5.{101 - number}.0/24 " in node.ip("route")
    node.netns.run("ip link del other0")
    node.sees("ip route", served)


def test_a_lease_that_takes_an_address_which_came_later_is_refused(cluster: Cluster):
    cluster.configure(VXLAN)
    [node] = cluster.nodes(1)
    node.netns.run(
        "ip link add other0 type veth peer name other1; ip link set other0 up"
        "; ip address add 172.31.0.77/32 dev other0; ip address add 10.5.60.1/24 dev other0"
    )
    cluster.peers([60, 77])
    node.says(r"ADDR-002 lease 10\.5\.77\.0-24.*172\.31\.0\.77 is an address of this node")
    node.says(r"ADDR-002 lease 10\.5\.60\.0-24.*overlaps this node's address 10\.5\.60\.1")
    eventually(lambda: "10.5.60.0/24" not in node.ip("route show proto 165"))


@BACKENDS
@pytest.mark.parametrize("live", [True, False], ids=["while up", "while down"])
def test_an_uplink_that_is_renamed_is_followed_by_its_index_and_nothing_is_taken_down(cluster: Cluster, backend, live):
    """As udev or an operator does it. `--iface=eth0` names nothing any more."""
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    before = one.netns.rtnl.link("flannel.1")
    rename = "ip link set eth0 name wan0"
    if not live:
        rename = f"ip link set eth0 down; {rename}; ip link set wan0 up; ip route add default via 172.31.0.254"
    one.netns.run(rename)
    by = "by the uplink in use; not: --iface=eth0"
    one.says(f"IFACE-002 the uplink changed: was link eth0.*, now link wan0.*: .* {by}")
    one.sees("ip route", f"{two.v4} ")
    assert reaches(here, there.ips[0])
    assert one.netns.rtnl.link("flannel.1") == before
    one.ip("link set wan0 down")
    one.says("IFACE-002 uplink wan0: it is down")
    one.netns.run("ip link set wan0 up; ip route replace default via 172.31.0.254")
    one.says(r"IFACE-002 the uplink wan0 can be used again after \d+ s$")
    one.sees("ip route", f"{two.v4} ")
    assert reaches(there, here.ips[0])
    assert not one.lines("ERROR.*No such device")


@BACKENDS
def test_an_uplink_that_is_renamed_before_a_full_look_costs_nothing(cluster: Cluster, backend):
    """A full look finds the new name before weftd has followed it."""
    cluster.configure(backend)
    cluster.peer(50, BackendType=backend["Backend"]["Type"])
    node = cluster.node(1).start()
    if backend is VXLAN:
        before = node.netns.rtnl.link("flannel.1")
        node.netns.run("ip link set eth0 name wan0; ip link set flannel.1 down")
        node.says("VTEP-003")
        eventually(lambda: node.netns.rtnl.link("flannel.1") == before)
    else:
        node.netns.run("ip link set eth0 name wan0; ip route del 10.5.50.0/24")
    node.sees("ip route", "10.5.50.0/24")


@BACKENDS
def test_an_uplink_in_another_namespace_is_named_while_it_is_away_and_all_is_back_with_it(cluster: Cluster, backend):
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    index = one.netns.rtnl.link("eth0").index
    with closing(quick_netns()) as elsewhere:
        one.netns.run(f"ip link set eth0 netns {elsewhere.path}")
        one.says("IFACE-002 uplink eth0: it is gone")
        eventually(lambda: not one.ready)
        elsewhere.run(f"ip link set eth0 netns {one.netns.path}")
    assert one.netns.rtnl.link("eth0").index == index
    one.netns.run(
        f"ip address add {one.public_v4}/24 dev eth0; ip link set eth0 up; ip route add default via 172.31.0.254"
    )
    one.says("IFACE-002 the uplink eth0 can be used again")
    eventually(lambda: one.ready)
    one.sees("ip route", f"{two.v4} ")
    assert reaches(here, there.ips[0])
    assert reaches(there, here.ips[0])


@BACKENDS
def test_an_uplink_that_is_down_is_named_while_it_is_and_peers_are_back_with_it(cluster: Cluster, backend):
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    one.ip("link set eth0 down")
    one.says("IFACE-002 uplink eth0: it is down")
    eventually(lambda: not one.ready)
    one.netns.run("ip link set eth0 up; ip route add default via 172.31.0.254")
    one.says("IFACE-002 the uplink eth0 can be used again")
    eventually(lambda: one.ready)
    one.sees("ip route", f"{two.v4} ")
    assert reaches(here, there.ips[0])
    assert not one.lines("peer ignored"), "where peers are is not forgotten with the link"


def test_a_vtep_that_another_namespace_has_is_named_while_it_is_there_and_made_again_after(cluster: Cluster):
    """Its VNI and port stay taken in the namespace that it was made in."""
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    with closing(quick_netns()) as elsewhere:
        one.netns.run(f"ip link set flannel.1 netns {elsewhere.path}")
        one.says("cannot put link flannel.1")
        eventually(lambda: not one.ready)
    one.sees("ip route", f"{two.v4} ", seconds=15)
    eventually(lambda: one.ready)
    assert reaches(here, there.ips[0])
