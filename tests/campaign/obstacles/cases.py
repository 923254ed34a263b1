"""Obstacles that were named wrongly once, each for its kind.

Mostly the question for a MAC is lost before any probe is sent, or a route went with its link.
"""

from tests.campaign.obstacles.obstacle import Obstacle
from tests.campaign.obstacles.world import Backend
from weft.model.net import Family

_DISCOVERY = "add table {0} t1; add chain {0} t1 c {{ type filter hook {1} priority 0; }}; add rule {0} t1 c {2} drop"
_FULL = "tc qdisc replace dev eth0 root tbf rate 8bit burst 20 limit 1"


def _nft(family: str, hook: str, rule: str) -> str:
    return f"nft '{_DISCOVERY.format(family, hook, rule)}'"


# Which family of packets is lost, on which back end, by what.
CASES: tuple[tuple[Family, Backend, Obstacle], ...] = (
    (
        6,
        "vxlan",
        Obstacle(
            name="what pods answer about their MACs",
            place="node1",
            commands=_nft("ip6", "prerouting", "ip6 saddr fd01:0:0:1::/64"),
            cause="t1",
        ),
    ),
    (
        6,
        "host-gw",
        Obstacle(
            name="what the bridge says to a pod",
            place="node1",
            commands=_nft("bridge", "output", "ip6 daddr fd01:0:0:1::2"),
            cause="t1",
        ),
    ),
    (
        6,
        "host-gw",
        Obstacle(
            name="what a pod asks",
            place="node2",
            commands=_nft("netdev", "ingress device veth2-1", "ip6 saddr fd01:0:0:2::/64"),
            cause="t1",
        ),
    ),
    (4, "vxlan", Obstacle(name="a pod's queue", place="pod1-1", commands=_FULL, cause="QDISC-001")),
    (6, "host-gw", Obstacle(name="the uplink's queue", place="node2", commands=_FULL, cause="QDISC-001")),
    (
        6,
        "host-gw",
        Obstacle(
            name="a port off its bridge",
            place="node2",
            commands="ip link set veth2-1 nomaster",
            cause="CHECK-001.*(bridge|port)",
        ),
    ),
    (
        4,
        "vxlan",
        Obstacle(
            name="a route that went with its device",
            place="node2",
            commands="ip link set flannel.1 down",
            cause="VTEP-003",
        ),
    ),
    (
        6,
        "vxlan",
        Obstacle(
            name="an uplink without IPv6",
            place="node2",
            commands="sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1",
            cause="V6-001",
        ),
    ),
)
