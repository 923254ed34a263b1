"""What host-gw makes of a configuration."""

import pytest

from tests.node.states.said import Case, comes, configured
from tests.support.weftd import DUAL, Cluster

PEER = {"lease": "10.5.50.0-24&fd05:0:0:32::-64", "PublicIPv6": "fd31::32"}
CASES = {
    "no peer": Case(says=""),
    "one peer": Case(peers=({},), says="route 10.5.50.0/24 via 172.31.0.50 dev eth0"),
    "behind a router": Case(peers=({"public": "172.31.1.50"},), says=""),
    "both families": Case(
        network=DUAL,
        peers=(PEER,),
        says="""
        route 10.5.50.0/24 via 172.31.0.50 dev eth0
        route fd05:0:0:32::/64 via fd31::32 dev eth0
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(cluster: Cluster, case: str):
    comes(configured(cluster, "host-gw", CASES[case]).start(), CASES[case])
