"""A node whose packets something else carries."""

import json

from tests.support.weftd import Cluster, eventually


def test_it_takes_a_subnet_publishes_it_and_makes_no_route(cluster: Cluster):
    cluster.configure({"Network": "10.5.0.0/16", "Backend": {"Type": "alloc"}})
    cluster.peer(50, BackendType="", data=None)
    node = cluster.node(1).start()
    [own] = [kv for name, kv in cluster.leases().items() if name != "10.5.50.0-24"]
    assert json.loads(own.value) == {"PublicIP": str(node.public_v4), "PublicIPv6": None}
    assert "FLANNEL_MTU=1500\n" in node.subnet_file.read_text()
    eventually(lambda: node.lines("1 peer"))
    assert node.ip("route show proto 165") == ""
    assert not node.lines("WARN|ERROR")
