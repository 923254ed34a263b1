"""Two nodes: routes to each other's pods, and VXLAN, which carries pods' packets by the entries that flannel makes."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Link, Seen


def _judge_nodes(seen: Seen) -> Iterator[Demand]:
    yield demands.space(seen, "node2", "green")
    yield demands.pair(seen, "node2", "vethgreen", "green")
    yield demands.port(seen, "node2", "vethgreen", "cni0")
    yield demands.address(seen, "node2", "cni0", "10.244.2.1/24")
    yield demands.address(seen, "node2", "eth0", "10.244.2.2/24", "green")
    yield demands.route(seen, "node2", "default", "10.244.2.1", inside="green")
    yield demands.route(seen, "node1", "10.244.2.0/24", "172.31.0.12")
    yield demands.route(seen, "node2", "10.244.1.0/24", "172.31.0.11")
    yield demands.forwards(seen, "node1")
    yield demands.forwards(seen, "node2")
    yield demands.answered(seen, "green", "red pings green on node2", "no answer from 10.244.2.2")
    yield demands.answered(seen, "blue", "green pings blue on node1", "no answer from 10.244.1.3")


_GREEN: Final = """\
ip link add cni0 type bridge
ip address add 10.244.2.1/24 dev cni0
ip link set cni0 up
ip netns add green
ip -n green link set lo up
ip link add vethgreen type veth peer name eth0 netns green
ip link set vethgreen master cni0 up
ip -n green address add 10.244.2.2/24 dev eth0
ip -n green link set eth0 up
ip -n green route add default via 10.244.2.1"""

NODES: Final = Lesson(
    name="nodes",
    title="A second node",
    question="How does node1 know where the pods of node2 are?",
    why="""\
node2 gets a bridge and a pod as node1 has, with a subnet of its own: 10.244.2.0/24.
That each node has one subnet for all its pods is what keeps routing tables small: a route for each node, not for
each pod.
""",
    typed=(
        Typed("node2", _GREEN),
        look(
            "node1",
            "ip route get 10.244.2.2",
            "Network is unreachable: no route of node1's covers green's address.",
            fails=True,
        ),
        Typed("node1", "ip route add 10.244.2.0/24 via 172.31.0.12", "172.31.0.12 is node2's own address."),
        look("node1", "ping -c 1 172.31.0.12", "The nodes themselves reach each other."),
        look(
            "node1",
            "ip netns exec red ping -c 1 -W 1 10.244.2.2",
            "1 packets transmitted, 0 received: the route alone is not enough.",
            fails=True,
        ),
        look("node1", "sysctl net.ipv4.ip_forward", "0: node1 drops packets that are for others."),
    ),
    task="Have both nodes forward packets, and give node2 the route to node1's pods, so that red and green reach each "
    "other.",
    rest=(
        Typed("node1", "sysctl -w net.ipv4.ip_forward=1"),
        Typed("node2", "sysctl -w net.ipv4.ip_forward=1"),
        Typed("node2", "ip route add 10.244.1.0/24 via 172.31.0.11"),
    ),
    hints="""\
A ping is two packets.
Follow the answer from green: which route takes it off node2?

`sysctl -w net.ipv4.ip_forward=1` has a node forward. node1's own address is 172.31.0.11.
`tcpdump -ni eth0 icmp` on node2 shows what arrives there.
""",
    judge=_judge_nodes,
    answer="""\
By a route that somebody has put there: 10.244.2.0/24 via node2's address.
This is all that flannel's back end host-gw does; a daemon makes these routes from the nodes' leases.

A Linux machine is no router until somebody makes it one.
And a request whose answer finds no way back looks like a request that was lost: always look at both directions.

