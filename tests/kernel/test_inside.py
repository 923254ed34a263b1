"""What loses packets inside a pod is named with the pod, by `weft trace --probe` and `weft doctor`, without weftd."""

from pathlib import Path

import pytest

from tests.campaign.obstacles.world import pod_address, world

RULES = "nft 'add table inet own; add chain inet own c { type filter hook %s priority 0; policy drop; }'"
# What is done in pod1-1, whether it is seen where that pod sends, and the words for it.
DONE = [
    ("ip route delete default", True, "CHECK-002 pod pod1-1: route: none leads to 10.244.2.2"),
    ("ip route add prohibit 10.244.2.0/24", True, "CHECK-002 pod pod1-1: route: 10.244.2.0/24 leads nowhere"),
    ("ip link set eth0 down", True, "CHECK-001 eth0 of pod pod1-1: it is down"),
    (RULES % "output", True, "CHECK-002 pod pod1-1: the policy of chain c of inet own drops them, as the kernel tells"),
    (RULES % "input", True, "the policy of chain c of inet own"),  # told by the kernel, or foretold
    (RULES % "input", False, "CHECK-002 pod pod1-1: the policy of chain c of inet own drops them, as the kernel tells"),
    ("sysctl -qw net.ipv4.icmp_echo_ignore_all=1", False, "icmp_echo_ignore_all is 1: it answers no echo request"),
]


@pytest.mark.parametrize("what, sends, said", DONE)
def test_what_loses_packets_inside_a_pod_is_named(tmp_path: Path, what: str, sends: bool, said: str):
    with world(tmp_path, "vxlan") as nodes:
        nodes.run("pod1-1", what)
        source, target = ("pod1-1", "pod2-1") if sends else ("pod1-2", "pod1-1")
        traced = nodes.trace(source, target, 4)
        assert said in traced.verdict
        assert not traced.well
        code = said[:9] if said.startswith("CHECK") else "CHECK-002"
        assert {(each.weight, each.code) for each in nodes.doctor("node1").findings} == {("fault", code)}


def test_an_address_that_is_gone_is_not_blamed_on_who_asks_for_it(tmp_path: Path):
    with world(tmp_path, "vxlan") as nodes:
        nodes.run("pod1-1", f"ip address delete {pod_address('pod1-1', 4)}/24 dev eth0")
        verdict = nodes.trace("pod1-2", "pod1-1", 4).verdict
        assert "10.244.1.2 does not answer ARP on eth0. It is gone, or the pod's question is dropped" in verdict
        [found] = nodes.doctor("node1").findings
        assert (found.code, found.where) == ("CHECK-001", "eth0 of pod pod1-1")


def test_an_address_that_two_pods_have_is_no_end_of_a_trace(tmp_path: Path):
    with world(tmp_path, "vxlan") as nodes:
        nodes.run("pod1-1", f"ip address add {pod_address('pod1-2', 4)}/32 dev eth0")
        for source, target in (("pod1-2", "pod1-1"), ("pod1-1", "pod1-2")):
            with pytest.raises(AssertionError, match=r"CHECK-001 10\.244\.1\.3: pods pod1-1 and pod1-2 have it"):
                nodes.trace(source, target, 4)
        [found] = nodes.doctor("node1").findings
        assert (found.code, found.where) == ("CHECK-001", "eth0 of pod pod1-1")


def test_a_node_s_end_that_is_down_is_no_port_that_somebody_has_shut(tmp_path: Path):
    with world(tmp_path, "vxlan") as nodes:
        nodes.run("node1", "ip link set veth1-1 down")
        assert "CHECK-001 eth0 of pod pod1-1: it has no carrier" in nodes.trace("pod1-1", "pod2-1", 4).verdict
        [found] = nodes.doctor("node1").findings
        assert (found.code, found.seen) == ("CHECK-001", "the node's end of it, veth1-1, is down")


def test_an_answer_that_is_dropped_behind_the_uplink_has_not_come_back(tmp_path: Path):
    with world(tmp_path, "vxlan") as nodes:
        hook = "{ type filter hook ingress device eth0 priority 0; }"
        nodes.run(
            "node2", f"nft 'add table netdev x; add chain netdev x c {hook}; add rule netdev x c udp dport 8472 drop'"
        )
        found = nodes.doctor("node2").findings
        assert found
        assert all("eth0 of" in each.seen and "received 3" in each.seen for each in found if each.code == "REACH-001")
