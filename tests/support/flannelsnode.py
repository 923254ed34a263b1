"""What flanneld leaves on a node with vxlan when it ends: subnet.env, its device, the way to a peer, and its rules."""

from ipaddress import IPv4Network
from typing import Final

from tests.support.weftd import Daemon

MAC: Final = "02:aa:00:00:00:01"


def leave(node: Daemon, subnet: IPv4Network, peer: Daemon) -> None:
    """Put there what a flanneld with the lease `subnet` and one peer would have left."""
    node.subnet_file.parent.mkdir(parents=True)
    node.subnet_file.write_text(
        f"FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET={subnet[1]}/{subnet.prefixlen}\n"
        "FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    node.netns.run(
        f"""ip link add flannel.1 address {MAC} mtu 1450 txqueuelen 0 \
            type vxlan id 1 dev eth0 local {node.public_v4} dstport 8472 nolearning
        ip address add {subnet[0]}/32 dev flannel.1
        ip link set flannel.1 up
        ip neigh replace {peer.v4[0]} lladdr {peer.macs["mac_v4"]} dev flannel.1 nud permanent
        bridge fdb replace {peer.macs["mac_v4"]} dev flannel.1 dst {peer.public_v4} self permanent
        ip route replace {peer.v4} via {peer.v4[0]} dev flannel.1 onlink
        iptables -t nat -N FLANNEL-POSTRTG
        iptables -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG"""
    )
