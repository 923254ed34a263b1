"""A second node, and one route to each other's pods."""

from collections.abc import Iterator
from typing import Final

from weft.lab.tutorial import demands
from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, look, ping
from weft.lab.tutorial.seen import Seen


def _judge(seen: Seen) -> Iterator[Demand]:
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

LESSON: Final = Lesson(
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
        look("node1", "sysctl net.ipv4.ip_forward", "0: node1 drops what is not for itself."),
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
    judge=_judge,
    answer="""\
By a route that somebody has put there: 10.244.2.0/24 via node2's address.
This is all that flannel's back end host-gw does; a daemon makes these routes from the nodes' leases.

A Linux machine is no router until somebody makes it one, and a request whose answer finds no way back looks just as one
that was lost: always look at both directions.

It works because the nodes share a segment.
A router between them would see packets for 10.244.2.2, and have no route for them.
""",
    attempts=(
        ping("green", "node1", "red", "10.244.2.2"),
        ping("blue", "node2", "green", "10.244.1.3"),
    ),
)