It works because the nodes share a segment.
A router between them would see packets for 10.244.2.2, and have no route for them.
""",
    attempts=(
        ping("green", "node1", "red", "10.244.2.2"),
        ping("blue", "node2", "green", "10.244.1.3"),
    ),
)


_DEVICE: Final = "flannel.1"
_ADDRESSES: Final = {"node1": "172.31.0.11", "node2": "172.31.0.12"}
_SUBNETS: Final = {"node1": "10.244.1.0", "node2": "10.244.2.0"}
_PODS: Final = {"node1": ("red", "blue"), "node2": ("green",)}


def _judge_vxlan(seen: Seen) -> Iterator[Demand]:
    for node, peer in (("node1", "node2"), ("node2", "node1")):
        yield demands.kind(seen, node, _DEVICE, "vxlan")
        yield _settings(seen.link(node, _DEVICE), node)
        yield demands.up(seen, node, _DEVICE)
        yield demands.mtu(seen, node, _DEVICE, 1450)
        yield demands.address(seen, node, _DEVICE, f"{_SUBNETS[node]}/32")
        yield demands.route(seen, node, f"{_SUBNETS[peer]}/24", _SUBNETS[peer], dev=_DEVICE)
    for node, peer in (("node1", "node2"), ("node2", "node1")):
        yield _neighbour(seen, node, peer)
        yield _fdb(seen, node, peer)
        for pod in _PODS[node]:
            yield demands.mtu(seen, node, "eth0", 1450, pod)
    yield demands.answered(seen, "green", "red pings green on node2", "no answer from 10.244.2.2")
    yield demands.answered(seen, "large", "so does a packet of 1450 bytes, in one piece", "no answer from 10.244.2.2")
    yield _frame(seen)


def _settings(link: Link | None, node: str) -> Demand:
    what = f"{_DEVICE} of {node} has VNI 1, port 8472, local {_ADDRESSES[node]}, nolearning"
    data = {} if link is None else link.linkinfo.info_data
    wanted = {"id": 1, "port": 8472, "local": _ADDRESSES[node], "learning": False}
    wrong = [f"its {key} is {data.get(key)}" for key, value in wanted.items() if data.get(key) != value]
    return Demand(
        what, " and ".join("it was made without `nolearning`" if "learning" in each else each for each in wrong)
    )


def _mac(seen: Seen, node: str) -> str:
    link = seen.link(node, _DEVICE)
    return "" if link is None else link.address


def _neighbour(seen: Seen, node: str, peer: str) -> Demand:
    at, mac = _SUBNETS[peer], _mac(seen, peer)
    what = f"permanent neighbour {at} → {mac}, which is {peer}'s {_DEVICE}, on {node}"
    found = [entry for entry in seen.space(node).neighbours if entry.dst == at and entry.dev == _DEVICE]
    if not found:
        return Demand(what, f"{_DEVICE} has no neighbour {at}")
    if found[0].lladdr != mac:
        return Demand(what, f"found {found[0].lladdr or 'no MAC'}")
    return Demand(what, "" if "PERMANENT" in found[0].state else f"it is {', '.join(found[0].state)}, not permanent")


def _fdb(seen: Seen, node: str, peer: str) -> Demand:
    mac, at = _mac(seen, peer), _ADDRESSES[peer]
    what = f"{node}'s FDB has {mac} behind {at}"
    found = [entry.dst for entry in seen.space(node).fdb if (entry.mac, entry.ifname) == (mac, _DEVICE) and entry.dst]
    if found == [at]:
        return Demand(what)
    return Demand(what, f"it is behind {' and '.join(found)}" if found else f"{_DEVICE} has no entry for that MAC")


def _frame(seen: Seen) -> Demand:
    names = {tuple(layer.name for layer in frame) for frame in seen.frames}
    what = "the ping crosses eth0 of node2 inside VXLAN"
    wrapped = any("VXLAN" in frame and frame[-1] == "ICMP" for frame in names)
    return Demand(what, "" if wrapped else f"{len(seen.frames)} packets were captured there, none is VXLAN with a ping")


VXLAN: Final = Lesson(
    name="vxlan",
    title="VXLAN",
    question="And if the network between the nodes knows nothing of pods' addresses?",
    why="""\
