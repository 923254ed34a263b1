"""Daemons whose leases are in Kubernetes: pods reach each other, and nodes live with what happens to the API."""

import json
import shutil
import time
from ipaddress import ip_network
from typing import Any

import pytest

from tests.node.test_peers import listed
from tests.support import flannelsnode
from tests.support.crossing import cross
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.kubecluster import DUAL, HOST_GW, ONLY_V6, RULES, VXLAN, KubeCluster, KubeDaemon
from tests.support.kubernetes.kubeobjects import NODES, PREFIX
from tests.support.traffic import Stream, nothing_lost, reaches
from tests.support.waiting import in_time
from tests.support.weftd import eventually

BACK_ENDS = [VXLAN, HOST_GW]


@pytest.mark.spec("flannel.md §1.2/kube-subnet-mgr")
@pytest.mark.parametrize("family", [{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])
@pytest.mark.parametrize("backend", BACK_ENDS, ids=["vxlan", "host-gw"])
def test_pods_reach_each_other(cluster: KubeCluster, backend, family):
    cluster.configure(backend, family)
    one, two, three = cluster.nodes(1, 2, 3)
    cross(one, two)
    assert reaches(three.pod(), one.pods[0].ips[0])
    assert [str(net) for net in one.subnets] == {
        0: ["10.5.1.0/24"], 1: ["10.5.1.0/24", "fd05:0:0:1::/64"], 2: ["fd05:0:0:1::/64"]
    }[[{}, DUAL, ONLY_V6].index(family)]  # fmt: skip


def test_a_node_that_is_deleted_disappears_and_comes_back(cluster: KubeCluster):
    cluster.configure()
    one, two, three = cluster.nodes(1, 2, 3)
    here, there = one.pod(), two.pod()
    cluster.server.admin.delete(f"{NODES}/node2")
    for node in (one, three):
        eventually(lambda node=node: "10.5.2.0/24" not in node.ip("route"))
        assert "10.5.2.0" not in node.ip("neigh")
    two.says("no lease yet: LEASE-002 node node2: not registered")
    two.register()
    for node in (one, three):
        node.sees("ip route", "10.5.2.0/24 via 10.5.2.0 dev flannel.1")
    assert reaches(here, there.ips[0])


@pytest.mark.parametrize(
    "said",
    [
        {"backend-data": "{"},
        {"backend-data": '{"VtepMAC":"zz"}'},
        {"public-ip": "here"},
        {"kube-subnet-manager": "yes"},
        {"backend-type": "vxlam"},
    ],
    ids=["no-json", "no-mac", "no-address", "no-mark", "no-back-end"],
)
def test_a_peer_whose_annotation_becomes_nonsense_is_served_as_before_across_a_restart_too(cluster: KubeCluster, said):
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    look = "ip route; ip neigh show nud permanent; bridge fdb show"
    before = one.netns.run(look)
    assert reaches(here, there.ips[0])
    two.kill()  # it would put it back
    with nothing_lost(here, there, there.ips[0]):
        kubeobjects.annotate(cluster.server.admin, two.name, **{PREFIX + name: text for name, text in said.items()})
        one.says("ADDR-002 lease node2: .*it is served by what it said before")
        assert "served by what it said before: ADDR-002" in str(listed(one)[two.name]["why"])
        one.stop()
        one.start()
        one.says("ADDR-002 lease node2: .*it is served by what it said before")
        assert one.netns.run(look) == before
    two.start()
    eventually(lambda: not listed(one)[two.name]["why"], seconds=20)


@pytest.mark.parametrize("claim", ["public-ip", "backend-data"])
def test_an_older_node_takes_nothing_from_a_younger_one_across_a_restart_too(cluster: KubeCluster, claim):
    cluster.configure()
    old, young, one = cluster.nodes(1, 2, 3)
    here, there = one.pod(), young.pod()
    look = "ip route; ip neigh show nud permanent; bridge fdb show"
    before = one.netns.run(look)
    assert reaches(here, there.ips[0])
    old.kill()
    with nothing_lost(here, there, there.ips[0]):
        kubeobjects.annotate(cluster.server.admin, old.name, **{PREFIX + claim: young.said[claim]})
        one.says("ADDR-002 lease node1: claims .* like lease node2, which had it first")
        one.stop()
        one.start()
        one.says("ADDR-002 lease node1: claims .*it is served by what it said before")
        assert one.netns.run(look) == before


def test_without_the_api_nothing_is_lost_and_changes_arrive_after_it(cluster: KubeCluster):
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    with Stream(here, there, there.ips[0]) as stream, nothing_lost(here, there, there.ips[0]):
        cluster.server.kill()
        one.says("STORE-001: the store does not answer")
        eventually(lambda: stream.sent > 200, seconds=20)
        cluster.server.start()
        three = cluster.node(3).register().spawn().wait_ready()
        one.sees("ip route", "10.5.3.0/24", seconds=20)
        one.says("the store answers again")
    assert stream.whole
    assert reaches(three.pod(), here.ips[0])


def test_a_restart_without_the_api_serves_what_was_known(cluster: KubeCluster):
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    one.stop()
    cluster.server.kill()
    try:
        one.ip("link del flannel.1")
        one.spawn()
        one.sees("ip route", "10.5.2.0/24 via 10.5.2.0 dev flannel.1", seconds=20)
        eventually(lambda: reaches(here, there.ips[0]), seconds=20)
    finally:
        cluster.server.start()
    # The second where the API was back before anybody missed it, and forbade all until it knew its rules.
    one.says("the store answers again|leasing: lease node1", seconds=30)


def test_a_node_waits_for_its_podcidr(cluster: KubeCluster):
    cluster.configure()
    node = cluster.node(1).register(subnets=False).spawn()
    node.says(r"waiting for a lease: LEASE-002 node node1: no IPv4 podCIDR")
    eventually(lambda: "LEASE-002" in node.get("/readyz?verbose")[1])
    assert "LEASE-002" in node.diagnosis()
    cluster.server.admin.patch(f"{NODES}/node1", {"spec": {"podCIDR": "10.5.77.0/24", "podCIDRs": ["10.5.77.0/24"]}})
    node.wait_ready()
    assert str(node.v4) == "10.5.77.0/24"


def test_a_node_moves_from_flannel_to_weft_and_back_without_losing_a_packet(cluster: KubeCluster):
    """It keeps its lease and its VTEP, so that no other node sees it; what weft leaves is what flanneld starts from."""
    cluster.configure()
    one, two = cluster.node(1), cluster.nodes(2)[0]
    annotations = kubeobjects.flannel(str(one.public_v4), flannelsnode.MAC)
    one.register(annotations=annotations)
    flannelsnode.leave(one, ip_network("10.5.1.0/24"), two)
    two.sees("ip route", "10.5.1.0/24")
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = links(one), published(one)
    with nothing_lost(here, there, there.ips[0]):
        one.start("--ip-masq")
        time.sleep(0.2)
    assert (links(one), published(one)) == before
    assert "proto 165" in one.ip(f"route show {two.v4}")
    assert one.lines("ready: 1 peer, 0 refused")
    with nothing_lost(here, there, there.ips[0]):
        one.stop()
        # flanneld's own way (flannel.md §6.2): a device that fits stays, a route is replaced, chains are made anew.
        one.ip(f"route replace {two.v4} via {two.v4[0]} dev flannel.1 onlink")
        time.sleep(0.2)
    assert (links(one), published(one)) == before
    assert one.ip("route").count(str(two.v4)) == 1
    assert "FLANNEL-POSTRTG" in one.netns.run("iptables-save -t nat")


def links(node: KubeDaemon) -> dict[str, Any]:
    """The node's device: which it is, and all that flanneld compares."""
    [link] = node.netns.json("ip -d -j link show flannel.1")
    return {key: link[key] for key in ("ifindex", "address", "mtu", "linkinfo")}


def published(node: KubeDaemon) -> dict[str, Any]:
    """What the node publishes, data as values."""
    return {**node.said, "backend-data": json.loads(node.said["backend-data"])}


@pytest.mark.spec("flannel.md §5.9/stored-macs")
@pytest.mark.parametrize("prefix", ["flannel.alpha.coreos.com", "example.com/weft"])
def test_a_node_that_lost_its_disk_has_its_mac_from_the_api(cluster: KubeCluster, prefix):
    cluster.configure()
    node = cluster.node(1).register().start(f"--kube-annotation-prefix={prefix}")
    before = node.macs
    assert before["mac_v4"] in str(node.object["metadata"]["annotations"])
    node.stop()
    shutil.rmtree(node.state_dir)
    node.ip("link del flannel.1")
    node.start(f"--kube-annotation-prefix={prefix}")
    assert node.macs["mac_v4"] == before["mac_v4"]


def test_the_condition_is_set_once_the_right_is_there(cluster: KubeCluster):
    cluster.configure()
    node = cluster.node(1).register().start()
    eventually(lambda: node.object["status"].get("conditions"))
    node.stop()
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), RULES[:1])
    cluster.server.admin.patch(f"{NODES}/node1/status", {"status": {"conditions": None}})
    eventually(lambda: not node.object["status"].get("conditions"))
    node.start()  # its annotations are there already: nothing else needs the right
    said = node.says("waiting for the store to take it: API-001")
    assert '- {apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]}' in said
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), RULES)
    eventually(lambda: node.object["status"].get("conditions"), seconds=20)


