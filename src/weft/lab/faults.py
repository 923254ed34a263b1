"""What can be broken on a lab's node, each fault with the code by which a diagnosis names it. Pure."""

from typing import Final

from weft.lab.fault import Fault, chain, ingress, note, noted
from weft.lab.meshfaults import MESH
from weft.lab.podfaults import PODS
from weft.lab.policyfaults import POLICED

_VXLAN: Final = ("vxlan",)

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
        backends=_VXLAN,
    ),
    Fault(
        name="port-eaten",
        code="REACH-002",
        about="something under the node drops the datagrams of the overlay, before its firewall sees them",
        breaks=ingress("udp dport 8472 drop"),
        mends="nft delete table netdev somebody",
        elsewhere=True,  # the node itself sees that it is a rule
        backends=_VXLAN,
    ),
    Fault(
        name="path-narrow",
        code="MTU-001",
        about="a link on the way is narrower than the uplink says, and says nothing",
        breaks=chain("somebody", "prerouting", "udp dport 8472 meta length > 1400 drop"),
        mends="nft delete table inet somebody",
        backends=_VXLAN,
    ),
)

_BETWEEN: Final = (
    Fault(
        name="route-lost",
        code="ROUTE-001",
        about="the route to a peer is gone",
        breaks="ip route delete $PEER",
        repaired=True,
        backends=("vxlan", "host-gw", "ipip"),
    ),
    Fault(
        name="route-stale",
        code="ROUTE-002",
        about="an old route leads part of the node's own subnet away from it",
        breaks="ip route add ${SUBNET%/*}/26 via $FAR dev $UPLINK proto static",
        mends="ip route delete ${SUBNET%/*}/26 via $FAR dev $UPLINK proto static",
    ),
    Fault(
        name="network-overlaps",
        code="ADDR-001",
        about="another bridge of the node has the pods' network",
        breaks="ip link add docker0 type bridge; ip address add ${NETWORK%.*}.1/12 dev docker0; ip link set docker0 up",
        mends="ip link delete docker0",
    ),
    Fault(
        name="node-unroutable",
        code="ROUTE-003",
        about="a route of the machine drops what goes to another node",
        breaks="ip route add blackhole $FAR/32",
        mends="ip route delete blackhole $FAR/32",
    ),
    Fault(
        name="node-misplaced",
        code="NEIGH-002",
        about="a permanent neighbour entry has a wrong MAC for another node",
        breaks="ip neighbour replace $FAR lladdr 02:00:5e:00:53:01 dev $UPLINK nud permanent",
        mends="ip neighbour delete $FAR dev $UPLINK",
    ),
    Fault(
        name="device-down",
        code="VTEP-003",
        about="the device between the nodes is down",
        breaks="ip link set $DEVICE down",
        mends="ip link set $DEVICE up",
        repaired=True,
        backends=_VXLAN,
    ),
    Fault(
        name="device-narrow",
        code="VTEP-003",
        about="the device has another MTU than pods",
        breaks="ip link set $DEVICE mtu 1300",
        repaired=True,
        backends=_VXLAN,
    ),
    Fault(
        name="address-lost",
        code="VTEP-001",
        about="another program took the device's address off it",
        breaks="ip address delete ${SUBNET%/*}/32 dev $DEVICE",
        repaired=True,
        backends=_VXLAN,
    ),
    Fault(
        name="device-managed",
        code="HOST-001",
        about="systemd-networkd takes the device for its own",
        breaks="links=/run/systemd/netif/links; mkdir -p $links; printf 'ADMIN_STATE=configured\\nNETWORK_FILE=/a\\n'"
        " >$links/$(ip -o link show $DEVICE | cut -d: -f1)",
        mends="rm -r /run/systemd",
        backends=_VXLAN,
    ),
    Fault(
        name="device-gone",
        code="VTEP-004",
        about="the device between the nodes is gone",
        breaks="ip link delete $DEVICE",
        repaired=True,
        backends=_VXLAN,
    ),
    Fault(
        name="device-squatted",
        code="VTEP-002",
        about="another program's device has the VNI and the port",
        breaks="kill -STOP $(pgrep -x weftd); ip link delete $DEVICE;"
        " ip link add somebodys type vxlan id 1 dstport 8472 dev $UPLINK; kill -CONT $(pgrep -x weftd)",
        mends="ip link delete somebodys",
        backends=_VXLAN,
    ),
    Fault(
        name="mac-changed",
        code="VTEP-003",
        about="a network manager gave the device another MAC than peers were told",
        breaks="ip link set $DEVICE address 0e:00:00:00:00:01",
        repaired=True,
        backends=_VXLAN,
    ),
    Fault(
        name="neighbour-lost",
        code="FDB-001",
        about="the neighbour entries of peers are gone",
        # Again if it fails: the daemon may be putting an entry back that it has listed.
        breaks="ip neigh flush nud permanent dev $DEVICE || ip neigh flush nud permanent dev $DEVICE",
        repaired=True,
        backends=_VXLAN,
    ),
)

