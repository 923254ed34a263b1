"""What the quiz says of a fault without naming it, by its code or by the family of its code. Pure."""

from typing import Final

from weft.lab.faults.fault import Fault
from weft.model.value import Value


class Area(Value):
    """`where` is a vague hint, `look` names commands that show the fault.

    With a `complaint`, a user's words, nothing need fail now.
    """

    where: str
    look: str
    complaint: str = ""


_FAMILIES: Final = {
    "ADDR": Area(
        where="Two things have the same addresses.",
        look="'ip address' on each node: which link that is not weft's has a network that pods' addresses are in?",
        complaint="somebody has installed another program on a node, and fears for some addresses since",
    ),
    "BRIDGE": Area(
        where="Look at pods and their own node, before you look at other nodes.",
        look="'ip address show cni0' on each node, beside the lease that 'weft lab ps' shows.",
    ),
    "CLEAN": Area(
        where="Something of an earlier day is still there.",
        look="'ls /etc/cni/net.d' and 'ip link' on each node: what is not weft's?",
        complaint="this cluster had another pod network before, and one node was perhaps not cleaned up",
    ),
    "CNI": Area(
        where="What is configured on a node, and what is installed there, are two things.",
        look="'ls /etc/cni/net.d' and 'weft cni install --check' on each node.",
        complaint="pods that ask for a second network stay in ContainerCreating on one node",
    ),
    "CT": Area(
        where="The node remembers something of each connection. Its memory has an end.",
        look="'sysctl -a -r nf_conntrack' on each node: which number is near another?",
        complaint="one node serves thousands of short connections, and nobody knows how many more it can",
    ),
    "FW": Area(
        where="The way is there. Something on it does not let these packets pass.",
        look="'nft list ruleset' on each node shows the rules of all programs; 'weft lab trace A B' names the rule.",
    ),
    "HOST": Area(
        where="Another program of a node believes that it manages a link of weft's.",
        look="'ls -R /run/systemd' on each node, where systemd-networkd keeps what it knows of links.",
        complaint="the operator of a node will restart its network tonight, and asks whether that is safe",
    ),
    "IFACE": Area(
        where="Look at the nodes themselves, before you look at pods.",
        look="'ip link' on each node, and 'ip route get' with the addresses of the other nodes.",
    ),
    "IPAM": Area(
        where="Pods that run are well. It is about new ones.",
        look="'weft ipam list' on each node says who has which address.",
    ),
    "KERN": Area(
        where="A setting of the kernel drops these packets, without a rule.",
        look="'sysctl net.ipv4.conf' on each node: where do forwarding and rp_filter differ from other nodes?",
    ),
    "LEASE": Area(
        where="One node is missing altogether. Who misses it?",
        look="'weft peers' on each node, and 'weft doctor' on other nodes than the one that is missing.",
    ),
    "MTU": Area(
        where="Not all packets of a pair are lost. What do those that are lost have in common?",
        look="'ping -M do -s SIZE ADDRESS' from a pod: from which SIZE on is there no answer, and to which node?",
    ),
    "REACH": Area(
        where="Each node is well as far as it knows. Ask what becomes of a packet between two nodes.",
        look="'weft lab capture --proto udp', while pods ping: what leaves one node, and is not answered by the other? "
        "'nft list ruleset' shows what drops packets before all else sees them.",
    ),
    "ROUTE": Area(
        where="A node sends packets where they do not belong.",
        look="'ip route' on each node: weftd's routes have 'proto 165'. Which other one is more specific?",
    ),
    "STORE": Area(
        where="Nothing is lost yet. But one node would not hear of a change.",
        look="'weft status' on each node says how the store is.",
        complaint="a node will be added tomorrow, and the monitoring says that one of the others is not ready for it",
    ),
    "VTEP": Area(
        where="One node's end of the overlay is not as it should be.",
        look="'ip -d link show type vxlan' on each node, and what 'weft lab ps' says of the daemons.",
    ),
}
_CODES: Final = {
    "BRIDGE-003": Area(
        where="It is about a pod that asks a Service and is chosen itself.",
        look="'bridge -d link' on each node shows the settings of each port.",
        complaint="a server that calls its own Service gets no answer now and then, on one node",
    ),
    "KERN-001": Area(
        where="It is about packets that never leave a bridge.",
        look="'sysctl net.bridge' on each node.",
        complaint="a Service answers pods of other nodes, and not those beside its own server, on one node",
    ),
}


def area(fault: Fault) -> Area | None:
    """None where its code is of no known family."""
    return _CODES.get(fault.code) or _FAMILIES.get(family(fault.code))


def family(code: str) -> str:
    """FW of FW-001."""
    return code.rpartition("-")[0]


def hints(fault: Fault, known: Area, node: str) -> list[str]:
    """From vague to plain."""
    return [known.where, known.look, f"On {node}: {fault.about}."]
