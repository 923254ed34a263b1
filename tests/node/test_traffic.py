"""Pods of different nodes reach each other, over both back ends and all families, and what that looks like."""

from ipaddress import IPv6Address, ip_address

import pytest

from tests.support.crossing import cross
from tests.support.traffic import Capture, Packet, nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, ONLY_V6, VXLAN, Cluster, eventually, mac, peer_mac, public_v6

ICMP, UDP = 1, 17


@pytest.mark.spec("flannel.md §6.2/device")
@pytest.mark.spec("flannel.md §6.2/peer-v4", cases="v4")
@pytest.mark.spec("flannel.md §6.2/peer-v6", cases=("v6", "dual"))
@pytest.mark.spec("flannel.md §4.8/dual-stack", cases="dual")
@pytest.mark.spec("flannel.md §4.8/v6-only", cases="v6")
@pytest.mark.spec("flannel.md §6.2/device-address", "flannel.md §6.1/mtu-vxlan", cases=("v4", "v6"))
@pytest.mark.parametrize("family", [{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])
def test_pods_reach_each_other_over_vxlan(cluster: Cluster, family):
    cluster.configure(VXLAN, family)
    one, two, three = cluster.nodes(1, 2, 3)
    cross(one, two)
    assert len(one.subnets) == (2 if family is DUAL else 1)
    # A second pod in each direction, on a node that the first two learnt of in another order.
    assert reaches(three.pod(), one.pods[0].ips[0])
    links = one.ip("-d link show type vxlan")
    if family is not ONLY_V6:
        assert "flannel.1:" in links
        assert f"inet {one.v4[0]}/32 scope global flannel.1" in one.ip("address show flannel.1")
    if family:
        assert "flannel-v6.1:" in links
        assert f"inet6 {one.v6[0]}/128 scope global" in one.ip("address show flannel-v6.1")
        assert "mtu 1430" in one.ip("link show flannel-v6.1")
    assert one.env["FLANNEL_MTU"] == ("1430" if family else "1450")


@pytest.mark.spec("flannel.md §6.3/peer-added")
@pytest.mark.spec("flannel.md §6.3/no-options", cases="v4")
@pytest.mark.spec("flannel.md §6.1/mtu-host-gw", cases=("v4", "v6"))
@pytest.mark.parametrize("family", [{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])
def test_pods_reach_each_other_over_host_gw(cluster: Cluster, family):
    cluster.configure(HOST_GW, family)
    one, two = cluster.nodes(1, 2)
    cross(one, two)
    assert one.env["FLANNEL_MTU"] == "1500"
    assert one.ip("link show type vxlan") == ""
    if not family:
        assert f"{two.v4} via {two.public_v4} dev eth0 proto 165" in one.ip("route")
        value = cluster.lease_of(one).value
        assert value == '{"PublicIP":"172.31.0.1","PublicIPv6":null,"BackendType":"host-gw"}'


@pytest.mark.spec("flannel.md §6.2/DirectRouting")
@pytest.mark.spec("flannel.md §6.2/peer-direct", "flannel.md §6.1/directly-reachable", cases=("v4", "v6"))
@pytest.mark.parametrize("family", [{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])
def test_direct_routing_tunnels_only_to_other_segments(cluster: Cluster, family):
    cluster.configure(VXLAN, family, Backend={"Type": "vxlan", "DirectRouting": True})
    near, also_near = cluster.node(1), cluster.node(2)
    far = cluster.node(3, segment=1)
    for node in (near, also_near, far):
        node.spawn()
    for node in (near, also_near, far):
        node.wait_ready()
    cross(near, also_near)
    capture = Capture(near.netns, "eth0")
    cross(near, far)
    assert any(p.protocol == UDP and p.ports[1] == 8472 for p in capture.packets())
    capture.close()
    version = "-6" if family is ONLY_V6 else "-4"
    routes = near.ip(f"{version} route")
    public = also_near.public_v6 if family is ONLY_V6 else also_near.public_v4
    assert f"{also_near.subnets[0]} via {public} dev eth0" in routes
    assert f"{far.subnets[0]} via {far.subnets[0][0]} dev flannel" in routes


@pytest.mark.spec("flannel.md §6.2/on-the-wire")
def test_a_packet_on_the_wire_is_what_upstream_sends(cluster: Cluster):
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    capture = Capture(two.netns, "eth0")
    assert reaches(here, there.ips[0])
    seen: list[Packet] = [p for p in capture.packets() if p.protocol == UDP and p.ports[1] == 8472]
    capture.close()
    [outer] = [p for p in seen if p.target == two.public_v4][:1]
    assert (outer.source, outer.source_mac) == (one.public_v4, mac(1))
    assert (outer.target_mac, outer.vni) == (mac(2), 1)
    inner = outer.inner
    assert str(inner.source_mac) == one.macs["mac_v4"]
    assert str(inner.target_mac) == two.macs["mac_v4"]
    assert (inner.source, inner.target, inner.protocol) == (here.ips[0], there.ips[0], ICMP)
    assert inner.ttl == 63, "routed once, by the sending node"


@pytest.mark.spec("flannel.md §6.2/VNI", "flannel.md §6.2/Port")
def test_vni_and_port_are_those_of_the_configuration(cluster: Cluster):
    cluster.configure(Backend={"Type": "vxlan", "VNI": 77, "Port": 4789})
    one, two = cluster.nodes(1, 2)
    capture = Capture(two.netns, "eth0")
    assert reaches(one.pod(), two.pod().ips[0])
    assert {p.vni for p in capture.packets() if p.protocol == UDP and p.ports[1] == 4789} == {77}
    capture.close()
    assert "flannel.77" in one.ip("link")
    assert '"VNI":77' in cluster.lease_of(one).value


@pytest.mark.spec("flannel.md §6.2/peer-v4", "flannel.md §6.2/peer-mac-notations", "flannel.md §4.2/value-bytes")
def test_a_node_of_upstream_made_by_hand_exchanges_packets_with_ours(cluster: Cluster):
    """Everything of the other node is set up with the commands that flannel.md §6.2 names."""
    cluster.configure()
    ours = cluster.node(1).start()
    theirs = cluster.node(2)
    theirs.ip(
        "link add flannel.1 address 02:aa:00:00:00:02 mtu 1450 txqueuelen 0"
        " type vxlan id 1 dev eth0 local 172.31.0.2 dstport 8472 nolearning"
    )
    theirs.netns.run(
        f"""ip address add 10.5.200.0/32 dev flannel.1
        ip address add 10.5.200.1/24 dev eth0
        ip link set flannel.1 up
        ip neigh replace {ours.v4[0]} lladdr {ours.macs["mac_v4"]} dev flannel.1 nud permanent
        bridge fdb replace {ours.macs["mac_v4"]} dev flannel.1 dst {ours.public_v4} self permanent
        ip route replace {ours.v4} via {ours.v4[0]} dev flannel.1 onlink"""
    )
    value = (
        '{"PublicIP":"172.31.0.2","PublicIPv6":null,"BackendType":"vxlan",'
        '"BackendData":{"VNI":1,"VtepMAC":"02:aa:00:00:00:02"}}'
    )
    cluster.etcd.put_leased(cluster.key("10.5.200.0-24"), value)
    ours.sees("ip route", "^10.5.200.0/24 via 10.5.200.0 dev flannel.1 proto 165 onlink")
    pod = ours.pod()
    assert reaches(pod, ip_address("10.5.200.1"))
    with nothing_lost(pod, theirs.netns, ip_address("10.5.200.1")):
        ours.stop()


@pytest.mark.spec("flannel.md §6.1/other-backend-ignored", "flannel.md §6.2/undecodable-data")
def test_a_peer_of_another_back_end_or_without_data_is_named_and_passed_over(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    cluster.peer(51, BackendType="host-gw", data=None)
    cluster.peer(52, data={"VNI": 1})
    node = cluster.node(1).start()
    routes = node.ip("route")
    assert "10.5.50.0/24" in routes
    assert "10.5.51.0/24" not in routes
    assert "10.5.52.0/24" not in routes
    node.says(r"ADDR-002 lease 10\.5\.51\.0-24: backend 'host-gw'; expected vxlan")
    node.says(r"ADDR-002 lease 10\.5\.52\.0-24: VtepMAC None; expected a unicast MAC")


@pytest.mark.spec("flannel.md §6.2/peer-changed", "flannel.md §6.2/peer-removed", "flannel.md §4.7/3-events")
def test_a_peer_that_changes_leaves_nothing_behind_and_one_that_goes_neither(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    name = cluster.peer(50)
    node.sees("bridge fdb show dev flannel.1", f"{peer_mac(50)} dst 172.31.0.50")
    cluster.peer(50, data={"VNI": 1, "VtepMAC": "02-AA-00-00-00-99"}, public="172.31.0.51")
    node.sees("bridge fdb show dev flannel.1", "02:aa:00:00:00:99 dst 172.31.0.51")
    eventually(lambda: peer_mac(50) not in node.netns.run("bridge fdb show dev flannel.1"))
    assert "02:aa:00:00:00:99 PERMANENT" in node.ip("neigh show dev flannel.1")
    cluster.etcd.delete(cluster.key(name))
    eventually(lambda: "10.5.50.0" not in node.ip("route") + node.ip("neigh show dev flannel.1"))
    assert "02:aa" not in node.netns.run("bridge fdb show dev flannel.1")
    assert node.lines(r"(VTEP|FDB|ROUTE)-\d+: ") == [], "none of this was a repair"


@pytest.mark.spec("flannel.md §6.3/peer-removed", "flannel.md 11.8/host-gw-changed-via")
def test_a_host_gw_peer_that_moves_has_one_route_and_one_that_goes_none(cluster: Cluster):
    cluster.configure(HOST_GW)
    node = cluster.node(1).start()
    name = cluster.peer(50, BackendType="host-gw", data=None)
    node.sees("ip route", "^10.5.50.0/24 via 172.31.0.50 dev eth0")
    cluster.peer(50, BackendType="host-gw", data=None, public="172.31.0.51")
    node.sees("ip route", "^10.5.50.0/24 via 172.31.0.51 dev eth0")
    assert node.ip("route").count("10.5.50.0/24") == 1
    cluster.etcd.delete(cluster.key(name))
    eventually(lambda: "10.5.50.0/24" not in node.ip("route"))


@pytest.mark.spec("flannel.md 11.8/host-gw-changed-via-v6")
def test_a_host_gw_peer_that_moves_has_one_ipv6_route_and_the_old_one_is_not_put_back(cluster: Cluster):
    cluster.configure(HOST_GW, DUAL)
    node = cluster.node(1).start()
    first, second = (str(IPv6Address(public_v6(number))) for number in (50, 51))
    for public in (first, second):
        name = cluster.peer(
            50, lease="10.5.50.0-24&fd05:0:0:32::-64", BackendType="host-gw", data=None, PublicIPv6=public
        )
        node.sees("ip -6 route", f"^fd05:0:0:32::/64 via {public} dev eth0")
    look = "-6 route show fd05:0:0:32::/64"
    assert node.ip(look).count("via") == 1
    # What is wanted has the new one alone: that one comes back.
    node.netns.run(f"ip {look.replace('show', 'del')}")
    eventually(lambda: second in node.ip(look))
    assert first not in node.ip(look)
    cluster.etcd.delete(cluster.key(name))
    eventually(lambda: node.ip(look) == "")


@pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_a_packet_of_full_size_that_nobody_may_cut_arrives_in_either_family(cluster: Cluster, backend):
    cluster.configure(backend, DUAL)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    mtu = int(one.env["FLANNEL_MTU"])
    assert mtu == (1500 if backend is HOST_GW else 1430)
    for ip in there.ips:
        payload = mtu - (28 if ip.version == 4 else 48)  # IP header and ICMP's
        assert "1 received" in here.run(f"ping -c 1 -W 5 -M do -s {payload} {ip}")
        assert "1 received" not in here.run(f"ping -c 1 -W 1 -M do -s {payload + 1} {ip} || true")
