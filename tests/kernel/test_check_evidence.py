"""`weft check` has what it lost traced by probes like it, and names what the kernel says."""

import re
from pathlib import Path

import pytest

from tests.campaign.obstacles.world import world
from weft.diag.check.command import examine

UDP = "nft 'table ip x { chain p { type filter hook forward priority 0; ip protocol udp drop; }; }'"
XFRM = "ip xfrm policy add dir out src 10.244.1.0/24 dst 10.244.2.0/24 action block"


@pytest.mark.parametrize(
    "put, lost, why",
    [
        (UDP, "every IPv4 UDP packet", "FW-002 .*'ip protocol udp drop', as the kernel tells"),
        (XFRM, "every packet through the pod network", "XFRM-001 .* its counter XfrmOutPolBlock grew by 3"),
        ("ip link set dev veth1-2 down", "every packet between pod1-2 and others", "CHECK-001 eth0 of pod pod1-2"),
    ],
)
def test_a_cause_has_the_reason_that_a_trace_has_seen(tmp_path: Path, put: str, lost: str, why: str):
    with world(tmp_path, "vxlan") as nodes:
        nodes.run("node1", put)
        report = nodes.inside("node1", lambda places: examine(places, lambda _: None))
    assert report.conclusion.startswith(lost)
    assert re.search(why, report.causes[0].seen), report.causes
