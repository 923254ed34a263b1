"""What vxlan makes of a configuration."""

import pytest

from tests.node.states.said import Case, comes, configured
from tests.support.weftd import DUAL, ONLY_V6, Cluster

V6 = {"PublicIPv6": "fd31::32", "BackendV6Data": {"VNI": 1, "VtepMAC": "02:aa:00:00:06:32"}}
DEVICE = """
    link flannel.1 up mtu 1450 qlen 1000 address OWN alias weft:vtep: \
vxlan id 1 local 172.31.0.1 link eth0 port 8472 learning false
    address 10.5.100.0/32 dev flannel.1
    accept_ra of flannel.1: 0
"""
PEER = """
    neighbour 10.5.50.0 lladdr 02:aa:00:00:00:32 PERMANENT dev flannel.1
    forward 02:aa:00:00:00:32 dst 172.31.0.50 self permanent dev flannel.1
    route 10.5.50.0/24 via 10.5.50.0 dev flannel.1 onlink
"""
DEVICE_V6 = """
    link flannel-v6.1 up mtu 1430 qlen 1000 address OWN alias weft:vtep: \
vxlan id 1 local6 fd31::1 link eth0 port 8472 learning false
    address fd05:0:0:100::/128 dev flannel-v6.1
    accept_ra of flannel-v6.1: 0
"""
PEER_V6 = """
    neighbour fd05:0:0:32:: lladdr 02:aa:00:00:06:32 PERMANENT dev flannel-v6.1
    forward 02:aa:00:00:06:32 dst fd31::32 self permanent dev flannel-v6.1
    route fd05:0:0:32::/64 via fd05:0:0:32:: dev flannel-v6.1 onlink
"""
CASES = {
    "no peer": Case(says=DEVICE),
    "one peer": Case(peers=({},), says=DEVICE + PEER),
    "a peer that cannot be used": Case(peers=({"data": {"VNI": 1}},), says=DEVICE),
    "both families": Case(
        network=DUAL,
        peers=({"lease": "10.5.50.0-24&fd05:0:0:32::-64", **V6},),
        says=DEVICE + PEER + DEVICE_V6 + PEER_V6,
    ),
    "a peer without IPv6": Case(network=DUAL, peers=({},), says=DEVICE + PEER + DEVICE_V6),
    "IPv6 alone": Case(
        network=ONLY_V6, peers=({"lease": "0.0.0.0-0&fd05:0:0:32::-64", **V6},), says=DEVICE_V6 + PEER_V6
    ),
    "its options": Case(
        options={"VNI": 7, "Port": 4789, "Learning": True, "MTU": 1400},
        peers=({},),
        says=PEER.replace("flannel.1", "flannel.7")
        + """
        link flannel.7 up mtu 1350 qlen 1000 address OWN alias weft:vtep: \
vxlan id 7 local 172.31.0.1 link eth0 port 4789 learning true
        address 10.5.100.0/32 dev flannel.7
        accept_ra of flannel.7: 0
        """,
    ),
    "direct routing": Case(
        options={"DirectRouting": True},
        peers=({}, {"public": "172.31.1.51"}),  # the second is behind a router
        says=DEVICE
        + """
        route 10.5.50.0/24 via 172.31.0.50 dev eth0
        neighbour 10.5.51.0 lladdr 02:aa:00:00:00:33 PERMANENT dev flannel.1
        forward 02:aa:00:00:00:33 dst 172.31.1.51 self permanent dev flannel.1
        route 10.5.51.0/24 via 10.5.51.0 dev flannel.1 onlink
        """,
    ),
    "rules of nftables": Case(
        network={"EnableNFTables": True},
        flags=("--ip-masq",),
        says=DEVICE
        + """
        meta mark & 0x00004000 == 0x00004000 return
        ip saddr 10.5.100.0/24 ip daddr 10.5.0.0/16 return
        ip saddr 10.5.0.0/16 ip daddr 10.5.100.0/24 return
        ip saddr != 10.5.0.0/16 ip daddr 10.5.100.0/24 return
        ip saddr 10.5.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
        ip saddr != 10.5.0.0/16 ip daddr 10.5.0.0/16 masquerade fully-random
        ip saddr 10.5.0.0/16 accept
        ip daddr 10.5.0.0/16 accept
        """,
    ),
}


@pytest.mark.spec("flannel.md §6.2/device", cases="no peer")
@pytest.mark.spec("flannel.md §6.2/device-address", cases="no peer")
@pytest.mark.spec("flannel.md §6.2/peer-v4", cases="one peer")
@pytest.mark.spec("flannel.md §6.2/peer-v6", cases="IPv6 alone")
@pytest.mark.spec("flannel.md §6.2/accept-ra", cases=("no peer", "IPv6 alone"))
@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    comes(configured(cluster, "vxlan", CASES[case]).start(*CASES[case].flags), CASES[case])