def test_without_rights_a_node_waits_and_says_the_rule(cluster: KubeCluster):
    cluster.configure()
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), [])
    node = cluster.node(1).register().spawn()
    node.says("waiting for this node in the store: API-001")
    assert 'resources: ["nodes"], verbs: ["get"]' in node.log
    eventually(lambda: "API-001" in node.get("/readyz?verbose")[1])
    assert "API-001" in node.diagnosis()
    kubeobjects.grant(cluster.server.admin, "weft", kubeobjects.user("nobody"), RULES)
    node.wait_ready()


@pytest.mark.spec("flannel.md §5.4/node-public-ip")
def test_an_operators_address_for_a_node_counts_more_than_the_flag(cluster: KubeCluster):
    cluster.configure()
    annotations = {PREFIX + "node-public-ip": "203.0.113.7"}
    node = cluster.node(1).register(annotations=annotations).start("--public-ip=203.0.113.9")
    assert node.said["public-ip"] == "203.0.113.7"


def test_a_configuration_that_changes_is_said_and_not_taken_over(cluster: KubeCluster):
    cluster.configure()
    node = cluster.node(1).register().start()
    cluster.configure(VXLAN, {"Backend": {"Type": "vxlan", "VNI": 7}, "EnableNFTables": True})
    node.says(r"CONF-001 .*net-conf\.json: changed since the start: EnableNFTables; Backend;")
    assert "[!]configuration: CONF-001" in node.get("/readyz?verbose")[1]
    assert node.ready
    cluster.configure()
    node.says("the network configuration is that of the start again")
    assert "CONF-001" not in node.get("/readyz?verbose")[1]


def test_an_api_server_that_hangs_is_said_within_half_a_minute_and_costs_nothing(cluster: KubeCluster):
    """Stopped, it accepts connections and answers nothing; a watch of before is silent."""
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    with nothing_lost(here, there, there.ips[0]):
        cluster.server.pause()
        began = time.monotonic()
        try:
            one.says("STORE-001: the store does not answer", seconds=90)
            assert in_time(began, 60), "30 s on a machine that is not busy"
            assert "STORE-001" in one.get("/readyz?verbose")[1]
            assert one.ready
        finally:
            cluster.server.resume()
        one.says("the store answers again", seconds=60)
