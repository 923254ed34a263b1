"""containerd on two nodes of a network without IPv4: flannel's conflist as weft installs it, pods, host ports."""

from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from tests.runtime import traces
from tests.runtime.cri import Port
from tests.runtime.runtimenode import Node
from tests.support import published
from tests.support.weftd import ONLY_V6, VXLAN, Cluster, Underlay


@pytest.fixture
def nodes(underlay: Underlay, tmp_path: Path, image: Path) -> Iterator[list[Node]]:
    """Two nodes, of which the first pods have made what all others share."""
    cluster = Cluster(underlay, tmp_path)
    cluster.configure(VXLAN, ONLY_V6)
    with ExitStack() as stack:
        made = []
        for number in (31, 32):
            folder = tmp_path / f"node{number}"
            made.append(Node(underlay, folder, number, prefix=cluster.prefix, image=image))
            stack.callback(made[-1].cut_power)
        for node in made:
            node.remove(node.ready().pod("first", ports=(Port(host=8080, sandbox=8080),)).id)
        yield made


def test_pods_have_ipv6_alone_reach_each_other_across_nodes_and_leave_nothing(nodes: list[Node], underlay: Underlay):
    here, there = nodes
    before = [traces.look_without_pods(node.machine) for node in nodes]
    pod, beside = here.pod("web", ports=(Port(host=8080, sandbox=8080),)), here.pod("beside")
    far = there.pod("far")
    for node, one in ((here, pod), (here, beside), (there, far)):
        [address] = one.sandbox.ips
        assert IPv6Address(address) in node.daemon.v6
        shown = node.exec(one, "ip", "address", "show", "eth0")
        assert f"inet6 {address}/64 scope global" in shown
        assert "inet " not in shown
        assert node.exec(one, "ip", "-4", "route") == ""
        assert f"default via {node.daemon.v6[1]} dev eth0" in node.exec(one, "ip", "-6", "route")
    for node, one, target in ((here, beside, pod), (there, far, pod), (here, pod, far)):
        assert "1 packets received" in node.exec(one, "ping", "-c", "1", "-W", "3", target.ip)
    with here.answering(pod, "web"):
        # From outside, from the other node and, though it has no IPv4, from the pods.
        for client in (underlay.switch, there.machine.netns, here.machine.netns):
            assert published.ask(client.call, here.daemon.public_v6, 8080).startswith("web ")
        assert not published.ask(underlay.switch.call, here.daemon.public_v4, 8080)
        assert there.exec(far, "nc", str(here.daemon.public_v6), "8080").startswith("web ")
    for node, one in ((here, pod), (here, beside), (there, far)):
        node.remove(one.id)
    for node, was in zip(nodes, before, strict=True):
        traces.gone_back(node.machine, was)
        assert not node.reserved()
