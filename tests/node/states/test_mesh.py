"""What mesh makes of a configuration, and of a peer whose store knows the way."""

import json
import re

import pytest

from tests.node.states.said import Case, comes
from tests.support.weftd import DUAL, Cluster, Daemon

DEVICE = """
    link flannel.1 up mtu 1420 qlen 1000 address OWN alias weft:vtep: \
vxlan id 1 local 172.31.0.1 link eth0 port 8472 learning false
    address 10.5.100.0/32 dev flannel.1
    address 10.5.1.100/32 dev flannel.1
    accept_ra of flannel.1: 0
"""
PEER = """
    neighbour 10.5.50.0 lladdr PEER PERMANENT dev flannel.1
    forward PEER dst 172.31.0.2 self permanent dev flannel.1
    route 10.5.50.0/24 via 10.5.50.0 dev flannel.1 src 10.5.100.0 onlink
    route 10.5.1.50 via 10.5.50.0 dev flannel.1 src 10.5.1.100 onlink
"""
DEVICE_V6 = """
    link flannel-v6.1 up mtu 1420 qlen 1000 address OWN alias weft:vtep: \
vxlan id 1 local6 fd31::1 link eth0 port 8472 learning false
    address fd05:0:0:100::/128 dev flannel-v6.1
    address fd05::200/128 dev flannel-v6.1
    accept_ra of flannel-v6.1: 0
"""
PEER_V6 = """
    neighbour fd05:0:0:50:: lladdr PEER_V6 PERMANENT dev flannel-v6.1
    forward PEER_V6 dst fd31::2 self permanent dev flannel-v6.1
    route fd05:0:0:50::/64 via fd05:0:0:50:: dev flannel-v6.1 src fd05:0:0:100:: onlink
    route fd05::150 via fd05:0:0:50:: dev flannel-v6.1 src fd05::200 onlink
"""
CASES = {
    "one peer": Case(says=DEVICE + PEER),
    "both families": Case(network=DUAL, says=DEVICE + PEER + DEVICE_V6 + PEER_V6),
    "its options": Case(
        options={"VNI": 7, "Port": 4789, "MTU": 1400},
        says=(DEVICE + PEER)
        .replace("flannel.1", "flannel.7")
        .replace("id 1", "id 7")
        .replace("8472", "4789")
        .replace("1420", "1320"),
    ),
    "direct routing": Case(
        options={"DirectRouting": True},
        says=DEVICE + re.sub(r"via 10.5.50.0 dev flannel.1 src (\S+) onlink", r"via 172.31.0.2 dev eth0 src \1", PEER),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    chosen = CASES[case]
    config = {"Network": "10.5.0.0/16", **chosen.network, "Backend": {"Type": "mesh", **chosen.options}}
    blocks = {cluster.node(1): "10.5.100.0/24", cluster.node(2): "10.5.50.0/24"}
    mesh = json.dumps({"config": config, "nodes": {f"node{node.number}": str(node.public_v4) for node in blocks}})
    for node, block in blocks.items():
        node.program = "tests.node.meshstore"
        # Both call the same address public: the way counts.
        node.spawn("--public-ip=192.168.1.2", env={"MESH": mesh, "NODE": f"node{node.number}", "HOME_BLOCK": block})
    node, peer = (each.wait_ready() for each in blocks)
    comes(node, Case(says=_named(chosen.says, peer)))


def _named(says: str, peer: Daemon) -> str:
    return says.replace("PEER_V6", peer.macs["mac_v6"]).replace("PEER", peer.macs["mac_v4"])