_SECOND_LINK: Final = "ip link add lan1 type bridge; ip link set lan1 up; ip route add $FAR/32 dev lan1"
_WRONG_DATAGRAM: Final = (
    "import socket, struct, sys; a = socket.inet_aton(sys.argv[1]);"
    " s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW);"
    " s.sendto(struct.pack('!BBHHHBBH4s4sHHHH', 69, 0, 28, 1, 0, 9, 17, 0, a, a, 9, 9, 8, 1), (sys.argv[1], 0))"
)
_CONNECTIONS: Final = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
    " most = int(open('/proc/sys/net/netfilter/nf_conntrack_max').read());"
    " [s.sendto(b'', ('127.9.%d.%d' % (n >> 23 & 127, n >> 15 & 255), 9 + (n & 32767)))"
    " for n in range(most * 15 // 16)]"
)
_MTU: Final = "ip -o link show $UPLINK | sed 's/.* mtu \\([0-9]*\\) .*/\\1/'"
_TIMEOUT: Final = "net.netfilter.nf_conntrack_udp_timeout"
_FILTER: Final = "net.ipv4.conf.$UPLINK.rp_filter"
_NODES: Final = (
    Fault(
        name="daemon-killed",
        code="INST-003",
        about="no daemon runs on the node",
        breaks="kill -9 $(pgrep -x weftd)",
        kills=True,
    ),
    Fault(
        name="store-away",
        code="STORE-001",
        about="the store does not answer",
        breaks=chain("somebody", "output", "tcp dport $STORE drop").replace("'", '"'),
        mends="nft delete table inet somebody",
    ),
    Fault(
        name="uplink-down",
        code="IFACE-002",
        about="the link between the nodes is down",
        # Else the kernel forgets the link's IPv6 addresses, and nothing would put them back.
        breaks="sysctl -qw net.ipv6.conf.$UPLINK.keep_addr_on_down=1; ip link set $UPLINK down",
        mends="ip link set $UPLINK up",
    ),
    Fault(
        name="uplink-narrow",
        code="MTU-001",
        about="the link between the nodes got a smaller MTU, and pods keep theirs",
        breaks=f"{note('mtu', _MTU)}; ip link set $UPLINK mtu 1400",
        mends=f"ip link set $UPLINK mtu {noted('mtu')}",
        backends=_VXLAN,
    ),
    Fault(
        name="uplink-other",
        code="IFACE-001",
        about="another node is reached by another link than the uplink",
        breaks=_SECOND_LINK,
        mends="ip link delete lan1",
    ),
    Fault(
        name="replies-elsewhere",
        code="KERN-003",
        about="answers go by another link, and the kernel drops what comes by the uplink",
        breaks=f"{note('filter', f'sysctl -n {_FILTER}')}; sysctl -qw {_FILTER}=1; {_SECOND_LINK}",
        mends=f"sysctl -qw {_FILTER}={noted('filter')}; ip link delete lan1",
    ),
    Fault(
        name="peer-away",
        code="LEASE-005",
        about="the node answers nothing: see it from another node",
        breaks=ingress("drop"),
        mends="nft delete table netdev somebody",
        elsewhere=True,
    ),
    Fault(
        name="services-unseen",
        code="KERN-001",
        about="kube-proxy's rules are there, and packets of a bridge do not pass them",
        breaks="sysctl -qw net.bridge.bridge-nf-call-iptables=0; iptables -t nat -N KUBE-SERVICES",
        mends="iptables -t nat -X KUBE-SERVICES; sysctl -qw net.bridge.bridge-nf-call-iptables=1",
    ),
    Fault(
        name="connections-full",
        code="CT-001",
        about="connection tracking has hardly room for one connection more",
        # Else the kernel would forget them within half a minute.
        breaks=f'{note("timeout", f"sysctl -n {_TIMEOUT}")}; sysctl -qw {_TIMEOUT}=3600; python3 -c "{_CONNECTIONS}"',
        mends=f"sysctl -qw {_TIMEOUT}={noted('timeout')}; conntrack -F",
    ),
    Fault(
        name="masquerade-lost",
        code="NFT-002",
        about="weft's firewall rules are flushed",
        breaks="iptables -t nat -F FLANNEL-POSTRTG 2>/dev/null || nft flush table ip flannel-ipv4",
        repaired=True,
    ),
    Fault(
        name="two-iptables",
        code="NFT-001",
        about="one program uses iptables-legacy, another iptables-nft",
        breaks="iptables-legacy -N SOMEBODY; iptables-nft -t filter -L >/dev/null; iptables-nft -N SOMEBODY",
    ),
    Fault(
        name="checksums-wrong",
        code="CSUM-001",
        about="a network card of a peer sends datagrams with wrong checksums",
        breaks=f'python3 -c "{_WRONG_DATAGRAM}" ${{GATEWAY%/*}}',
        backends=_VXLAN,
    ),
    Fault(
        name="network-uninstalled",
        code="LEASE-001",
        about="the pod network was taken off the node, and left its configuration",
        breaks="kill -9 $(pgrep -x weftd); ip link delete $DEVICE; rm /run/flannel/subnet.env",
        kills=True,
        backends=_VXLAN,
    ),
)

FAULTS: Final[tuple[Fault, ...]] = (*_PACKETS, *_BETWEEN, *PODS, *_NODES, *MESH, *POLICED)
