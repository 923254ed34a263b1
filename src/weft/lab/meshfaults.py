"""Faults of a node in a mesh: of its ways to others, of its ring and of its disk. Pure."""

from typing import Final

from weft.lab.fault import END, Fault, ingress

_BACKENDS: Final = ("mesh",)
# Reads mesh.json, has `one` changed by a statement, where `there` is the file of another node, and writes it.
_EDIT: Final = (
    "import base64, glob, json, os; [path] = glob.glob('/var/lib/weft/*/store/mesh.json'); one = json.load(open(path));"
    " there = json.loads(base64.b64decode(os.environ['DISK'])); {change}; json.dump(one, open(path, 'w'))"
)
_VXLAN: Final = "udp dport 8472 drop"


def _edited(change: str) -> str:
    return f'{END}; python3 -c "{_EDIT.format(change=change)}"'


def _both_ways(what: str) -> str:
    """A script that drops it from and to the other node."""
    made = 'nft add table inet somebody; nft "add chain inet somebody %s { type filter hook %s priority 0; }"'
    rule = 'nft "add rule inet somebody %s ip %s $FAR %s"'
    hooks = (("input", "saddr"), ("output", "daddr"))
    return "; ".join(f"{made % (hook, hook)}; {rule % (hook, end, what)}" for hook, end in hooks)


MESH: Final = (
    Fault(
        name="vxlan-blocked",
        code="MESH-008",
        about="a firewall drops vxlan from and to one other node",
        breaks=_both_ways(_VXLAN),
        mends="nft delete table inet somebody",
        backends=_BACKENDS,
    ),
    Fault(
        name="vxlan-blocked-in",
        code="MESH-008",
        about="something under the node drops vxlan that comes from one other node",
        breaks=ingress(f"ip saddr $FAR {_VXLAN}"),
        mends="nft delete table netdev somebody",
        backends=_BACKENDS,
    ),
    Fault(
        name="udp-blocked",
        code="MESH-008",
        about="a firewall drops all UDP from and to one other node",
        breaks=_both_ways("meta l4proto udp drop"),
        mends="nft delete table inet somebody",
        backends=_BACKENDS,
    ),
    Fault(
        name="large-dropped",
        code="MESH-008",
        about="what one other node sends is lost where it is large, and nobody says so: see it from that node",
        breaks=ingress("ip saddr $FAR udp dport { 8472, 51820 } meta length > 1400 drop"),
        mends="nft delete table netdev somebody",
        elsewhere=True,  # first: who sends what is lost
        backends=_BACKENDS,
    ),
    Fault(
        name="relay-killed",
        code="LEASE-005",
        about="the node is switched off, and packets that went through it with it: see it from another node",
        # Else the kernel forgets the link's IPv6 addresses, and nothing would put them back.
        breaks=f"{END}; sysctl -qw net.ipv6.conf.$UPLINK.keep_addr_on_down=1; ip link set $UPLINK down",
        mends="ip link set $UPLINK up",
        kills=True,
        elsewhere=True,
        backends=_BACKENDS,
    ),
    Fault(
        name="ring-forked",
        code="MESH-003",
        about="the node is in a ring of its own, with subnets of the ring of all others",
        breaks=_edited("one['kept']['ring'][0] = base64.b64encode(bytes(16)).decode()"),
        mends=_edited("one['kept']['ring'][0] = there['kept']['ring'][0]"),
        restarts=True,
        backends=_BACKENDS,
    ),
    Fault(
        name="disk-cloned",
        code="MESH-004",
        about="the node has a copy of another node's disk",
        breaks=_edited("one = {**there, 'machine': 'another'}"),
        restarts=True,
        backends=_BACKENDS,
    ),
    Fault(
        name="state-rolled-back",
        code="MESH-004",
        about="the node has an old snapshot of its disk",
        breaks=_edited(
            "one['kept']['version'] = 0; [os.remove(each) for each in glob.glob(path[:-9] + 'members.bin')]"
        ),
        repaired=True,
        restarts=True,
        backends=_BACKENDS,
    ),
)