Then nodes wrap: the pod's packet becomes the load of a UDP datagram from node to node.
A VXLAN device does that.
What is routed to it comes out of eth0 in a datagram; which node it goes to is the answer of three tables, asked in
turn.

The route says which gateway: 10.244.2.0, a name for node2 as a whole.
The neighbour entry says which MAC that gateway has.
The FDB entry says behind which node that MAC is.
All three are made by hand, so no question is ever broadcast.
""",
    typed=(
        Typed(
            "node1",
            "ip link add flannel.1 address 0e:00:00:00:00:01 mtu 1450 type vxlan"
            " id 1 local 172.31.0.11 dev eth0 dstport 8472 nolearning",
            "A VTEP: 1 is the VNI, the number of the overlay; 8472 is the UDP port. nolearning: nobody but you fills "
            "its FDB.",
        ),
        Typed("node1", "ip address add 10.244.1.0/32 dev flannel.1"),
        Typed("node1", "ip link set flannel.1 up"),
        Typed(
            "node1",
            "ip route replace 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink",
            "onlink: take it on trust that 10.244.2.0 is reached there; no address of flannel.1 covers it.",
        ),
        Typed("node1", "ip neigh replace 10.244.2.0 lladdr 0e:00:00:00:00:02 dev flannel.1 nud permanent"),
        Typed("node1", "bridge fdb replace 0e:00:00:00:00:02 dev flannel.1 dst 172.31.0.12"),
        Typed(
            "node1",
            "for pod in red blue; do ip -n $pod link set eth0 mtu 1450; done",
            "The wrapping takes 50 bytes of the 1500 of eth0: 14 Ethernet, 8 VXLAN, 8 UDP, 20 IP.",
        ),
        look("node1", "ip -d link show flannel.1", "vxlan id 1 local 172.31.0.11 dev eth0 … dstport 8472 nolearning"),
        look(
            "node1",
            "ip netns exec red ping -c 1 -W 1 10.244.2.2",
            "Nothing comes back: node2 has no device that takes such datagrams.",
            fails=True,
        ),
    ),
    task="Do the same on node2, for the way back: a flannel.1 with MAC 0e:00:00:00:00:02 and address 10.244.2.0/32, "
    "the three entries that lead to node1, and MTU 1450 for green's eth0.",
    rest=(
        Typed(
            "node2",
            "ip link add flannel.1 address 0e:00:00:00:00:02 mtu 1450 type vxlan"
            " id 1 local 172.31.0.12 dev eth0 dstport 8472 nolearning",
        ),
        Typed("node2", "ip address add 10.244.2.0/32 dev flannel.1"),
        Typed("node2", "ip link set flannel.1 up"),
        Typed("node2", "ip route replace 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink"),
        Typed("node2", "ip neigh replace 10.244.1.0 lladdr 0e:00:00:00:00:01 dev flannel.1 nud permanent"),
        Typed("node2", "bridge fdb replace 0e:00:00:00:00:01 dev flannel.1 dst 172.31.0.11"),
        Typed("node2", "ip -n green link set eth0 mtu 1450"),
    ),
    hints="""\
Read node1's commands from node2's side: `local` and the address are the node's own, the three entries are the
other's.

`ip route replace`, not `add`: the plain route of the lesson before is still there.
`ip neigh show dev flannel.1` and `bridge fdb show dev flannel.1` show what you have.
""",
    judge=_judge_vxlan,
    answer="""\
The network between the nodes need not know pods' addresses: it carries only datagrams from 172.31.0.11 to
172.31.0.12.
The captured packet below has the pods' packet inside.

These are exactly the entries that flannel's vxlan makes of node2's lease, which says its address, its subnet and
its MAC.
`weft lab up` in another terminal starts nodes whose daemons have made them.

8472 is Linux's own port for VXLAN, older than the 4789 that IANA has given it since; flannel has kept it.
""",
    attempts=(
        ping("green", "node1", "red", "10.244.2.2"),
        ping("large", "node1", "red", "-s 1422 -M do 10.244.2.2"),
    ),
    wire="node2",
)
