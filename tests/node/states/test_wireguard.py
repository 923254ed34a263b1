"""What wireguard makes of a configuration."""

from base64 import b64encode

import pytest

from tests.node import wgnode
from tests.node.states.said import Case, comes, configured
from tests.support.weftd import DUAL, Cluster

KEY = b64encode(bytes([50] * 32)).decode()
PEER = {"data": {"PublicKey": KEY}}
BOTH = {
    **PEER,
    "BackendV6Data": {"PublicKey": KEY},
    "lease": "10.5.50.0-24&fd05:0:0:32::-64",
    "PublicIPv6": "fd31::32",
}
DEVICE = """
    link flannel-wg up mtu 1420 qlen 500 alias weft:vtep: tun type tun
    address 10.5.100.0/32 dev flannel-wg
    route 10.5.0.0/16 dev flannel-wg scope link
"""
CASES = {
    "no peer": Case(says=DEVICE),
    "one peer": Case(peers=(PEER,), says=f"{DEVICE}\npeer {KEY} at 172.31.0.50:51820 for 10.5.50.0/24 dev flannel-wg"),
    "a device for each family": Case(
        network=DUAL,
        peers=(BOTH,),
        says=DEVICE
        + f"""
        peer {KEY} at 172.31.0.50:51820 for 10.5.50.0/24 dev flannel-wg
        link flannel-wg-v6 up mtu 1420 qlen 500 alias weft:vtep: tun type tun
        address fd05:0:0:100::/128 dev flannel-wg-v6
        peer {KEY} at [fd31::32]:51821 for fd05:0:0:32::/64 dev flannel-wg-v6
        route fd05::/48 dev flannel-wg-v6
        """,
    ),
    "one device": Case(
        network=DUAL,
        options={"Mode": "ipv4"},
        peers=(BOTH,),
        says=DEVICE
        + f"""
        address fd05:0:0:100::/128 dev flannel-wg
        peer {KEY} at 172.31.0.50:51820 for 10.5.50.0/24,fd05:0:0:32::/64 dev flannel-wg
        route fd05::/48 dev flannel-wg
        """,
    ),
    "its options": Case(
        options={"MTU": 1400, "ListenPort": 51900},
        peers=(PEER,),
        says=DEVICE.replace("1420", "1320") + f"\npeer {KEY} at 172.31.0.50:51900 for 10.5.50.0/24 dev flannel-wg",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    node = configured(cluster, "wireguard", CASES[case])
    try:
        comes(wgnode.start(node), CASES[case])
    finally:
        wgnode.end_servers(cluster)
