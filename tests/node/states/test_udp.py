"""What udp makes of a configuration: what leads to a peer is known to its relay alone."""

import pytest

from tests.node.states.said import Case, comes, configured
from tests.support.weftd import DUAL, Cluster

DEVICE = """
    link flannel0 up mtu 1472 qlen 500 alias weft:vtep: tun type tun
    address 10.5.100.0/32 dev flannel0
    route 10.5.0.0/16 dev flannel0 scope link
"""
CASES = {
    "no peer": Case(says=DEVICE),
    "one peer": Case(peers=({},), says=DEVICE),
    "both families": Case(
        network=DUAL,
        says=DEVICE
        + """
        address fd05:0:0:100::/128 dev flannel0
        route fd05::/48 dev flannel0
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    comes(configured(cluster, "udp", CASES[case]).start(), CASES[case])
