"""The node as a whole: its daemon, the store, its uplink, what other programs do there. Pure."""

from typing import Final

from weft.lab.faults.fault import VXLAN, Fault, chain, ingress

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


def _note(what: str, command: str) -> str:
    """A script that notes on the node what a command prints, unless it is noted: a fault may be made twice."""
    return f"[ -e /run/before-{what} ] || {command} >/run/before-{what}"


def _noted(what: str) -> str:
    """What was noted, as a word of a script, which is forgotten then."""
    return f"$(cat /run/before-{what}; rm /run/before-{what})"


NODES: Final = (
    Fault(
        name="daemon-killed",
        code="INST-003",
        about="no daemon runs on the node",
        breaks="kill -9 $(pgrep -x weftd)",
        mends="",
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
        breaks=f"{_note('mtu', _MTU)}; ip link set $UPLINK mtu 1400",
        mends=f"ip link set $UPLINK mtu {_noted('mtu')}",
        backends=VXLAN,
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
        breaks=f"{_note('filter', f'sysctl -n {_FILTER}')}; sysctl -qw {_FILTER}=1; {_SECOND_LINK}",
        mends=f"sysctl -qw {_FILTER}={_noted('filter')}; ip link delete lan1",
    ),
    Fault(
        name="peer-away",
        code="LEASE-005",
        about="the node answers nothing: see it from another node",
        breaks=ingress("drop"),
        mends="nft delete table netdev somebody",
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
        breaks=f'{_note("timeout", f"sysctl -n {_TIMEOUT}")}; sysctl -qw {_TIMEOUT}=3600; python3 -c "{_CONNECTIONS}"',
        mends=f"sysctl -qw {_TIMEOUT}={_noted('timeout')}; conntrack -F",
    ),
    Fault(
        name="masquerade-lost",
        code="NFT-002",
        about="weft's firewall rules are flushed",
        breaks="iptables -t nat -F FLANNEL-POSTRTG 2>/dev/null || nft flush table ip flannel-ipv4",
        mends="",
        repaired=True,
    ),
    Fault(
        name="two-iptables",
        code="NFT-001",
        about="one program uses iptables-legacy, another iptables-nft",
        breaks="iptables-legacy -N SOMEBODY; iptables-nft -t filter -L >/dev/null; iptables-nft -N SOMEBODY",
        mends="",
    ),
    Fault(
        name="checksums-wrong",
        code="CSUM-001",
        about="a network card of a peer sends datagrams with wrong checksums",
        breaks=f'python3 -c "{_WRONG_DATAGRAM}" ${{GATEWAY%/*}}',
        mends="",
        backends=VXLAN,
    ),
    Fault(
        name="network-uninstalled",
        code="LEASE-001",
        about="the pod network was taken off the node, and left its configuration",
        breaks="kill -9 $(pgrep -x weftd); ip link delete $DEVICE; rm /run/flannel/subnet.env",
        mends="",
        kills=True,
        backends=VXLAN,
    ),
)
