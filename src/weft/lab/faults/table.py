"""All faults that a lab's node can have, and here those that are done to packets. Pure."""

from typing import Final

from weft.lab.faults.between import BETWEEN
from weft.lab.faults.fault import VXLAN, Fault, chain, ingress
from weft.lab.faults.nodes import NODES
from weft.lab.faults.pods import PODS

_PACKETS: Final[tuple[Fault, ...]] = (
    Fault(
        name="forwarding-off",
        code="KERN-002",
        about="the kernel forwards nothing",
        breaks="sysctl -qw net.ipv4.ip_forward=0",
        mends="sysctl -qw net.ipv4.ip_forward=1",
        repaired=True,
    ),
    Fault(
        name="forwarding-off-bridge",
        code="KERN-002",
        about="the kernel forwards nothing that comes from the pods' bridge",
        breaks="sysctl -qw net/ipv4/conf/$BRIDGE/forwarding=0",
        mends="sysctl -qw net/ipv4/conf/$BRIDGE/forwarding=1",
    ),
    Fault(
        name="forward-dropped",
        code="FW-002",
        about="another program's table drops what it has no rule for, as Docker's and ufw's do",
        breaks=chain("somebody", "forward", "ct state established accept", policy="drop"),
        mends="nft delete table inet somebody",
    ),
    Fault(
        name="firewalld-rejects",
        code="FW-001",
        about="firewalld's table rejects what pods send",
        breaks=chain("firewalld", "forward", "reject with icmpx admin-prohibited", priority=10),
        mends="nft delete table inet firewalld",
    ),
    Fault(
        name="port-blocked",
        code="REACH-001",
        about="the firewall drops the datagrams of the overlay",
        breaks=chain("somebody", "input", "udp dport 8472 drop"),
        mends="nft delete table inet somebody",
        backends=VXLAN,
    ),
    Fault(
        name="port-eaten",
        code="REACH-002",
        about="something under the node drops the datagrams of the overlay, and no rule of the firewall tells of it",
        breaks=ingress("udp dport 8472 drop"),
        mends="nft delete table netdev somebody",
        backends=VXLAN,
    ),
    Fault(
        name="path-narrow",
        code="MTU-001",
        about="a link on the way is narrower than the uplink says, and says nothing",
        breaks=chain("somebody", "prerouting", "udp dport 8472 meta length > 1400 drop"),
        mends="nft delete table inet somebody",
        backends=VXLAN,
    ),
)

FAULTS: Final[tuple[Fault, ...]] = (*_PACKETS, *BETWEEN, *PODS, *NODES)
